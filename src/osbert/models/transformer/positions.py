"""Rotary positions: queries and keys are rotated by an angle proportional to the position (RoFormer, section 3.4)."""

from __future__ import annotations

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
