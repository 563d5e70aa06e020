"""Form: the special pieces before, between and after the texts of a sequence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Form:
    """The ids of a sequence's special pieces: one text is `before a after`, a pair `before a between b after`.

    | family | before | between | after |
    |---|---|---|---|
    | BERT, ALBERT | `[CLS]` | `[SEP]` | `[SEP]` |
    | RoBERTa | `<s>` | `</s></s>` | `</s>` |
    | GPT, GPT-2 (fine-tuning) | `_start_` | `_delimiter_` | `_classify_` |
    | GPT-2 (pretraining) | | end of text | |
    | GPT (pretraining) | | | |
    | T5 | | `</s>` | `</s>` |
    | XLNet | | `<sep>` | `<sep><cls>` |

    `second_segment`: segment of a pair's second text and of the pieces after it; all others have segment 0.
    `last_segment`: segment of the last special piece if it belongs to neither text (XLNet: 2). `summary`: the token
    whose hidden state represents the whole sequence.

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
        """Return the piece that ends a generated text, None if the form has none.

        >>> Form(before=(2,), between=(3,), after=(3,)).end
        3
        """
        return next(iter((*self.after, *self.between)), None)

    def specials(self, texts: int) -> int:
        """Return the number of special pieces in a sequence of `texts` texts."""
        return len(self.before) + (texts - 1) * len(self.between) + len(self.after)

    def second(self, first: int) -> int:
        """Return the position of the second text in a pair whose first text has `first` pieces."""
        return len(self.before) + first + len(self.between)
