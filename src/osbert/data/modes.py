"""The four modes of a unified model (UniLM, Dong et al. 2019): the segments that tell each, and who sees whom in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import numpy as np

from osbert.data.example import Example, Integers
from osbert.data.pack import Packer, PieceRun
from osbert.data.ragged import Places, begins, ranges

Mode = Literal["both", "left_to_right", "right_to_left", "sequence_to_sequence"]
Writing = Literal["masked", "shifted"]
"""Where a piece that is written is predicted: at the [MASK] in its place, or at the token before it."""

LEFT_TO_RIGHT, RIGHT_TO_LEFT, SOURCE, TARGET = 2, 3, 4, 5
SEGMENTS: Mapping[Mode, tuple[int, ...]] = {
    "both": (0, 1),
    "left_to_right": (LEFT_TO_RIGHT,),
    "right_to_left": (RIGHT_TO_LEFT,),
    "sequence_to_sequence": (SOURCE, TARGET),
}
"""The segments of a mode's texts: two of a pair, one where there is one text (microsoft/unilm numbers them so)."""


def orders(segments: Integers, lengths: Places) -> Places:
    """Return when each of N tokens is revealed, from the `segments` (N,) of sequences of `lengths` (B,).

    All at once in mode both; one by one from the left, or from the right; a source at once and its target after it,
    one by one.

    >>> orders(np.array([0, 1, 2, 2, 2, 3, 3, 3, 4, 4, 5, 5]), np.array([2, 3, 3, 4])).tolist()
    [0, 0, 0, 1, 2, 2, 1, 0, 0, 0, 1, 2]
    """
    if not len(segments):
        return np.zeros(0, np.int64)
    places = ranges(np.zeros_like(lengths), lengths)
    sources = np.add.reduceat((segments == SOURCE).astype(np.int64), begins(lengths))  # (B,)
    lasts, sources = (np.repeat(column, lengths) for column in (lengths - 1, sources))
    found: Places = np.select(
        [segments == LEFT_TO_RIGHT, segments == RIGHT_TO_LEFT, segments == TARGET],
        [places, lasts - places, places - sources + 1],
        0,
    )
    return found


def source_of(ids: Integers, packer: Packer, *, most: int) -> Example:
    """Return a source [CLS] ids [SEP] that leaves room for `most` tokens of a target in the packer's length.

    What does not fit is cut from the end and counted in `truncated`. Its tokens see each other.
    """
    form = packer.form
    room = max(0, packer.length - most - len(form.before) - len(form.between))
    kept = ids[:room]
    whole = np.concatenate([form.before, kept, form.between]).astype(np.int32)
    special = np.ones(len(whole), np.bool_)
    special[len(form.before) : len(form.before) + len(kept)] = False
    words = np.zeros(len(whole), np.bool_)
    words[~special] = PieceRun.of(kept, packer.tokenizer).words
    return Example(
        ids=whole,
        segments=np.full(len(whole), SOURCE, np.int8),
        words=words,
        special=special,
        truncated=len(ids) - len(kept),
    )


def with_target(source: Example, ids: Integers, packer: Packer, *, closed: bool = True) -> Example:
    """Return a source with its target behind it, in the order in which it is written: [CLS] source [SEP] ids [SEP].

    Pieces of the target that do not fit the packer's length are cut from its end and counted in `truncated`; of a
    target that is not `closed` the end is left out.
    """
    after = packer.form.after if closed else ()
    kept = ids[: max(0, packer.length - len(source) - len(after))]
    whole = np.concatenate([kept, after]).astype(np.int32)
    special = np.arange(len(whole)) >= len(kept)
    words = np.zeros(len(whole), np.bool_)
    words[~special] = PieceRun.of(kept, packer.tokenizer).words
    segments = np.concatenate([source.segments, np.full(len(whole), TARGET, np.int8)])
    return replace(
        source,
        ids=np.concatenate([source.ids, whole]),
        segments=segments,
        words=np.concatenate([source.words, words]),
        special=np.concatenate([source.special, special]),
        order=orders(segments, np.array([len(segments)])),
        truncated=source.truncated + len(ids) - len(kept),
    )


def with_mask(source: Example, packer: Packer) -> Example:
    """Return a source with the [MASK] behind it at which the first piece of its target is predicted."""
    asked = with_target(source, np.array([packer.tokenizer.mask]), packer, closed=False)
    return replace(asked, special=np.append(source.special, True), words=np.append(source.words, False))
