"""torch's AdamW without its torch.compile guards, and with gradients of a few rows of a table.

The guards' imports take more than a second. Fine-tuning reads some hundred pieces a step, and the table of all of them
may hold most weights of a multilingual model: torch writes, limits and adds up a gradient of the whole table.
"""

from __future__ import annotations

from inspect import unwrap
from typing import Any

import torch
from torch import Tensor, nn

LARGE = 10_000
"""Number of rows from which a table has gradients of the rows that were read."""
MAXIMUM_SPARSE_SHARE = 0.15
"""Largest share of a table's rows that are updated apart: copying more costs as much as updating all. It bounds the
copies to 0.6 of the table."""


def give_row_gradients(learner: nn.Module) -> None:
    """Make the gradients of large tables sparse: of the rows that were read, unless an output layer names the table.

    A frozen table has none. Output layers name the table that they may share in `tied` (models/heads/predictions.py).
    """
    shared = [getattr(module, "tied", None) for module in learner.modules()]
    whole = {table for tables in shared if isinstance(tables, tuple) for table in tables}
    for module in learner.modules():
        if not isinstance(module, nn.Embedding) or module.num_embeddings < LARGE or module in whole:
            continue
        if module.weight.requires_grad:
            module.sparse = True
            # One row for each that the passes so far have read, not for each token: it takes less memory.
            module.weight.register_post_accumulate_grad_hook(_join_rows)


def _join_rows(weight: Tensor) -> None:
    if weight.grad is not None and weight.grad.is_sparse:
        weight.grad = weight.grad.coalesce()


class PlainAdamW(torch.optim.AdamW):
    """AdamW (Loshchilov and Hutter 2019, algorithm 2) whose methods are torch's own without their decorators.

    The decorators matter only for compiled optimisers, which osbert does not use. At the first call they import
    torch._dynamo, which takes as long as importing torch: most of the time of a small run.

    A matrix with a sparse gradient of one pass ends in the same bits as with a dense one, of several passes to
    rounding: rows without any gradient so far only decay.
    """

    add_param_group = unwrap(torch.optim.AdamW.add_param_group)
    state_dict = unwrap(torch.optim.AdamW.state_dict)
    zero_grad = unwrap(torch.optim.AdamW.zero_grad)
    _load = unwrap(torch.optim.AdamW.load_state_dict)
    _step = torch.no_grad()(unwrap(torch.optim.AdamW.step))

    def __init__(self, *given: Any, **settings: Any) -> None:
        super().__init__(*given, **settings)
        self._moving: dict[Tensor, Tensor] = {}
        """Of each matrix with sparse gradients: which of its rows (V,) have had one, so their moments are not 0."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the moments of all weights."""
        self._moving.clear()
        self._load(state_dict)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update all weights that have a gradient."""
        sparse = [
            (group, weight, weight.grad)
            for group in self.param_groups
            for weight in group["params"]
            if weight.grad is not None and weight.grad.is_sparse
        ]
        for weight in [*self._moving]:
            if weight.grad is not None and not weight.grad.is_sparse:
                del self._moving[weight]  # such a gradient moves all rows
        for _, weight, _ in sparse:
            weight.grad = None  # torch's own step must not see it
        self._step(closure)
        for group, weight, gradient in sparse:
            weight.grad = gradient
            self._update_rows(group, weight, gradient.coalesce())

    def _update_rows(self, group: dict[str, Any], weight: Tensor, gradient: Tensor) -> None:
        """Update `weight` (V, D) by a sparse gradient, as torch does by a dense one."""
        [rows], values = gradient.indices(), gradient.values()  # (R,) rising, (R, D)
        state = self.state[weight]
        if not state:
            state |= {"step": torch.zeros((), dtype=torch.float32), "exp_avg": torch.zeros_like(weight)}
            state["exp_avg_sq"] = torch.zeros_like(weight)
        if weight not in self._moving:  # a resumed run has moments at its first step, and so has one after a dense step
            self._moving[weight] = (state["exp_avg"] != 0).any(dim=1) | (state["exp_avg_sq"] != 0).any(dim=1)
        self._moving[weight][rows] = True
        active_rows = self._moving[weight].nonzero().squeeze(1)  # (A,) rising
        state["step"] += 1
        columns = [weight, state["exp_avg"], state["exp_avg_sq"]]
        if len(active_rows) > MAXIMUM_SPARSE_SHARE * len(weight):
            _adamw(group, columns, gradient.to_dense(), state["step"])
            return
        apart = [column.index_select(0, active_rows) for column in columns]  # (A, D)
        every = values.new_zeros(apart[0].shape).index_copy_(0, torch.searchsorted(active_rows, rows), values)
        _adamw(group, apart, every, state["step"])
        weight.mul_(1 - group["lr"] * group["weight_decay"])
        for column, new_rows in zip(columns, apart):
            column.index_copy_(0, active_rows, new_rows)


def _adamw(group: dict[str, Any], columns: list[Tensor], gradient: Tensor, step: Tensor) -> None:
    """Update weights and their two moments in place; `step` counts this update."""
    weights, means, squares = columns
    torch._fused_adamw_(
        [weights],
        [gradient],
        [means],
        [squares],
        [],
        [step],
        amsgrad=False,
        lr=group["lr"],
        beta1=group["betas"][0],
        beta2=group["betas"][1],
        weight_decay=group["weight_decay"],
        eps=group["eps"],
        maximize=False,
    )
