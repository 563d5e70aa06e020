"""Layout: the memory layout and the attention mask of a batch, computed once and used by every layer.

The rule: query q attends to key k if both belong to one sequence, k is not marked unseen, and order[k] <= order[q].
In a local layer k must also be within `window` positions of q.

A bias has a number for every query and key. So the queries of long sequences with biases attend a few at a time
(`parts`): memory then grows with the length, and without gradients only the biases of the current block are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, groupby, repeat

import torch
from torch import Tensor
from torch.nn import functional

from osbert.data.batch import Batch
from osbert.models.transformer.positions import BASE, Distances, rotation
from osbert.models.transformer.runs import EqualLengths, Marks, TokenRun, band, block_of, equal_lengths


@dataclass(kw_only=True, eq=False)
class Layout:
    """The memory layout and the attention mask of a batch, computed once and used by every layer.

    `bounds` (B + 1,), int32: the first token of each sequence, and the end of the last. `positions` (N,);
    `consecutive`: they are 0, 1, 2, ... in every sequence. `order` (N,): None if it is 0 everywhere; `causal`: it is
    0, 1, 2, ... `unseen` (N,): True for keys that no query attends to; None if there are none. `window`: positions that
    a token sees on either side; None for all. `turns` (N, K/2, 2): cosines and sines of rotary positions, or None.

    `read` (R,): indices of the tokens that have queries, ascending; None for all N. `counts` (B,): queries in each
    sequence; `firsts` (B + 1,), int32: the bounds of each sequence's queries. Both are None if all N tokens have one.

    `biases`: one for each of `runs`, added to the scaled scores, (count or 1, H, Q, T); None for no bias.
    `distances`: the vectors from which each layer computes such biases; or None. `segments` (N,): the segment of each
    token, if layers score whether query and key share one; or None. `table` (H, 2 F + 1): the biases of the distances
    from a query to a key, -F to F, in place of `biases`, which would be large (relative.py); or None. `reach`:
    the least and the greatest distance from a key to a query, if all N tokens are one sequence; None if unknown.
    `longest`, `longest_queries`: the most tokens and the most queries of a sequence.

    The dataclass is not frozen: torch.compile (2.11) guards on every field of a frozen one. It would recompile the
    layers for each new number of runs, and stop compiling at its limit.
    """

    lengths: tuple[int, ...]
    bounds: Tensor
    positions: Tensor
    consecutive: bool = True
    order: Tensor | None = None
    causal: bool = False
    unseen: Tensor | None = None
    window: int | None = None
    turns: Tensor | None = None
    read: Tensor | None = None
    counts: tuple[int, ...] | None = None
    firsts: Tensor | None = None
    biases: tuple[Tensor, ...] | None = None
    distances: Distances | None = None
    segments: Tensor | None = None
    table: Tensor | None = None
    reach: tuple[int, int] | None = None
    longest: int = field(init=False)
    longest_queries: int = field(init=False)
    _locals: dict[tuple[int, float | None], Layout] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Find the most tokens and the most queries of a sequence: a compiled layer would be compiled for `lengths`."""
        self.longest = max(self.lengths, default=0)
        self.longest_queries = max(self.queries, default=0)

    @property
    def queries(self) -> tuple[int, ...]:
        """The number of queries of each of the B sequences."""
        return self.lengths if self.counts is None else self.counts

    @property
    def marks(self) -> Marks:
        """The columns of all tokens (N,) that the rule compares."""
        return Marks(positions=self.positions, order=self.order, unseen=self.unseen)

    def reading(self, read: Tensor, counts: Sequence[int]) -> Layout:
        """Return the layout in which only the tokens `read` (R,) have queries, `counts` (B,) in each sequence."""
        # `read` is ascending: the first query of a sequence is the first index that is not below its bound.
        firsts = torch.searchsorted(read, self.bounds, out_int32=True)
        layout = replace(self, read=read, counts=tuple(counts), firsts=firsts)
        if self.biases is not None:
            # The index of each query in its sequence: searchsorted finds the sequence. No loop over sequences, which
            # would make the host wait for the GPU.
            indices = read - self.bounds[torch.searchsorted(self.bounds, read, right=True) - 1]
            parts = zip(self.biases, layout.runs, indices.split([run.queries for run in layout.runs]), strict=True)
            # Row i of a bias belongs to token i of the sequence: keep the rows of the tokens that have queries.
            layout.biases = tuple(
                bias.take_along_dim(run.spread(part)[:, None, :, None], dim=2) for bias, run, part in parts
            )
        return layout

    def read_of(self, rows: Tensor) -> Tensor:
        """Return the rows (R, ...) of the tokens that have queries, from `rows` (N, ...)."""
        return rows if self.read is None else rows.index_select(0, self.read)

    def local(self, window: int, base: float | None = None) -> Layout:
        """Return the layout of local layers, whose tokens see `window` positions on either side. All layers share it.

        `base`: the base of their rotary positions; None for that of this layout.
        """
        # Cached: all local layers share one layout, and so its masks and runs.
        layout = self._locals.get((window, base))
        if layout is None:
            turns = self.turns
            if turns is not None and base is not None:
                turns = rotation(self.positions, 2 * turns.shape[1], base)
            layout = self._locals[window, base] = replace(self, window=window, turns=turns)
        return layout

    def with_biases(self, biases: Sequence[Tensor]) -> Layout:
        """Return the layout with a bias (count or 1, H, Q, T) for each of `runs`, added to the scaled scores.

        `local` and `reading` keep the bias. A local layer with a bias is not cut into blocks: its memory grows with the
        square of the length.
        """
        layout = replace(self, biases=tuple(biases), table=None)
        if not self.plain:
            # They have no bands and no `causal` already: reuse them.
            layout.runs = self.runs
        return layout

    def across(self, source: Layout) -> Layout:
        """Return the layout of cross-attention: queries of this layout, keys of all seen tokens of the source."""
        return replace(
            source,
            order=None,
            causal=False,
            window=None,
            turns=None,
            read=None,
            counts=self.queries,
            # Without `read`, the queries of this layout are all its tokens: their bounds are the queries' bounds.
            firsts=self.bounds if self.firsts is None else self.firsts,
            biases=None,
            distances=None,
            table=None,
        )

    @property
    def plain(self) -> bool:
        """Return whether nothing is added to the scores."""
        return self.biases is None and self.distances is None and self.table is None

    @cached_property
    def offsets(self) -> tuple[Tensor, ...]:
        """For each of `runs`, the position of each query less that of each key, (count or 1, Q, T)."""
        rows = self.read_of(self.positions)
        sizes = ([run.queries for run in self.runs], [run.tokens for run in self.runs])
        columns = zip(self.runs, rows.split(sizes[0]), self.positions.split(sizes[1]), strict=True)
        run_offsets = []
        for run, queries, keys in columns:
            # (count, Q, 1) - (count, 1, T)
            placed = run.spread(queries)[..., None] - run.keys(keys)[..., None, :]
            # Consecutive positions give every sequence of the run the same offsets: keep one, and broadcast it.
            run_offsets.append(placed[:1] if self.consecutive and self.read is None else placed)
        return tuple(run_offsets)

    @cached_property
    def distance_columns(self) -> tuple[tuple[slice, Tensor], ...]:
        """For each of `runs`, the slice of vectors in use, and the index in it for each pair (count or 1, Q, T)."""
        distances = self.distances
        assert distances is not None
        # Only the vectors of distances that occur in the run are multiplied; indices count from the first of them.
        if self.reach is not None:
            used = [distances.row_range(*self.reach)]
        elif self.consecutive:
            used = [distances.row_range(1 - offsets.shape[-1], offsets.shape[-1] - 1) for offsets in self.offsets]
        else:
            used = [slice(0, None)] * len(self.offsets)
        return tuple(
            (part, distances.rows_of(offsets) - part.start) for part, offsets in zip(used, self.offsets, strict=True)
        )

    @cached_property
    def same_segments(self) -> tuple[Tensor, ...]:
        """For each of `runs`, whether query and key belong to one segment, (count, Q, T)."""
        assert self.segments is not None
        # (count, Q, 1) == (count, 1, T).
        queries = self.read_of(self.segments).split([run.queries for run in self.runs])
        columns = zip(self.runs, queries, self.segments.split([run.tokens for run in self.runs]), strict=True)
        return tuple(
            run.spread(segments)[..., None] == run.keys(other)[..., None, :] for run, segments, other in columns
        )

    @cached_property
    def runs(self) -> tuple[TokenRun, ...]:
        """The rectangles of queries by keys that a kernel processes, in the order of the tokens."""
        # Sequences of up to `longest` tokens are processed whole. A local layer cuts longer ones into blocks, each with
        # its neighbourhood; below a block and its two windows that would save nothing.
        longest = max(self.lengths, default=0)
        if self.window is not None and self.consecutive and self.plain:
            longest = min(longest, block_of(self.window) + 2 * self.window)
        runs = []
        start = first = sequence = 0
        # Neighbours of equal length form one run. All lengths above `longest` have one key, so they share one band.
        for length, group in groupby(map(min, self.lengths, repeat(longest + 1))):
            sequences = slice(sequence, sequence + len(list(group)))
            counts = None if self.counts is None else self.counts[sequences]
            keys = slice(start, start + sum(self.lengths[sequences]))
            queries = slice(first, first + sum(counts or ()))
            if length > longest:
                runs.append(self._band(keys, queries))
            else:
                run = equal_lengths(sequences.stop - sequence, length, counts, self.positions.device)
                runs.append(self._seeing(run, keys, queries, length))
            start, first, sequence = keys.stop, queries.stop, sequences.stop
        return tuple(runs)

    def _band(self, keys: slice, queries: slice) -> TokenRun:
        """Return the band of a local layer over the tokens `keys`, with the queries `queries` of `read`."""
        assert self.window is not None
        # Sequences are numbered from 1 by counting positions of 0. The padding of the last block has number 0, so that
        # padding attends to padding alone.
        marks = replace(self.marks.at(keys), sequence=(self.positions[keys] == 0).cumsum(0))
        run = band(keys.stop - keys.start, self.window).seeing(marks, marks, self.window)
        if self.read is None:
            return run
        return replace(run, query_cells=self.read[queries] - keys.start, queries=queries.stop - queries.start)

    def _seeing(self, run: EqualLengths, keys: slice, queries: slice, length: int) -> TokenRun:
        """Return the run with its mask, for sequences of `length` tokens at `keys` with the queries `read[queries]`."""
        # A window that covers the whole sequence needs no mask.
        window = None if self.window is None or (self.consecutive and length <= self.window + 1) else self.window
        if window is None and self.unseen is None:
            if self.order is None:
                return run
            # Kernels have a causal mode that is faster than a mask; it cannot be combined with a bias.
            if self.causal and self.read is None and self.plain:
                return replace(run, causal=True)
        query = key = self.marks.at(keys)
        # Without `read`, `counts` are of another text (cross-attention), whose queries have no marks here.
        if self.counts is not None:
            query = Marks() if self.read is None else self.marks.at(self.read[queries])
        return run.seeing(query, key, window)


