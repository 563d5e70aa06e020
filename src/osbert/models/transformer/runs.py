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
"""Fewest queries in a block of a band: smaller matrix products take longer per query."""


@dataclass(frozen=True, kw_only=True)
class Marks:
    """The columns of tokens (..., T) that the attention rule of layout.py compares. None if all tokens are alike.

    `sequence`: the number of the sequence of each token, if one rectangle holds several.
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
    """Return the mask (..., 1, Q or 1, T), True if q attends to k by the rule of layout.py; None if all are True."""
    rows, columns = (
        # (..., 1, Q, 1) against (..., 1, 1, T): every comparison below broadcasts to (..., 1, Q, T).
        query.each(lambda column: column[..., None, :, None]),
        key.each(lambda column: column[..., None, None, :]),
    )
    conditions = []
    if rows.sequence is not None and columns.sequence is not None:
        conditions.append(columns.sequence == rows.sequence)
    if columns.unseen is not None:
        # Of keys alone, so it stays (..., 1, 1, T): Q is then 1, unless another condition widens it.
        conditions.append(~columns.unseen)
    if rows.order is not None and columns.order is not None:
        conditions.append(columns.order <= rows.order)
    if window is not None and rows.positions is not None and columns.positions is not None:
        conditions.append((columns.positions - rows.positions).abs() <= window)
    if not conditions:
        return None
    mask = conditions[0]
    for condition in conditions[1:]:
        mask = mask & condition
    return mask


@dataclass(frozen=True, kw_only=True)
class TokenRun:
    """Neighbouring tokens as `count` rectangles of Q queries by T keys.

    `tokens`: number of keys. `queries`: number of queries; `width`: Q. `query_cells` (queries,): the index of each
    query in the flattened rectangles; None if they fill them from the first on. `visible` (count, 1, Q or 1, T),
    queries in rows: True if q attends to k; None if no mask is needed. `causal`: the order is 0, 1, 2, ..., for which
    kernels have a mode that is faster than a mask.
    """

    count: int
    tokens: int
    queries: int
    width: int
    query_cells: Tensor | None = None
    visible: Tensor | None = None
    causal: bool = False

    def spread(self, rows: Tensor) -> Tensor:
        """Return `rows` (queries, ...) as (count, Q, ...), padded with 0."""
        every = self.count * self.width
        if self.query_cells is not None:
            # index_copy out of place, not an assignment: gradients flow back to `rows`.
            rows = rows.new_zeros(every, *rows.shape[1:]).index_copy(0, self.query_cells, rows)
        elif len(rows) < every:
            # Only a band's last block is partly filled: padding at the end suffices.
            rows = _pad_rows(rows, 0, every - len(rows))
        return rows.view(self.count, self.width, *rows.shape[1:])

    def flat(self, rectangles: Tensor) -> Tensor:
        """Return the rows (queries, ...) of `rectangles` (count, Q, ...) without padding: the inverse of `spread`."""
        rows = rectangles.flatten(0, 1)
        return rows[: self.queries] if self.query_cells is None else rows.index_select(0, self.query_cells)

    @property
    def length(self) -> int:
        """T, the number of keys in a rectangle."""
        raise NotImplementedError

    def keys(self, rows: Tensor) -> Tensor:
        """Return `rows` (tokens, ...) as (count, T, ...), a view if no padding is needed."""
        raise NotImplementedError

    def sum_keys(self, rectangles: Tensor, rows: Tensor) -> None:
        """Write to `rows` (tokens, ...) the sum over all places (count, T, ...) of each: the gradient of `keys`."""
        raise NotImplementedError

    def seeing(self, query: Marks, key: Marks, window: int | None) -> TokenRun:
        """Return the run with the mask that follows from the marks of its queries and of its tokens."""
        return replace(self, visible=sight(query.each(self.spread), key.each(self.keys), window))


class EqualLengths(TokenRun):
    """A run of `count` sequences of equal length."""

    @property
    def length(self) -> int:
        return self.tokens // self.count

    def keys(self, rows: Tensor) -> Tensor:
        return rows.view(self.count, self.length, *rows.shape[1:])

    def sum_keys(self, rectangles: Tensor, rows: Tensor) -> None:
        self.keys(rows).copy_(rectangles)


@dataclass(frozen=True, kw_only=True)
class Band(TokenRun):
    """A run of sequences of any lengths, cut into blocks of Q tokens, in which a token sees `window` to either side.

    The keys of a block are its own tokens and `window` tokens on either side, so T = Q + 2 `window`. Memory grows with
    the number of tokens, not with its square.
    """

    window: int

    @property
    def length(self) -> int:
        return self.width + 2 * self.window

    def keys(self, rows: Tensor) -> Tensor:
        """Return `rows` (tokens, ...) as (count, T, ...), a view in which neighbouring blocks overlap."""
        # Padding of `window` rows on either side, and of the last block; then overlapping windows with stride Q.
        rows = _pad_rows(rows, self.window, self.window + self.count * self.width - self.tokens)
        return rows.unfold(0, self.length, self.width).movedim(-1, 1)

    def sum_keys(self, rectangles: Tensor, rows: Tensor) -> None:
        """Write to `rows` (tokens, ...) the sum of the up to three places in `rectangles` (count, T, ...) of each."""
        # A window is no wider than a block (`block_of`), so it reaches into the neighbours alone.
        before, inside, after = rectangles.split([self.window, self.width, self.window], dim=1)
        total = inside.contiguous()
        total[1:, : self.window] += after[:-1]
        total[:-1, self.width - self.window :] += before[1:]
        rows.copy_(total.flatten(0, 1)[: self.tokens])


def equal_lengths(count: int, length: int, queries: Sequence[int] | None, device: torch.device) -> EqualLengths:
    """Return the run of `count` sequences of `length` tokens, with `queries` (count,) queries each (None: all)."""
    if queries is None:
        queries = [length] * count
    width = max(queries)
    query_cells = None
    if len(set(queries)) > 1:
        # Sequences with unequal numbers of queries: each starts at its own row of the rectangles.
        # Row r of the rectangles begins at r * width in the flattened form.
        inside = [row * width + column for row, few in enumerate(queries) for column in range(few)]
        query_cells = torch.tensor(inside, device=device)
    return EqualLengths(count=count, tokens=count * length, queries=sum(queries), width=width, query_cells=query_cells)


def block_of(window: int) -> int:
    """Return the number of queries in a block of a band."""
    return max(window, SMALLEST_BLOCK)


def band(tokens: int, window: int) -> Band:
    """Return the band of `tokens` tokens, each of which has a query."""
    width = block_of(window)
    # -(-a // b) rounds up.
    return Band(count=-(-tokens // width), tokens=tokens, queries=tokens, width=width, window=window)


def _pad_rows(rows: Tensor, before: int, after: int) -> Tensor:
    """Return `rows` (N, ...) with rows of 0 before and after."""
    # functional.pad counts dimensions from the last: no padding for all but the first.
    return functional.pad(rows, (*(0, 0) * (rows.dim() - 1), before, after))
