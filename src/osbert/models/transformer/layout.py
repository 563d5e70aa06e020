"""Layout: how the sequences of a batch lie in memory and who sees whom, worked out once and read by every layer.

The rule: query q sees key k when both are of one sequence, k is not unseen, and order[k] <= order[q]; and in a local
layer, when k is within `window` positions of q.
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
from osbert.models.transformer.disentangled import Distances
from osbert.models.transformer.positions import BASE, rotation
from osbert.models.transformer.runs import EqualLengths, Marks, TokenRun, band, block_of, equal_lengths


@dataclass(kw_only=True, eq=False)
class Layout:
    """How a batch's sequences lie in memory and who sees whom, worked out once and read by every layer.

    `bounds` (B + 1,), int32: where sequences begin, and where the last one ends. `positions` (N,); `consecutive`: they
    are 0, 1, 2, ... in every sequence. `order` (N,), None for 0 everywhere; `causal`: it is 0, 1, 2, ... `unseen` (N,),
    None for none. `window`: how many positions a token sees to either side, None for all. `turns` (N, K/2, 2): rotary
    positions, None without.

    `read` (R,): the only tokens, in ascending order, that have queries; None for all N. `counts` (B,): how many queries
    each sequence has; `firsts` (B + 1,), int32: where they begin, as `bounds`. Both are None where all N have one.

    `biases`: for each of `runs` what is added to the scaled scores, (count or 1, H, Q, T); None for nothing.
    `distances`: the vectors that each layer makes such biases of; None without. `segments` (N,): where layers score
    whether two tokens are of one segment; None without.

    Not frozen: torch.compile (2.11) reads every field of a frozen dataclass, and would compile the layers again for
    every number of runs, up to its limit, and then no longer.
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
    _locals: dict[tuple[int, float | None], Layout] = field(init=False, default_factory=dict, repr=False)

    @property
    def queries(self) -> tuple[int, ...]:
        """Return how many queries each of the B sequences has."""
        return self.lengths if self.counts is None else self.counts

    @property
    def marks(self) -> Marks:
        """Return what the rule reads of all tokens (N,)."""
        return Marks(positions=self.positions, order=self.order, unseen=self.unseen)

    def reading(self, read: Tensor, counts: Sequence[int]) -> Layout:
        """Return the layout for queries of `read` (R,) alone, `counts` (B,) a sequence."""
        firsts = torch.searchsorted(read, self.bounds, out_int32=True)
        layout = replace(self, read=read, counts=tuple(counts), firsts=firsts)
        if self.biases is not None:
            # The place of each query in its sequence, found without making the host wait for a GPU.
            places = read - self.bounds[torch.searchsorted(self.bounds, read, right=True) - 1]
            parts = zip(self.biases, layout.runs, places.split([run.queries for run in layout.runs]), strict=True)
            layout.biases = tuple(
                bias.take_along_dim(run.spread(part)[:, None, :, None], dim=2) for bias, run, part in parts
            )
        return layout

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

    def biased(self, biases: Sequence[Tensor]) -> Layout:
        """Return the layout with a bias (count or 1, H, Q, T) for each of `runs`, added to the scaled scores.

        `local` and `reading` keep it. A local layer with a bias is worked on whole: its memory grows with the square of
        the length.
        """
        layout = replace(self, biases=tuple(biases))
        if not self.plain:
            layout.runs = self.runs  # which have biases in view
        return layout

    def across(self, source: Layout) -> Layout:
        """Return the layout of cross-attention: this one's queries, which see all of the source but what is unseen."""
        return replace(
            source,
            order=None,
            causal=False,
            window=None,
            turns=None,
            read=None,
            counts=self.queries,
            firsts=self.bounds if self.firsts is None else self.firsts,
            biases=None,
            distances=None,
        )

    @property
    def plain(self) -> bool:
        """Return whether nothing is added to the scores."""
        return self.biases is None and self.distances is None

    @cached_property
    def offsets(self) -> tuple[Tensor, ...]:
        """For each of `runs`, the position of each query less that of each key, (count or 1, Q, T)."""
        rows = self.read_of(self.positions)
        sizes = ([run.queries for run in self.runs], [run.tokens for run in self.runs])
        columns = zip(self.runs, rows.split(sizes[0]), self.positions.split(sizes[1]), strict=True)
        found = []
        for run, queries, keys in columns:
            placed = run.spread(queries)[..., None] - run.keys(keys)[..., None, :]
            found.append(placed[:1] if self.consecutive and self.read is None else placed)
        return tuple(found)

    @cached_property
    def distance_columns(self) -> tuple[tuple[slice, Tensor], ...]:
        """For each of `runs`, the vectors of its distances, and which one query and key have, (count or 1, Q, T)."""
        distances = self.distances
        assert distances is not None
        used = [distances.used(offsets.shape[-1]) if self.consecutive else slice(0, None) for offsets in self.offsets]
        return tuple((part, distances.rows_of(one) - part.start) for part, one in zip(used, self.offsets, strict=True))

    @cached_property
    def same_segments(self) -> tuple[Tensor, ...]:
        """For each of `runs`, whether query and key are of one segment, (count, Q, T)."""
        assert self.segments is not None
        queries = self.read_of(self.segments).split([run.queries for run in self.runs])
        columns = zip(self.runs, queries, self.segments.split([run.tokens for run in self.runs]), strict=True)
        return tuple(run.spread(one)[..., None] == run.keys(other)[..., None, :] for run, one, other in columns)

    @cached_property
    def runs(self) -> tuple[TokenRun, ...]:
        """The rectangles that a kernel works on, in the order of the tokens."""
        # Up to what length a sequence is worked on whole; a longer one is cut into blocks with their neighbourhoods.
        longest = max(self.lengths, default=0)
        if self.window is not None and self.consecutive and self.plain:
            longest = min(longest, block_of(self.window) + 2 * self.window)
        runs = []
        start = first = sequence = 0
        for length, group in groupby(self.lengths, key=lambda length: min(length, longest + 1)):
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
        """Return the run of local layers of tokens at `keys`, and of `queries` of those that are read."""
        assert self.window is not None
        # Sequences are numbered from 1: what fills the last block up belongs to none, and sees only its like.
        marks = replace(self.marks.at(keys), sequence=(self.positions[keys] == 0).cumsum(0))
        run = band(keys.stop - keys.start, self.window).seeing(marks, marks, self.window)
        if self.read is None:
            return run
        return replace(run, places=self.read[queries] - keys.start, queries=queries.stop - queries.start)

    def _seeing(self, run: EqualLengths, keys: slice, queries: slice, length: int) -> TokenRun:
        """Return the run of sequences of `length` tokens at `keys`, and of `queries` in `read`, with what they see."""
        window = None if self.window is None or (self.consecutive and length <= self.window + 1) else self.window
        if window is None and self.unseen is None:
            if self.order is None:
                return run
            if self.causal and self.read is None and self.plain:
                return replace(run, causal=True)
        query = key = self.marks.at(keys)
        if self.counts is not None:  # queries of some tokens; or of other tokens, which nothing is known of
            query = Marks() if self.read is None else self.marks.at(self.read[queries])
        return run.seeing(query, key, window)


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
        unseen=batch.unseen,
        turns=rotation(batch.positions, rotary, base) if rotary else None,
    )
