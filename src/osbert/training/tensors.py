"""Weights of a learner and moments of its optimiser as full tensors by name: gets and sets them, for checkpoints."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from osbert.errors import UserError
from osbert.training.distributed import Group
from osbert.training.parallel import Parallel

MEMORY = "memory."
"""Prefix of the names of buffers with the memory of streams (2, streams, ...), see models/memory.py."""


def weights(learner: nn.Module, parallel: Parallel) -> dict[str, Tensor]:
    """Return the tensors of the learner's state_dict, each once even if several modules share it.

    All processes must call; the first one gets the full tensors.
    """
    return {name: parallel.whole(tensor) for name, tensor in _saved(learner).items()}


def memory(learner: nn.Module, group: Group) -> dict[str, Tensor]:
    """Return the memory of all streams, joined from the processes, each of which has the streams of its rank.

    All processes must call; {} for a single process, whose own memory is complete.
    """
    buffers = {name: buffer for name, buffer in learner.named_buffers() if name.startswith(MEMORY)}
    if group.size == 1 or not buffers:
        return {}
    own = {name: buffer[:, group.rank :: group.size].cpu().contiguous() for name, buffer in buffers.items()}
    parts = group.gathered(own, "memory")
    whole = {name: buffer.cpu().clone() for name, buffer in buffers.items()}
    for rank, part in enumerate(parts):
        for name, rows in part.items():
            # Stream s belongs to process s % size, as in StreamLoader.make.
            whole[name][:, rank :: group.size] = rows
    return whole


def put_weights(learner: nn.Module, parallel: Parallel, tensors: Mapping[str, Tensor]) -> None:
    """Copy full tensors into the learner. Raises UserError if their names or shapes are not the learner's."""
    own = _saved(learner)
    shapes = {name: tuple(tensor.shape) for name, tensor in own.items()}
    given = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if given != shapes:
        other = sorted(name for name in {*shapes, *given} if shapes.get(name) != given.get(name))
        raise UserError(
            f"The checkpoint is of another model: {', '.join(other[:5])} differ ({len(other)} tensors).",
            code="damaged-file",
        )
    with torch.no_grad():
        for name, tensor in tensors.items():
            own[name].copy_(parallel.own(tensor, own[name]))


def moments(learner: nn.Module, parallel: Parallel, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the optimiser's tensors by names such as "exp_avg/<name of the weight>", as `weights` does."""
    return {
        f"{kind}/{name}": parallel.whole(tensor)
        for name, weight in learner.named_parameters()
        for kind, tensor in optimizer.state.get(weight, {}).items()
    }


def put_moments(
    learner: nn.Module, parallel: Parallel, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]
) -> None:
    """Restore the moments of an optimiser over the learner's weights."""
    weights = dict(learner.named_parameters())
    by_name: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        kind, _, name = key.partition("/")
        by_name.setdefault(name, {})[kind] = parallel.own(tensor, weights[name])
    names = {weight: name for name, weight in weights.items()}
    # torch's state_dict numbers weights by their order in the groups, not by name.
    ordered = [names[weight] for group in optimizer.param_groups for weight in group["params"]]
    state = {place: by_name[name] for place, name in enumerate(ordered) if name in by_name}
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _saved(learner: nn.Module) -> dict[str, Tensor]:
    saved = learner.state_dict().keys()
    named = [*learner.named_parameters(), *learner.named_buffers()]  # both skip what was already seen
    return {name: tensor.detach() for name, tensor in named if name in saved}
