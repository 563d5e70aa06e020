"""Layout: how the sequences of a batch lie in memory and who sees whom, worked out once and read by every layer.

The rule: query q sees key k when both are of one sequence and order[k] <= order[q]; in a local layer k must besides be
within `window` positions of q.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby

import torch
from torch import Tensor
from torch.nn import functional

from osbert.data.batch import Batch
from osbert.models.transformer.positions import BASE, rotation
from osbert.models.transformer.runs import Band, EqualLengths, Marks, band, block_of, places_of, queries_in, sight


@dataclass(kw_only=True, eq=False)
class Layout:
    """How a batch's sequences lie in memory and who sees whom, worked out once and read by every layer.

    `bounds` (B + 1,), int32: where sequences begin, and where the last one ends. `positions` (N,); `consecutive`: they
    are 0, 1, 2, ... in every sequence. `order` (N,), None for 0 everywhere; `causal`: it is 0, 1, 2, ... `window`: how
    many positions a token sees to either side, None for all. `turns` (N, K/2, 2): rotary positions, None without.

    `read` (R,): the only tokens, in ascending order, that have queries; None for all N. `counts` (B,): how many queries
    each sequence has; `firsts` (B + 1,), int32: where they begin, as `bounds`. Both are None where all N have one.

    Not frozen: torch.compile (2.11) reads every field of a frozen dataclass, and would compile the layers again for
    every number of runs, up to its limit, and then no longer.
    """

    lengths: tuple[int, ...]
    bounds: Tensor
    positions: Tensor
    consecutive: bool = True
    order: Tensor | None = None
    causal: bool = False
    window: int | None = None
    turns: Tensor | None = None
    read: Tensor | None = None
    counts: tuple[int, ...] | None = None
    firsts: Tensor | None = None
    _locals: dict[tuple[int, float | None], Layout] = field(init=False, default_factory=dict, repr=False)

    @property
    def queries(self) -> tuple[int, ...]:
        """Return how many queries each of the B sequences has."""
        return self.lengths if self.counts is None else self.counts

    @property
    def marks(self) -> Marks:
        """Return what the rule reads of all tokens (N,)."""
        return Marks(positions=self.positions, order=self.order)

    def reading(self, read: Tensor, counts: Sequence[int]) -> Layout:
        """Return the layout for queries of `read` (R,) alone, `counts` (B,) a sequence."""
        firsts = torch.searchsorted(read, self.bounds, out_int32=True)
        return replace(self, read=read, counts=tuple(counts), firsts=firsts)

    def read_of(self, rows: Tensor) -> Tensor:
        """Return what is read of `rows` (N, ...)."""
        return rows if self.read is None else rows.index_select(0, self.read)

    def local(self, window: int, base: float | None = None) -> Layout:
        """Return the layout of layers whose tokens see `window` positions to either side: one for all of them.

        `base`: that of their rotary turns, None for this layout's own.
        """
        found = self._locals.get((window, base))
        if found is None:
            turns = self.turns
            if turns is not None and base is not None:
                turns = rotation(self.positions, 2 * turns.shape[1], base)
            found = self._locals[window, base] = replace(self, window=window, turns=turns)
        return found

    @cached_property
    def runs(self) -> tuple[EqualLengths | Band, ...]:
        """The rectangles that a kernel works on, in the order of the tokens."""
        # Up to what length a sequence is worked on whole; a longer one is cut into blocks with their neighbourhoods.
        longest = max(self.lengths, default=0)
        if self.window is not None and self.consecutive:
            longest = min(longest, block_of(self.window) + 2 * self.window)
        runs: list[EqualLengths | Band] = []
        start = first = sequence = 0
        for length, group in groupby(self.lengths, key=lambda length: min(length, longest + 1)):
            sequences = slice(sequence, sequence + len(list(group)))
            counts = () if self.counts is None else self.counts[sequences]
            here = slice(start, start + sum(self.lengths[sequences]))
            read = None if self.read is None else self.read[first : first + sum(counts)]
            if length > longest:
                runs.append(band(self.marks.at(here), self.window or 0, None if read is None else read - start))
            else:
                run = EqualLengths(count=sequences.stop - sequence, length=length, queries=counts)
                runs.append(self._equal_lengths(run, here, read))
            start, first, sequence = here.stop, first + sum(counts), sequences.stop
        return tuple(runs)

    def _equal_lengths(self, run: EqualLengths, here: slice, read: Tensor | None) -> EqualLengths:
        """Return a run with what its tokens `here` see, those of `read` alone where that is given."""
        window = None if self.window is None or (self.consecutive and run.length <= self.window + 1) else self.window
        run = replace(run, places=places_of(run.queries, self.positions.device))
        if self.causal and window is None and read is None:
            return replace(run, causal=True)
        if self.order is None and window is None:
            return run
        key = self.marks.at(here).each(lambda column: column.view(run.count, run.length))
        query = key if read is None else self.marks.at(read).each(lambda column: queries_in(column, run))
        return replace(run, visible=sight(query, key, window))


def lay_out(batch: Batch, *, rotary: int = 0, base: float = BASE, causal: bool = False) -> Layout:
    """Return the layout of a batch.

    `rotary`: the head width to make rotary turns for, 0 for none; `base`: theirs. `causal`: the order is 0, 1, 2, ...
    where the batch has none.
    """
    order = batch.order
    if order is None and causal:
        order = batch.positions if batch.consecutive else batch.places
    return Layout(
        lengths=batch.lengths,
        bounds=functional.pad(batch.starts, (0, 1), value=batch.tokens).int(),
        positions=batch.positions,
        consecutive=batch.consecutive,
        order=order,
        causal=causal if batch.order is None else batch.causal,
        turns=rotation(batch.positions, rotary, base) if rotary else None,
    )
