"""Texts with gaps: sentinels stand for the missing spans of a text (T5, Raffel et al. 2020, section 3.1.4)."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from osbert.errors import UserError
from osbert.terminal import format_count
from osbert.text.file_tokenizer import AnyTokenizer, FileTokenizer, sentinel_ids
from osbert.text.tokenizer import SENTINEL, SPECIALS

_GAP = re.compile(rf"{re.escape(SPECIALS[-1])}|{SENTINEL.format(r'[0-9]+')}")


def encode_gaps(text: str, tokenizer: AnyTokenizer) -> NDArray[np.int32]:
    """Return the ids of a text (n,), without the special pieces around it, in which sentinels stand for gaps.

    The k-th [MASK] of the text becomes sentinel k, from 0 on, or the mask piece if the tokenizer has no sentinels. A
    sentinel's name in the text becomes that sentinel. Raises UserError if there are more [MASK] than sentinels, or if
    two gaps have the same sentinel.

    >>> from osbert.text.file_tokenizer import with_sentinels
    >>> from osbert.text.tokenizer import Tokenizer
    >>> tokenizer = with_sentinels(Tokenizer([*SPECIALS, "a", "day"]), 2)
    >>> tokenizer.tokens(encode_gaps("a [MASK] day <extra_id_1>", tokenizer))
    ['a', '<extra_id_0>', 'day', '<extra_id_1>']
    """
    _check_gaps(text, tokenizer)
    parts = [*_parts(text, tokenizer)]
    if isinstance(tokenizer, FileTokenizer):  # it finds special pieces in a text, and the spaces that belong to them
        return tokenizer.encode("".join(part if mark is None else tokenizer.vocabulary[mark] for part, mark in parts))
    id_parts = [tokenizer.encode(part) if mark is None else np.array([mark], np.int32) for part, mark in parts]
    return np.concatenate(id_parts)


def _check_gaps(text: str, tokenizer: AnyTokenizer) -> None:
    """Raise UserError if two gaps need the same sentinel: what is written for one could be meant for the other."""
    sentinels = [tokenizer.vocabulary[mark] for mark in sentinel_ids(tokenizer)]
    counts = Counter(_GAP.findall(text))
    gaps, most = counts[SPECIALS[-1]], len(sentinels)
    if most and gaps > most:
        raise UserError(
            f"The text has {gaps:,} gaps ({SPECIALS[-1]}), but the tokenizer has "
            f"{format_count(most, 'sentinel')}, one for "
            f"each gap. Divide it into texts of at most {format_count(most, 'gap')}.",
            code="too-many-gaps",
        )
    twice = [piece for number, piece in enumerate(sentinels) if counts[piece] + (number < gaps) > 1]
    if twice:
        raise UserError(
            f"Two gaps of the text have the same sentinel: {', '.join(twice)}. {SPECIALS[-1]} stands for "
            f"{SENTINEL.format(0)}, {SENTINEL.format(1)} and so on, in order. Mark all gaps with {SPECIALS[-1]}, or "
            "name a different sentinel for each.",
            code="repeated-gap",
        )


def _parts(text: str, tokenizer: AnyTokenizer) -> Iterator[tuple[str, int | None]]:
    """Yield the parts of a text in order; with each gap the id of its piece."""
    marks = sentinel_ids(tokenizer)
    named = {tokenizer.vocabulary[mark]: int(mark) for mark in marks}
    masks = begin = 0
    for gap in _GAP.finditer(text):
        mark = named.get(gap[0])
        if gap[0] == SPECIALS[-1]:
            with contextlib.suppress(UserError):  # without a mask piece the gap is text
                mark = int(marks[masks]) if len(marks) else tokenizer.mask
            masks += 1
        if mark is not None:
            yield text[begin : gap.start()], None
            yield gap[0], mark
            begin = gap.end()
    yield text[begin:], None
