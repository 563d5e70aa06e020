"""Texts longer than a sequence: cut at the end, cut in the middle, or read whole in overlapping windows.

Of a piece in two windows the result counts where it has most context.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from osbert.data.example import Example
from osbert.data.pack import Packer, PieceRun, trim_lengths
from osbert.errors import UserError

Long = Literal["truncate", "head+tail", "window", "error"]
HEAD = 4
"""With head+tail one piece in HEAD is from the beginning: 128 of 510 (Sun et al. 2019, section 5.3.1)."""


class TextWindow(NamedTuple):
    """Pieces [start, end) are the model's input; the results for pieces [first, last) are used.

    Each piece counts in exactly one window: the one in which it is farthest from the nearer edge, the later one in a
    tie (Devlin et al.'s "maximum context").
    """

    start: int
    end: int
    first: int
    last: int


def windows(count: int, *, room: int, overlap: int) -> list[TextWindow]:
    """Return the windows over `count` pieces: `room` pieces each, except for the last.

    Neighbouring windows share `overlap` pieces, at most half of a window (`step`).

    Of the two pieces that both windows contain, each counts in the window where it has more context:

    >>> for window in windows(10, room=6, overlap=2):
    ...     print(window)
    TextWindow(start=0, end=6, first=0, last=5)
    TextWindow(start=4, end=10, first=5, last=10)
    """
    bounds = spread(count, room, step(room, overlap))
    # Inside an overlap [start, end) the context is balanced at the middle: earlier pieces belong to the earlier
    # window.
    borders = [0, *((start + end) // 2 for (start, _), (_, end) in zip(bounds[1:], bounds)), count]
    return [TextWindow(*ends, *counted) for ends, counted in zip(bounds, pairwise(borders))]


def step(room: int, overlap: int) -> int:
    """Return the stride of windows of `room` pieces that overlap by `overlap` pieces, at most by half.

    >>> step(10, 2), step(10, 9)
    (8, 5)
    """
    return room - min(overlap, room // 2)


def spread(count: int, room: int, step: int) -> list[tuple[int, int]]:
    """Return windows [begin, end) over `count` pieces, at least one, as in google-research/bert's run_squad.py.

    Each has `room` pieces, the last one the rest. The stride is `step`, at most `room`.
    """
    step = min(step, room)
    # One window, and as many more as it takes to cover the rest (division rounded up).
    number = 1 + max(0, -(-(count - room) // step))
    return [(index * step, min(index * step + room, count)) for index in range(number)]


def lay_out(runs: Sequence[PieceRun], packer: Packer, *, long: Long, overlap: int, record: int) -> list[Example]:
    """Lay out one text or a pair as one sequence, or with "window" as the sequences that cover every piece.

    If a pair is too long, the longer text is cut first, until both have half of the room. `overlap`: pieces that two
    neighbouring windows share, at most half of a window. `truncated` counts the pieces that are in no sequence.
    "error" cuts as "truncate" does; the caller raises the error.
    """
    if len(runs) == 1:
        sizes = [min(len(runs[0].ids), packer.room(1))]  # pieces of each text that fit
    else:
        first, second = [np.array(len(run.ids)) for run in runs]
        sizes = [int(size) for size in trim_lengths(first, second, packer.room(2))]
    if long == "window":
        return [_pack_runs(parts, packer, record) for parts in cut_windows(runs, sizes, overlap)]
    left_out = sum(len(run.ids) - size for run, size in zip(runs, sizes))
    if long == "head+tail":
        runs = [head_and_tail(run, size) for run, size in zip(runs, sizes)]
        return [dataclasses.replace(_pack_runs(runs, packer, record), truncated=left_out)]
    return [_pack_runs(runs, packer, record)]


def lay_out_texts(
    texts: Sequence[str], packer: Packer, *, prompt: str, long: Long, overlap: int, record: int
) -> list[Example]:
    """Tokenize and lay out a text or a pair as `lay_out` does, with a prompt before it in every sequence.

    The prompt is never cut. Raises UserError if it leaves no room for a text.
    """
    if not prompt:
        return lay_out([packer.run(text) for text in texts], packer, long=long, overlap=overlap, record=record)
    # Tokenized together, as in training: a piece may reach from the prompt into the text, and then belongs to the text.
    alone, first = packer.run(prompt).ids, packer.run(prompt + texts[0])
    shared = alone[: len(first.ids)] == first.ids[: len(alone)]
    size = len(shared) if shared.all() else int(shared.argmin())
    size = max(0, min(size, len(first.ids) - 1))  # a sequence without special tokens needs a piece of its own
    if packer.room(2) - size < 2:
        raise UserError(
            f"The prompt {prompt!r:.60} takes {size} of {packer.length} tokens and leaves no room for a text. "
            "Give a greater length or another prompt.",
            code="text-too-long",
        )
    runs = [PieceRun(first.ids[size:], first.words[size:]), *(packer.run(text) for text in texts[1:])]
    shorter = dataclasses.replace(packer, length=packer.length - size)
    run = PieceRun(first.ids[:size], first.words[:size])
    examples = lay_out(runs, shorter, long=long, overlap=overlap, record=record)
    return [insert_run(example, len(packer.form.before), run) for example in examples]


def insert_run(example: Example, begin: int, run: PieceRun) -> Example:
    """Return a sequence with further pieces of its first text before its token `begin`."""
    size = len(run.ids)
    return dataclasses.replace(
        example,
        ids=np.insert(example.ids, begin, run.ids),
        words=np.insert(example.words, begin, run.words),
        segments=np.insert(example.segments, begin, np.zeros(size, example.segments.dtype)),
        special=np.insert(example.special, begin, np.zeros(size, np.bool_)),
    )


def lay_out_behind(
    context: PieceRun, texts: Sequence[PieceRun], packer: Packer, *, long: Long, record: int
) -> list[Example]:
    """Pair the context with each of some texts, as the sequences of one record.

    Pieces cut from the context count once, in the first sequence: the most that any of the pairs loses.
    """
    examples = [lay_out([context, text], packer, long=long, overlap=0, record=record)[0] for text in texts]
    # Each pair cuts the context for itself. Subtract that everywhere and add the largest cut to the first sequence.
    # The first text's pieces stand between the first two special tokens.
    lost = [len(context.ids) + 1 - int(np.flatnonzero(example.special)[1]) for example in examples]
    examples = [
        dataclasses.replace(example, truncated=example.truncated - less) for example, less in zip(examples, lost)
    ]
    examples[0] = dataclasses.replace(examples[0], truncated=examples[0].truncated + max(lost))
    return examples


def head_and_tail(run: PieceRun, size: int) -> PieceRun:
    """Return `size` pieces of a run, one in HEAD from its start and the others from its end; all pieces if they fit."""
    n = len(run.ids)
    if n <= size:
        return run
    head = max(1, size // HEAD)
    indices = np.r_[:head, n - size + head : n]
    return PieceRun(run.ids[indices], run.words[indices])


def cut_windows(runs: Sequence[PieceRun], sizes: Sequence[int], overlap: int) -> list[tuple[PieceRun, ...]]:
    """Return the windows of a text or a pair, `sizes` pieces of each text; every piece is in at least one.

    The windows of the text with fewer are repeated evenly over those of the other, first with first, last with last.
    """
    starts = [_starts(len(run.ids), size, overlap) for run, size in zip(runs, sizes)]
    most = max(map(len, starts))
    # `most` indices into each list of starts; the shorter list repeats some of its windows.
    start_indices = [np.linspace(0, len(window_starts) - 1, most).round().astype(int) for window_starts in starts]
    return [
        tuple(
            PieceRun(run.ids[begin : begin + size], run.words[begin : begin + size])
            for run, size, begin in zip(runs, sizes, begins)
        )
        for begins in zip(
            *(np.array(window_starts)[indices].tolist() for window_starts, indices in zip(starts, start_indices))
        )
    ]


def _starts(n: int, size: int, overlap: int) -> list[int]:
    """Return the starts of the windows over n pieces. The last window ends with the text, so none is short."""
    if n <= size:
        return [0]
    return [min(begin, n - size) for begin, _ in spread(n, size, step(size, overlap))]


def _pack_runs(runs: Sequence[PieceRun], packer: Packer, record: int) -> Example:
    if len(runs) == 1:
        return packer.single(*runs[0], record=record)
    return packer.pair(*runs, record=record)