def lay_out(batch: Batch, *, rotary: int = 0, base: float = BASE, causal: bool = False) -> Layout:
    """Return the layout of a batch.

    `rotary`: the head width for rotary positions, 0 for none; `base`: their base. `causal`: the order is 0, 1, 2, ...
    if the batch has none.
    """
    order = batch.order
    if order is None and causal:
        # Positions that are not 0, 1, 2, ... say nothing about the order; then the index in the sequence does.
        order = batch.positions if batch.consecutive else batch.places
    return Layout(
        lengths=batch.lengths,
        bounds=functional.pad(batch.starts, (0, 1), value=batch.tokens).int(),
        positions=batch.positions,
        consecutive=batch.consecutive,
        order=order,
        causal=causal if batch.order is None else batch.causal,
        unseen=batch.unseen,
        turns=rotation(batch.positions, rotary, base) if rotary else None,
    )


LONG = 1024
"""Most tokens of a sequence whose queries attend at once: 48 MiB of biases in BERT BASE's 12 heads."""

SCORES = 2**22
"""Most scores of a block, over all heads: 16 MiB in float32."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LayoutPart:
    """Part of a layout: its own layout, and the rows of its `queries` and `keys` among those of the whole layout."""

    layout: Layout
    queries: slice
    keys: slice

    def blocks(self, heads: int) -> Iterator[LayoutPart]:
        """Yield blocks of queries with the keys that they may see; the part itself if no sequence of it is long."""
        if not has_long(self.layout):
            yield self
            return
        layout = self.layout
        tokens, queries = layout.lengths[0], layout.queries[0]
        size = max(1, SCORES // (heads * tokens))
        # One copy to the host for all blocks: those on a GPU would each wait for it.
        read = torch.arange(tokens) if layout.read is None else layout.read.cpu()
        for first in range(0, queries, size):
            chosen = read[first : first + size]
            end = int(chosen[-1]) + 1 if layout.causal and layout.consecutive else tokens
            block = _cut(layout, slice(0, end), (end,), chosen.to(layout.positions.device), (len(chosen),))
            if layout.consecutive:
                block.reach = (int(chosen[0]) - end + 1, int(chosen[-1]))
            start = self.queries.start + first
            yield LayoutPart(
                layout=block,
                queries=slice(start, start + len(chosen)),
                keys=slice(self.keys.start, self.keys.start + end),
            )


def has_long(layout: Layout) -> bool:
    """Return whether a layout has biases, and a sequence for whose queries they are to be computed in blocks."""
    return not layout.plain and layout.longest > LONG


def parts(layout: Layout) -> Iterator[LayoutPart]:
    """Yield the parts of a layout: each long sequence, and the sequences between two long ones."""
    start = first = 0
    # Each long sequence is a group of its own; neighbours that are not long share the key -1.
    numbers = range(len(layout.lengths))
    for _, group in groupby(numbers, key=lambda number: number if layout.lengths[number] > LONG else -1):
        members = [*group]
        lengths = tuple(layout.lengths[member] for member in members)
        counts = tuple(layout.queries[member] for member in members)
        keys, queries = slice(start, start + sum(lengths)), slice(first, first + sum(counts))
        start, first = keys.stop, queries.stop
        read = None if layout.read is None else layout.read[queries] - keys.start
        if queries.stop > queries.start:
            part = _cut(layout, keys, lengths, read, None if read is None else counts)
            yield LayoutPart(layout=part, queries=queries, keys=keys)


def _cut(
    layout: Layout, keys: slice, lengths: tuple[int, ...], read: Tensor | None, counts: tuple[int, ...] | None
) -> Layout:
    """Return the layout of the tokens `keys`, sequences of `lengths`, with queries of the tokens `read` (None: all)."""
    columns = {
        name: column[keys]
        for name in ("positions", "order", "unseen", "segments")
        if (column := getattr(layout, name)) is not None
    }
    bounds = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=layout.positions.device)
    firsts = None if read is None else torch.searchsorted(read, bounds, out_int32=True)
    # Queries and keys are rotated already.
    return replace(
        layout, **columns, lengths=lengths, bounds=bounds, turns=None, read=read, counts=counts, firsts=firsts
    )
