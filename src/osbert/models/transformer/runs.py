"""Runs: the rectangles of queries and keys that are cut from the flat tokens of a batch for an attention kernel.

A run is some neighbouring sequences. H heads are K wide; Q and T are the width of the rectangles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

SMALLEST_BLOCK = 32
"""Fewest queries in a block of a band: products of smaller blocks take longer for each query."""


@dataclass(frozen=True, kw_only=True)
class Marks:
    """What the rule of sight reads of tokens (..., T): see layout.py. None where it is the same for all.

    `sequence`: which of several sequences each token belongs to, where they lie in one rectangle.
    """

    positions: Tensor | None = None
    order: Tensor | None = None
    unseen: Tensor | None = None
    sequence: Tensor | None = None

    def each(self, change: Callable[[Tensor], Tensor]) -> Marks:
        """Return the marks with `change` applied to every column."""
        columns = {name: None if column is None else change(column) for name, column in vars(self).items()}
        return Marks(**columns)

    def at(self, tokens: slice | Tensor) -> Marks:
        """Return the marks of some tokens."""
        return self.each(lambda column: column[tokens])


def sight(query: Marks, key: Marks, window: int | None = None) -> Tensor | None:
    """Return (..., 1, Q or 1, T), True where q sees k, by the rule in layout.py; None where all see all."""
    rows, columns = (
        query.each(lambda column: column[..., None, :, None]),
        key.each(lambda column: column[..., None, None, :]),
    )
    conditions = []
    if rows.sequence is not None and columns.sequence is not None:
        conditions.append(columns.sequence == rows.sequence)
    if columns.unseen is not None:
        conditions.append(~columns.unseen)
    if rows.order is not None and columns.order is not None:
        conditions.append(columns.order <= rows.order)
    if window is not None and rows.positions is not None and columns.positions is not None:
        conditions.append((columns.positions - rows.positions).abs() <= window)
    if not conditions:
        return None
    found = conditions[0]
    for condition in conditions[1:]:
        found = found & condition
    return found


@dataclass(frozen=True, kw_only=True)
class TokenRun:
    """Neighbouring tokens as `count` rectangles of Q queries by T keys.

    `tokens`: how many keys the run has. `queries`: how many queries; `width`: Q. `places` (queries,): where they go in
    the rectangles, None for one after the other from the first. `visible` (count, 1, Q or 1, T), queries in rows: True
    where q sees k; None where a kernel needs no mask. `causal`: the order is 0, 1, 2, ..., for which kernels have a
    faster way than a mask.
    """

    count: int
    tokens: int
    queries: int
    width: int
    places: Tensor | None = None
    visible: Tensor | None = None
    causal: bool = False

    def spread(self, rows: Tensor) -> Tensor:
        """Return `rows` (queries, ...) as (count, Q, ...), 0 where no query is."""
        every = self.count * self.width
        if self.places is not None:
            rows = rows.new_zeros(every, *rows.shape[1:]).index_copy(0, self.places, rows)
        elif len(rows) < every:
            rows = _padded(rows, 0, every - len(rows))
        return rows.unflatten(0, (self.count, self.width))

    def flat(self, rectangles: Tensor) -> Tensor:
        """Return the rows (queries, ...) of (count, Q, ...)."""
        rows = rectangles.flatten(0, 1)
        return rows[: self.queries] if self.places is None else rows.index_select(0, self.places)

    def keys(self, rows: Tensor) -> Tensor:
        """Return `rows` (tokens, ...) as (count, T, ...)."""
        raise NotImplementedError

    def seeing(self, query: Marks, key: Marks, window: int | None) -> TokenRun:
        """Return the run with what its queries see, from the marks of its queries and of its tokens."""
        return replace(self, visible=sight(query.each(self.spread), key.each(self.keys), window))


class EqualLengths(TokenRun):
    """A run of `count` sequences of equal length."""

    def keys(self, rows: Tensor) -> Tensor:
        """Return `rows` (tokens, ...) as (count, T, ...)."""
        return rows.unflatten(0, (self.count, -1))


@dataclass(frozen=True, kw_only=True)
class Band(TokenRun):
    """A run of sequences of any lengths, cut into blocks of Q tokens, in which a token sees `window` to either side.

    The keys of a block are its own tokens and `window` before and after them, so T = Q + 2 `window`: memory grows with
    the number of tokens, not with its square.
    """

    window: int

    def keys(self, rows: Tensor) -> Tensor:
        """Return `rows` (tokens, ...) as (count, T, ...), a view in which neighbouring blocks share what they see."""
        rows = _padded(rows, self.window, self.window + self.count * self.width - self.tokens)
        return rows.unfold(0, self.width + 2 * self.window, self.width).movedim(-1, 1)


def equal_lengths(count: int, length: int, queries: Sequence[int] | None, device: torch.device) -> EqualLengths:
    """Return the run of `count` sequences of `length` tokens, of which each has a query, or `queries` (count,) have."""
    if queries is None:
        queries = [length] * count
    width = max(queries)
    places = None
    if len(set(queries)) > 1:
        inside = [row * width + place for row, few in enumerate(queries) for place in range(few)]
        places = torch.tensor(inside, device=device)
    return EqualLengths(count=count, tokens=count * length, queries=sum(queries), width=width, places=places)


def block_of(window: int) -> int:
    """Return how many queries are in a block of a band."""
    return max(window, SMALLEST_BLOCK)


def band(tokens: int, window: int) -> Band:
    """Return the band of `tokens` tokens, which all have a query."""
    width = block_of(window)
    return Band(count=-(-tokens // width), tokens=tokens, queries=tokens, width=width, window=window)


def _padded(rows: Tensor, before: int, after: int) -> Tensor:
    """Return `rows` (N, ...) with rows of 0 before and after."""
    return functional.pad(rows, (*(0, 0) * (rows.dim() - 1), before, after))
