"""Initial weights: truncated normals for encoders, untruncated normals for the output layers of heads."""

from __future__ import annotations

import torch
from torch import Tensor, nn


@torch.no_grad()
def initialise(module: nn.Module, deviation: float) -> None:
    """Initialise all weights of `module`: N(0, deviation) truncated at two deviations, biases 0, norms 1.

    Recurrent layers have torch's initial weights: uniform in [-1 / sqrt(width), 1 / sqrt(width)].
    """
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            _draw_truncated(part.weight, deviation)
        elif isinstance(part, nn.LayerNorm | nn.RMSNorm):
            nn.init.ones_(part.weight)
        elif isinstance(part, nn.LSTM | nn.LSTMCell):
            part.reset_parameters()
        if isinstance(part, nn.Linear | nn.LayerNorm) and part.bias is not None:
            nn.init.zeros_(part.bias)


@torch.no_grad()
def initialise_scores(layer: nn.Linear, deviation: float) -> None:
    """Initialise the output layer of a head: N(0, deviation), biases 0, as in transformers.

    google-research/bert truncates this normal, too, at two deviations, which reduces its standard deviation to 0.88 of
    the setting; with it taggers learned later in the few steps of fine-tuning (docs/results.md).
    """
    nn.init.normal_(layer.weight, 0, deviation)
    nn.init.zeros_(layer.bias)


def _draw_truncated(weight: Tensor, deviation: float) -> None:
    """Draw from the normal, and redraw values beyond two deviations; trunc_normal_ takes several times longer."""
    weight.normal_(0, deviation)
    # About 5 % lie outside; each round redraws only those that still do.
    outside = torch.nonzero(weight.view(-1).abs() > 2 * deviation).view(-1)
    while len(outside):
        drawn = torch.empty(len(outside), dtype=weight.dtype, device=weight.device).normal_(0, deviation)
        weight.view(-1)[outside] = drawn
        outside = outside[drawn.abs() > 2 * deviation]
