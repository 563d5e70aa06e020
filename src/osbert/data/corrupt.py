"""Corrupts pieces: which positions are chosen, and what stands there instead. Small pure functions on arrays.

Objectives put these together: which positions x what the input shows x what is asked for.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Booleans, Integers
from osbert.text.tokenizer import Tokenizer


def quota(tokens: int, *, rate: float, limit: int = 0) -> int:
    """Return how many of `tokens` positions to choose: the rate's share, rounded, at least 1, at most `limit` unless 0.

    google-research/bert counts the specials among the tokens, so 128 tokens at 15% give 19.
    """
    count = max(1, round(tokens * rate))
    return min(count, limit) if limit else count


def choose(special: Booleans, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return `count` positions (count,), ascending and each as likely as any other, of those that are not special.

    Fewer than `count` when there are not as many.
    """
    keys = rng.random(len(special), dtype=np.float32)
    keys[special] = 2.0  # beyond every other key: last in line
    count = min(count, len(special) - int(np.count_nonzero(special)))
    if count == len(special):
        return np.arange(count)
    index = keys.argpartition(count)[:count]
    index.sort()
    return index


def mixed(
    pieces: Integers, *, mask: float, random: float, tokenizer: Tokenizer, rng: np.random.Generator
) -> NDArray[np.int32]:
    """Return what stands for `pieces` (M,) in the input: [MASK], a random piece, or the piece itself.

    `mask` and `random` are the shares of the first two; a random piece is any of the vocabulary (section 3.1, Table 8).
    """
    draws, places = rng.random((2, len(pieces)))
    shown = pieces.astype(np.int32)
    np.putmask(shown, draws < mask + random, (places * len(tokenizer)).astype(np.int32))
    np.putmask(shown, draws < mask, tokenizer.mask)
    return shown
