"""Positions in attention: rotated queries and keys (RoFormer), and scores of content and distance (DeBERTa).

Rotary positions rotate queries and keys by an angle proportional to the position (Su et al. 2021, section 3.4).
Disentangled attention (He et al. 2021, section 3.1, equation 4): the score of query i and key j is
(q_i . k_j + q_i . r^k_d + k_j . r^q_d) / sqrt(3 K), where r^k_d and r^q_d are projections of the vector of their
distance d = i - j. Distances beyond half of the buckets share vectors, on a logarithmic scale (DeBERTa's second
version).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

BASE = 10000.0
"""RoFormer's base. The last pair makes one turn in about 2 pi `base` positions."""


def rotation(positions: Tensor, width: int, base: float = BASE) -> Tensor:
    """Return cosines and sines (N, K/2, 2) of the angles of `positions` (N,), for heads of width K = `width`.

    Pair i turns by position / base^(2i/K) radians (Su et al. 2021, arXiv 2104.09864, equation 15). Angles are computed
    in double precision: in float32 the error of an angle of hundreds of radians exceeds the rounding of its sine.
    """
    frequencies = base ** (-torch.arange(0, width, 2, dtype=torch.float64, device=positions.device) / width)  # (K/2,)
    angles = positions.to(torch.float64)[:, None] * frequencies  # (N, K/2)
    return torch.stack([angles.cos(), angles.sin()], dim=-1).float()


def neighbours(heads: int, width: int, strength: float) -> Tensor:
    """Return biases (2, H, K) of queries and keys that make some heads attend to a neighbour, whatever the tokens are.

    In each group of four heads the first prefers the previous token and the second the next one, more sharply with
    higher `strength`: with rotary positions the product of two biases depends on the distance alone. The other two
    start at 0. Biases that all start at 0 stay near 0 for long, since each is the factor of the other's gradient; and
    until some heads attend to neighbours, a model only sees a bag of words.
    """
    # 0: previous token, 1: next token, 2 and 3: no preference.
    kind = torch.arange(heads) % 4
    # Equal entries, so that all pairs of a head are in phase at the preferred distance.
    query = ((kind < 2).float() * strength)[:, None].repeat(1, width)  # (H, K)
    turns = rotation(1 - 2 * kind, width)  # a key rotated by one position matches the query one position later
    key = rotate(query[:, None], turns).squeeze(1)  # (H, K)
    return torch.stack([query, key])


def rotate(heads: Tensor, turns: Tensor) -> Tensor:
    """Return `heads` (N, H, K), its pairs (2i, 2i + 1) along K turned as complex numbers by `turns` (N, K/2, 2)."""
    # In float32: torch has no bf16 complex numbers, and the result is rounded only once.
    pairs = heads.float().unflatten(-1, (-1, 2))  # (N, H, K/2, 2)
    turns = turns[:, None]
    if torch.compiler.is_compiling():  # torch.compile does not support complex numbers, which are faster uncompiled
        (x, y), (cosine, sine) = pairs.unbind(-1), turns.unbind(-1)
        turned = torch.stack([x * cosine - y * sine, x * sine + y * cosine], dim=-1)
    else:
        turned = torch.view_as_real(torch.view_as_complex(pairs) * torch.view_as_complex(turns))
    return turned.flatten(-2).to(heads.dtype)  # (N, H, K)


TERMS = 3
"""Number of terms of a score. Scores are divided by sqrt(TERMS * head width)."""


@dataclass(kw_only=True, eq=False)
class Distances:
    """The vectors of the distances that can occur in a batch.

    `vectors` (W, D). `rows` (2 F + 1,), on the CPU: the row of the vector of each distance from -F to F.
    Larger distances use the vector of F or -F.
    """

    vectors: Tensor
    rows: Tensor

    def rows_of(self, distances: Tensor) -> Tensor:
        """Return the row (...) of the vector of each of `distances` (...)."""
        farthest = len(self.rows) // 2
        # Index F is distance 0; distances beyond F are clamped to it.
        return self.rows.to(distances.device)[distances.clamp(-farthest, farthest) + farthest]

    def row_range(self, least: int, most: int) -> slice:
        """Return the range of rows that the distances from `least` to `most` use."""
        # Rows ascend with the distance, so the two extremes bound them.
        first, last = self.rows_of(torch.tensor([least, most])).tolist()
        return slice(first, last + 1)


def distance_rows(buckets: int, farthest: int) -> Tensor:
    """Return the rows (2 F + 1,) of the table of vectors for each distance from -F = -`farthest` to F.

    The table has two rows for each of the `buckets`; if `buckets` is 0, for each distance up to F.

    >>> distance_rows(0, 2).tolist()
    [0, 1, 2, 3, 3]
    >>> distance_rows(4, 8).tolist()
    [0, 1, 1, 1, 1, 1, 2, 3, 4, 5, 6, 7, 7, 7, 7, 7, 7]
    """
    distances = torch.arange(-farthest, farthest + 1)
    # The table has 2 * span rows; row `span` is distance 0.
    span = buckets or farthest
    if not buckets:
        return (distances + span).clamp(0, 2 * span - 1)
    middle = buckets // 2  # distances up to this have buckets of their own
    # In float32 and in this order of steps, as in the published code: at a bucket's edge rounding decides.
    ratios = distances.abs().clamp_min(middle).float() / middle
    # Logarithmic from `middle` to `farthest`: middle - 1 further buckets on either side.
    steps = ratios.log() / torch.tensor((farthest - 1) / middle, dtype=torch.float32).log() * (middle - 1)
    signed_buckets = torch.where(
        distances.abs() <= middle, distances, (steps.ceil() + middle).long() * distances.sign()
    )
    return (signed_buckets + span).clamp(0, 2 * span - 1)


def score_distances(query: Tensor, key: Tensor, of_distances: Sequence[Tensor], index: Tensor) -> Tensor:
    """Return the bias of distances (B, H, Q, T), divided by sqrt(K) as the scores are.

    `query` (B, H, Q, K), `key` (B, H, T, K). `of_distances`: the queries and the keys of C vectors of distances,
    each (C, H, K). `index` (B or 1, Q, T): which of the C belongs to a query and a key.
    """
    return gather_scores(vector_scores(query, of_distances[1]), vector_scores(key, of_distances[0]), index)


def vector_scores(rows: Tensor, vectors: Tensor) -> Tensor:
    """Return the scores (B, H, R, C), divided by sqrt(K), of `rows` (B, H, R, K) and `vectors` (C, H, K)."""
    kind = torch.float32 if rows.device.type == "cpu" else rows.dtype  # as `kernels.fastest` attends
    with torch.autocast(rows.device.type, enabled=False):
        return rows.to(kind) @ (vectors.permute(1, 2, 0).to(kind) * (1 / math.sqrt(rows.shape[-1])))  # @ (H, K, C)


def gather_scores(by_query: Tensor, by_key: Tensor, index: Tensor) -> Tensor:
    """Return the bias (B, H, Q, T): the scores of each query and key with the vector of their distance.

    `by_query` (B, H, Q, C), `by_key` (B, H, T, C): scores of all C vectors, of which `index` (B or 1, Q, T) picks one.
    That is less work than a product of one vector for each query and key.
    """
    index = index[:, None].expand(*by_query.shape[:3], by_key.shape[2])
    # Keys are the rows of `by_key`, so the index is transposed, and the result back again.
    return by_query.gather(-1, index) + by_key.gather(-1, index.transpose(-1, -2)).transpose(-1, -2)
