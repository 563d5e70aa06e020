"""Sequences of texts with a vector for each token (ColBERT): a marker by role, queries filled up, skipped tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Example
from osbert.data.long_texts import insert_run
from osbert.data.pack import PieceRun
from osbert.errors import UserError
from osbert.text.file_tokenizer import AnyTokenizer, piece_ids

QUERY, DOCUMENT = "query", "document"
"""The roles of texts."""


@dataclass(frozen=True, kw_only=True)
class LateInteraction:
    """How queries are laid out, and the first piece of a text of each role.

    `query_length`: most tokens of a query, 0 for those of any text. `expansion`: tokens to which a query is filled up
    with `piece`, by default [MASK] (query augmentation, Khattab & Zaharia 2020, section 3.2), 0 for none; `attend`:
    whether other tokens attend to these. `prefixes`: pieces by role that stand before a text, such as "[Q] "; a role's
    prompt begins with its prefix.
    """

    query_length: int = 0
    expansion: int = 0
    attend: bool = False
    piece: str = ""
    prefixes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenVectors:
    """How a model makes the vectors of tokens: by a `projection` (E, D), of documents without the pieces `skipped`."""

    late: LateInteraction
    skipped: tuple[str, ...]
    projection: NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class RoleLayout:
    """How a sequence of a role is completed, in ids.

    `marker`: the pieces (0 or 1) before a text. `prompt`: the text after the marker that is put before each text.
    `filler`: the piece with which a sequence is filled up to `expansion` tokens; `attend`: whether other tokens attend
    to these. `skipped`: pieces without a vector.
    """

    marker: PieceRun
    prompt: str
    filler: int
    expansion: int
    attend: bool
    skipped: NDArray[np.int64]

    @classmethod
    def of(
        cls, late: LateInteraction, tokenizer: AnyTokenizer, *, role: str, prompt: str, skipped: Iterable[str]
    ) -> Self:
        """Return the layout of a role; `prompt`: its prompt, which begins with its marker.

        Words in `skipped` that are no single piece are not skipped: theirs is [UNK], and so is that of words that
        count. Raises UserError if queries are filled up with what is no piece of the tokenizer.
        """
        ids = piece_ids(tokenizer)
        filler = ids.get(late.piece) if late.piece else tokenizer.mask
        if filler is None:
            raise UserError(
                f"The model fills queries up with {late.piece!r:.40}, which is no piece of its tokenizer.",
                code="mismatched-tokenizer",
            )
        prefix = late.prefixes.get(role, "")
        has_marker = prefix in ids and prompt.startswith(prefix)
        return cls(
            marker=PieceRun.of(np.array([ids[prefix]] if has_marker else [], np.int32), tokenizer),
            prompt=prompt.removeprefix(prefix) if has_marker else prompt,
            filler=filler,
            expansion=late.expansion if role == QUERY else 0,
            attend=late.attend,
            skipped=np.array([ids[word] for word in skipped if word in ids], np.int64),
        )

    def complete(self, example: Example, begin: int) -> Example:
        """Return a sequence with its marker before the token `begin`, filled up, and with the tokens that count.

        Its `head_words` are the tokens with a vector.
        """
        example = insert_run(example, begin, self.marker)
        size = len(example)
        missing = max(0, self.expansion - size)
        ids = np.append(example.ids, np.full(missing, self.filler, example.ids.dtype))
        return replace(
            example,
            ids=ids,
            segments=np.append(example.segments, np.zeros(missing, example.segments.dtype)),
            words=np.append(example.words, np.zeros(missing, np.bool_)),
            special=np.append(example.special, np.ones(missing, np.bool_)),
            unseen=None if self.attend or not missing else np.arange(size + missing) >= size,
            head_words=~np.isin(ids, self.skipped),
        )
