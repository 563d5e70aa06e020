"""Form: the special pieces that stand before, between and after the texts of a sequence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Form:
    """The special pieces of a sequence by their ids: one text is `before a after`, a pair `before a between b after`.

    | family | before | between | after |
    |---|---|---|---|
    | BERT, ALBERT | `[CLS]` | `[SEP]` | `[SEP]` |
    | RoBERTa | `<s>` | `</s></s>` | `</s>` |
    | GPT, GPT-2 (fine-tuning) | `_start_` | `_delimiter_` | `_classify_` |
    | GPT-2 (pretraining) | | end of text | |
    | GPT (pretraining) | | | |
    | T5 | | `</s>` | `</s>` |
    | XLNet | | `<sep>` | `<sep><cls>` |

    `second_segment`: the segment of a pair's second text and of what is after it; all else has segment 0.
    `last_segment`: that of the last special piece, where it is of neither text (XLNet: 2). `summary`: which token the
    tokenizer has for the state that stands for the whole sequence.

    >>> roberta = Form(before=(0,), between=(2, 2), after=(2,), second_segment=0)
    >>> roberta.specials(1), roberta.specials(2), roberta.second(10)
    (2, 4, 13)
    """

    before: tuple[int, ...] = ()
    between: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    second_segment: int = 1
    last_segment: int | None = None
    summary: Literal["first", "last"] = "first"

    @property
    def end(self) -> int | None:
        """Return the piece that ends a written text, None if the form has none.

        >>> Form(before=(2,), between=(3,), after=(3,)).end
        3
        """
        return next(iter((*self.after, *self.between)), None)

    def specials(self, texts: int) -> int:
        """Return how many special pieces a sequence of so many texts has."""
        return len(self.before) + (texts - 1) * len(self.between) + len(self.after)

    def second(self, first: int) -> int:
        """Return the position at which a pair's second text begins if the first has so many pieces."""
        return len(self.before) + first + len(self.between)
