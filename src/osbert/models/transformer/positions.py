"""Rotary positions: queries and keys turned by an angle that grows with the position (RoFormer, section 3.4)."""

from __future__ import annotations

import torch
from torch import Tensor

BASE = 10000.0
"""RoFormer's base: the last pair turns once in about 2 pi `base` positions."""


def rotation(positions: Tensor, width: int, base: float = BASE) -> Tensor:
    """Return turns (N, K/2, 2), cosines and sines, for `positions` (N,), heads being `width` = K wide.

    Pair i turns by position / base^(2i/K) radians (Su et al. 2021, arXiv 2104.09864, equation 15). Angles are taken in
    double precision: in float32 an angle of hundreds of radians is off by more than the sine's own rounding.
    """
    frequencies = base ** (-torch.arange(0, width, 2, dtype=torch.float64, device=positions.device) / width)  # (K/2,)
    angles = positions.to(torch.float64)[:, None] * frequencies  # (N, K/2)
    return torch.stack([angles.cos(), angles.sin()], dim=-1).float()


def neighbours(heads: int, width: int, strength: float) -> Tensor:
    """Return biases (2, H, K) of queries and keys with which some heads look at a neighbour, whatever the tokens are.

    Of four heads the first scores the token before highest, the second the one after, more sharply the higher the
    `strength`: to rotary positions a bias is a function of the distance alone. The other two are left at 0, free to see
    the whole sequence. Started at 0, all biases stay near 0 for long, since each is the other's gradient; and until
    heads find their neighbours, a model knows only which words are about.
    """
    place = torch.arange(heads) % 4
    query = torch.where(place < 2, strength, 0.0)[:, None].repeat(1, width)  # (H, K)
    turns = rotation(1 - 2 * place, width)  # a key turned by one place fits the query one place further on
    key = rotate(query[:, None], turns).squeeze(1)  # (H, K)
    return torch.stack([query, key])


def rotate(heads: Tensor, turns: Tensor) -> Tensor:
    """Return `heads` (N, H, K), its pairs (2i, 2i + 1) along K turned as complex numbers by `turns` (N, K/2, 2)."""
    pairs = heads.float().unflatten(-1, (-1, 2))  # (N, H, K/2, 2)
    turns = turns[:, None]
    if torch.compiler.is_compiling():  # torch.compile knows no complex numbers; uncompiled they are the faster way
        (x, y), (cosine, sine) = pairs.unbind(-1), turns.unbind(-1)
        turned = torch.stack([x * cosine - y * sine, x * sine + y * cosine], dim=-1)
    else:
        turned = torch.view_as_real(torch.view_as_complex(pairs) * torch.view_as_complex(turns))
    return turned.flatten(-2).to(heads.dtype)  # (N, H, K)
