"""Runs: the rectangles of queries and keys that are cut from the flat tokens of a batch for an attention kernel.

A run is some neighbouring sequences. H heads are K wide; Q and T are the width of the rectangles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

SMALLEST_BLOCK = 32
"""Fewest queries in a block of a band: products of smaller blocks take longer for each query."""


@dataclass(frozen=True, kw_only=True)
class Marks:
    """What the rule of sight reads of tokens (..., T): see layout.py. None: 0 everywhere, or False.

    `sequence`: which of several sequences each token belongs to, where they lie in one rectangle.
    """

    positions: Tensor
    order: Tensor | None = None
    unseen: Tensor | None = None
    sequence: Tensor | None = None

    def each(self, change: Callable[[Tensor], Tensor]) -> Marks:
        """Return the marks with `change` applied to every column."""
        columns = {name: None if column is None else change(column) for name, column in vars(self).items()}
        return Marks(**columns)  # type: ignore[arg-type]

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
    if window is not None:
        conditions.append((columns.positions - rows.positions).abs() <= window)
    if not conditions:
        return None
    found = conditions[0]
    for condition in conditions[1:]:
        found = found & condition
    return found


@dataclass(frozen=True, kw_only=True)
class EqualLengths:
    """`count` neighbouring sequences of `length` = T tokens each.

    `visible` (count, 1, Q or 1, T), queries in rows: True where q sees k; None where a kernel needs no mask. `causal`:
    the order is 0, 1, 2, ..., for which kernels have a faster way than a mask. `queries`: how many tokens of each
    sequence are read, () for all; the rectangle is as wide as most of them, and `places` says where in it the queries
    go, None if they fill it.
    """

    count: int
    length: int
    visible: Tensor | None = None
    causal: bool = False
    queries: tuple[int, ...] = ()
    places: Tensor | None = None

    @property
    def tokens(self) -> int:
        """Return how many tokens the run holds."""
        return self.count * self.length

    @property
    def rows(self) -> int:
        """Return how many queries the run holds."""
        return sum(self.queries) if self.queries else self.tokens

    @property
    def width(self) -> int:
        """Return Q."""
        return max(self.queries) if self.queries else self.length

    def rectangle(self, queries: Tensor) -> Tensor:
        """Return queries (rows, H, K) as (count, H, Q, K)."""
        return _rectangle(queries, self.places, self.count, self.width).transpose(1, 2)

    def keys(self, tokens: Tensor) -> Tensor:
        """Return keys or values (tokens, H, K) as (count, H, T, K)."""
        return tokens.unflatten(0, (self.count, self.length)).transpose(1, 2)

    def flat(self, mixed: Tensor) -> Tensor:
        """Return what the queries (count, H, Q, K) are given as (rows, H, K)."""
        return _flat(mixed, self.places, self.rows)


@dataclass(frozen=True, kw_only=True)
class Band:
    """`tokens` neighbouring tokens of several sequences as `count` blocks of `block` = Q queries.

    The keys of a block are its own tokens and `window` to either side, so T = Q + 2 `window` and memory grows with the
    number of tokens, not with its square. `visible` (count, 1, Q, T). `places`: which tokens are read, None for all.
    """

    tokens: int
    block: int
    window: int
    visible: Tensor
    places: Tensor | None = None
    causal: bool = False

    @property
    def rows(self) -> int:
        """Return how many queries the run holds."""
        return self.tokens if self.places is None else len(self.places)

    @property
    def count(self) -> int:
        """Return how many blocks there are."""
        return -(-self.tokens // self.block)

    def rectangle(self, queries: Tensor) -> Tensor:
        """Return queries (rows, H, K) as (count, H, Q, K), 0 for a token that is not read."""
        return _rectangle(queries, self.places, self.count, self.block).transpose(1, 2)

    def keys(self, tokens: Tensor) -> Tensor:
        """Return keys or values (tokens, H, K) as (count, H, T, K): neighbouring blocks share memory."""
        return _neighbourhoods(tokens, self.block, self.window).movedim(-1, 2)

    def flat(self, mixed: Tensor) -> Tensor:
        """Return what the queries (count, H, Q, K) are given as (rows, H, K)."""
        return _flat(mixed, self.places, self.tokens)


def block_of(window: int) -> int:
    """Return how many queries are in a block of a band of `window` tokens to either side."""
    return max(window, SMALLEST_BLOCK)


def band(marks: Marks, window: int, places: Tensor | None) -> Band:
    """Return the band of tokens with `marks` (N,), whose positions are 0, 1, 2, ... in every sequence.

    `places` (R,): the tokens that are read, None for all.
    """
    tokens, block = len(marks.positions), block_of(window)
    # Sequences are numbered from 1: what fills the last block up belongs to none, and sees only its like.
    marks = Marks(**vars(marks) | {"sequence": (marks.positions == 0).cumsum(0)})
    query = marks.each(lambda column: _rectangle(column, None, -(-tokens // block), block))
    visible = sight(query, marks.each(lambda column: _neighbourhoods(column, block, window)), window)
    assert visible is not None
    return Band(tokens=tokens, block=block, window=window, visible=visible, places=places)


def queries_in(rows: Tensor, run: EqualLengths) -> Tensor:
    """Return a column of a run's queries (rows,) as (count, Q), 0 in what fills the rectangle up."""
    return _rectangle(rows, run.places, run.count, run.width)


def places_of(queries: tuple[int, ...], device: torch.device) -> Tensor | None:
    """Return where queries go in a rectangle that is as wide as most of them, or None if they fill it."""
    if len(set(queries)) < 2:
        return None
    most = max(queries)
    places = [row * most + place for row, count in enumerate(queries) for place in range(count)]
    return torch.tensor(places, device=device)


def _rectangle(rows: Tensor, places: Tensor | None, count: int, width: int) -> Tensor:
    """Return `rows` (R, ...) at `places` (R,) of `count` times `width`, in their order without: (count, width, ...)."""
    if places is not None:
        rows = rows.new_zeros(count * width, *rows.shape[1:]).index_copy(0, places, rows)
    elif len(rows) < count * width:
        rows = _padded(rows, 0, count * width - len(rows))
    return rows.unflatten(0, (count, width))


def _flat(mixed: Tensor, places: Tensor | None, rows: int) -> Tensor:
    """Return (rows, H, K) of (count, H, Q, K)."""
    mixed = mixed.transpose(1, 2).flatten(0, 1)  # (count * Q, H, K)
    return mixed[:rows] if places is None else mixed.index_select(0, places)


def _neighbourhoods(rows: Tensor, block: int, window: int) -> Tensor:
    """Return for each block of `rows` (N, ...) a view of it and `window` rows to either side, 0 beyond the ends.

    The neighbourhood is the last dimension: (count, ..., block + 2 window).
    """
    beyond = -len(rows) % block
    return _padded(rows, window, window + beyond).unfold(0, block + 2 * window, block)


def _padded(rows: Tensor, before: int, after: int) -> Tensor:
    """Return `rows` (N, ...) with rows of 0 before and after."""
    return functional.pad(rows, (*(0, 0) * (rows.dim() - 1), before, after))
