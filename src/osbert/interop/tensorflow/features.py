"""The JSON lines of google-research/bert's extract_features.py: a line a text, every token with its layers' numbers."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

DECIMALS = 6
"""Places behind the point that they keep."""


def feature_line(index: int, tokens: Sequence[str], states: NDArray[np.floating], layers: Sequence[int]) -> str:
    """Return the line of one text, without its line end.

    `index`: the text's place, from 0. `tokens` (n,): its pieces as they are spelt. `states` (n, layers, D), of the
    layers as `layers` numbers them, -1 for the last.
    """
    numbers = np.round(states.astype(np.float64), DECIMALS).tolist()
    features = [
        {
            "token": token,
            "layers": [{"index": layer, "values": values} for layer, values in zip(layers, rows, strict=True)],
        }
        for token, rows in zip(tokens, numbers, strict=True)
    ]
    return json.dumps({"linex_index": index, "features": features}, allow_nan=False)
