"""The four modes of a unified model (UniLM, Dong et al. 2019): the segments that mark each, and its attention mask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import numpy as np

from osbert.data.example import Example, Integers, Places, begins, ranges
from osbert.data.pack import Packer, PieceRun

Mode = Literal["both", "left_to_right", "right_to_left", "sequence_to_sequence"]

LEFT_TO_RIGHT, RIGHT_TO_LEFT, SOURCE, TARGET = 2, 3, 4, 5
SEGMENTS: Mapping[Mode, tuple[int, ...]] = {
    "both": (0, 1),
    "left_to_right": (LEFT_TO_RIGHT,),
    "right_to_left": (RIGHT_TO_LEFT,),
    "sequence_to_sequence": (SOURCE, TARGET),
}
"""The segments of a mode's texts: two for a pair, one for a single text (numbered as in microsoft/unilm)."""


def orders(segments: Integers, lengths: Places) -> Places:
    """Return the time at which each of N tokens is revealed, from `segments` (N,) and `lengths` (B,).

    Mode both: all at 0. left_to_right and right_to_left: one by one. sequence_to_sequence: the source at 0, then the
    target one by one.

    >>> orders(np.array([0, 1, 2, 2, 2, 3, 3, 3, 4, 4, 5, 5]), np.array([2, 3, 3, 4])).tolist()
    [0, 0, 0, 1, 2, 2, 1, 0, 0, 0, 1, 2]
    """
    if not len(segments):
        return np.zeros(0, np.int64)
    positions = ranges(np.zeros_like(lengths), lengths)
    # The length of each source: reduceat sums from each start to the next.
    sources = np.add.reduceat((segments == SOURCE).astype(np.int64), begins(lengths))  # (B,)
    # One value per token instead of one per sequence, for the selection below.
    lasts, sources = (np.repeat(column, lengths) for column in (lengths - 1, sources))
    reveal_times: Places = np.select(
        [segments == LEFT_TO_RIGHT, segments == RIGHT_TO_LEFT, segments == TARGET],
        [positions, lasts - positions, positions - sources + 1],
        0,
    )
    return reveal_times


def source_of(ids: Integers, packer: Packer, *, most: int) -> Example:
    """Return a source [CLS] ids [SEP] that leaves room for `most` tokens of a target in the packer's length.

    Pieces that do not fit are cut from the end and counted in `truncated`. All tokens attend to each other.
    """
    form = packer.form
    room = max(0, packer.length - most - len(form.before) - len(form.between))
    source_ids = ids[:room]
    whole = np.concatenate([form.before, source_ids, form.between]).astype(np.int32)
    special = np.ones(len(whole), np.bool_)
    special[len(form.before) : len(form.before) + len(source_ids)] = False
    words = np.zeros(len(whole), np.bool_)
    words[~special] = PieceRun.of(source_ids, packer.tokenizer).words
    return Example(
        ids=whole,
        segments=np.full(len(whole), SOURCE, np.int8),
        words=words,
        special=special,
        truncated=len(ids) - len(source_ids),
    )


def with_target(source: Example, ids: Integers, packer: Packer, *, closed: bool = True) -> Example:
    """Return a source followed by its target, to be revealed left to right: [CLS] source [SEP] ids [SEP].

    Pieces of the target that do not fit the packer's length are cut from its end and counted in `truncated`.
    Without `closed` there is no [SEP] after the target, because it is still being generated.
    """
    after = packer.form.after if closed else ()
    target_ids = ids[: max(0, packer.length - len(source) - len(after))]
    whole = np.concatenate([target_ids, after]).astype(np.int32)
    special = np.arange(len(whole)) >= len(target_ids)
    words = np.zeros(len(whole), np.bool_)
    words[~special] = PieceRun.of(target_ids, packer.tokenizer).words
    segments = np.concatenate([source.segments, np.full(len(whole), TARGET, np.int8)])
    return replace(
        source,
        ids=np.concatenate([source.ids, whole]),
        segments=segments,
        words=np.concatenate([source.words, words]),
        special=np.concatenate([source.special, special]),
        order=orders(segments, np.array([len(segments)])),
        truncated=source.truncated + len(ids) - len(target_ids),
    )


def with_mask(source: Example, packer: Packer) -> Example:
    """Return a source followed by [MASK], where the first piece of the target is predicted."""
    example = with_target(source, np.array([packer.tokenizer.mask]), packer, closed=False)
    return replace(example, special=np.append(source.special, True), words=np.append(source.words, False))
