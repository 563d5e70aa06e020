"""The JSON lines of google-research/bert's extract_features.py: a line per text, with each token's hidden states."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

DECIMALS = 6
"""Decimal places of the numbers, as in extract_features.py."""


def feature_line(index: int, tokens: Sequence[str], states: NDArray[np.floating], layers: Sequence[int]) -> str:
    """Return the line of one text, without its line end.

    `index`: the number of the text, from 0. `tokens` (n,): its pieces. `states` (n, layers, D): the hidden states of
    the layers with the numbers `layers`, -1 for the last.
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
