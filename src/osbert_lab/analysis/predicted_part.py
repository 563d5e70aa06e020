"""Examples in which a random fraction of the pieces is to be predicted, masked or left to right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from osbert.data.example import Example, Target


def with_predicted_part(
    example: Example, target: str, fraction: float, rng: np.random.Generator, *, mask: int | None
) -> Example | None:
    """Return a text with a fraction of its pieces, at least one, as labels of `target`; None if it has no pieces.

    `mask`: the id that replaces these pieces. None for a left-to-right model, which predicts each piece at the token
    before it.
    """
    tokens = np.flatnonzero(~example.special)
    if mask is None:
        tokens = tokens[tokens > 0]  # the first token has none before it
    if not len(tokens):
        return None
    chosen = np.sort(rng.choice(tokens, max(1, round(fraction * len(tokens))), replace=False))
    ids = example.ids.copy()
    if mask is not None:
        ids[chosen] = mask
    # Left to right, the state that predicts a piece is that of the token before it.
    piece_target = Target(labels=example.ids[chosen].astype(np.int64), index=chosen - int(mask is None))
    return replace(example, ids=ids, targets={target: piece_target})
