"""A random part of a text's pieces that a model is to predict: masked, or from the pieces before them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from osbert.data.example import Example, Target


def with_predicted_part(
    example: Example, target: str, fraction: float, rng: np.random.Generator, *, mask: int | None
) -> Example | None:
    """Return a text of which a fraction of the pieces, at least one, are labels of `target`; None for one without any.

    `mask`: the piece that stands in their place, None for a left-to-right model, which predicts each at the token
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
    made = Target(labels=example.ids[chosen].astype(np.int64), index=chosen - int(mask is None))
    return replace(example, ids=ids, targets={target: made})
