"""Muon: updates a matrix by the nearest orthogonal matrix to its mean gradient, so that all directions move alike.

Keller Jordan and others, "Muon: An optimizer for hidden layers in neural networks", 2024. It iterates in autocast's
precision. torch's own Muon always iterates in bf16, which is forty times slower on a CPU without bf16 instructions, and
treats the stacked weights of queries, keys and values as one matrix.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from osbert.training.adamw import PlainAdamW
from osbert.training.distributed import is_dealt, shard_like

Curve = tuple[float, float, float]
JORDAN = (3.4445, -4.7750, 2.0315)
"""Coefficients of x, x^3 and x^5 in the polynomial that, iterated, maps every singular value to about 1."""
CURVES: dict[int, tuple[Curve, ...]] = {
    3: ((8.0934, -23.6204, 17.4462), (3.6366, -2.7219, 0.5365), (2.6613, -1.9772, 0.4526)),
    5: (JORDAN,) * 5,
}
"""The polynomials by their number. Of the three, each is the best approximation to 1, by its largest error, on the
interval to which those before map [0.01, 1] (`benchmarks/muon.py curves` computes them): every singular value above
0.0095 of the Frobenius norm comes to between 0.70 and 1.27, with five above 0.0016 to between 0.68 and 1.21."""
MOMENTUM = 0.95
"""Decay of the running mean of a matrix's gradients."""


class Muon(PlainAdamW):
    """AdamW, but Muon for parameter groups with "parts": the number of matrices stacked in each weight.

    It is one optimiser, so that checkpoints have one set of groups and moments.
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        groups = self.param_groups
        try:
            # AdamW's own step must not see Muon's groups.
            self.param_groups = [group for group in groups if "parts" not in group]
            super().step(closure)
        finally:
            self.param_groups = groups
        for group in groups:
            if "parts" in group:
                self._move(group)

    def _move(self, group: dict[str, Any]) -> None:
        for weight in group["params"]:
            if weight.grad is None:
                continue
            state = self.state[weight]
            if not state:  # what AdamW keeps, as far as it serves here
                state |= {"step": torch.zeros((), dtype=torch.float32), "exp_avg": torch.zeros_like(weight)}
            state["step"] += 1
            mean = state["exp_avg"].lerp_(weight.grad, 1 - MOMENTUM)
            ahead = weight.grad.lerp(mean, MOMENTUM)  # as Nesterov: the mean as it will be
            whole = ahead.full_tensor() if is_dealt(ahead) else ahead  # of a sharded matrix all processes must call
            parts = whole.unflatten(0, (group["parts"], -1))  # (P, R, C)
            rows, columns = parts.shape[1:]
            weight.mul_(1 - group["lr"] * group["weight_decay"])
            # Scales tall matrices, so that the change of the outputs has the same size for all shapes.
            rate = group["lr"] * max(1.0, rows / columns) ** 0.5
            weight.add_(shard_like(orthogonal(parts, group.get("iterations", 5)).flatten(0, 1), weight), alpha=-rate)


def orthogonal(matrices: Tensor, iterations: int = 5) -> Tensor:
    """Return approximately the nearest orthogonal matrix to each of `matrices` (P, R, C): U V' for U S V'.

    Most singular values of the result are between 0.7 and 1.27, which trains as well as 1 and needs fewer `iterations`,
    a key of CURVES.
    """
    tall = matrices.shape[1] > matrices.shape[2]
    # The smaller dimension first: the squares below are then as small as possible.
    lying = matrices.mT if tall else matrices
    # The Frobenius norm bounds the largest singular value, so all start in [0, 1], where the iteration converges.
    lying = lying / lying.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    kind = lying.device.type
    if torch.is_autocast_enabled(kind):
        lying = lying.to(torch.get_autocast_dtype(kind))
    if kind == "cpu":  # there products of batches are slower than those of matrices: by half for S in bf16
        moved = torch.stack([_iterate(matrix, CURVES[iterations]) for matrix in lying.unbind()])
    else:
        moved = _iterate(lying, CURVES[iterations])
    return (moved.mT if tall else moved).to(matrices.dtype)


def _iterate(matrix: Tensor, curves: Iterable[Curve]) -> Tensor:
    """Return X after a step of Newton-Schulz for each curve, X <- a X + (b S + c S S) X with S = X X'.

    `matrix`: X, (R, C), or a batch of such.
    """
    add = torch.addmm if matrix.ndim == 2 else torch.baddbmm
    for a, b, c in curves:
        squares = matrix @ matrix.mT  # (R, R)
        matrix = add(matrix, add(squares, squares, squares, beta=b, alpha=c), matrix, beta=a)
    return matrix
