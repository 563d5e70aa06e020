"""Weights of a learner and moments of its optimiser as full tensors by name: gets and sets them, for checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from osbert.errors import UserError
from osbert.training.checkpoint import MOMENT, WEIGHT, below
from osbert.training.distributed import Group, Parallel

MEMORY = "memory."
"""Prefix of the names of buffers with the memory of streams (2, streams, ...), see models/memory.py."""


def weights(learner: nn.Module, parallel: Parallel) -> dict[str, Tensor]:
    """Return the tensors of the learner's state_dict, each once even if several modules share it.

    All processes must call; the first one gets the full tensors.
    """
    return {name: parallel.whole(tensor) for name, tensor in _state_tensors(learner).items()}


def memory(learner: nn.Module, group: Group) -> dict[str, Tensor]:
    """Return the memory of all streams, joined from the processes, each of which has the streams of its rank.

    All processes must call; {} for a single process, whose own memory is complete.
    """
    buffers = {name: buffer for name, buffer in learner.named_buffers() if name.startswith(MEMORY)}
    if group.size == 1 or not buffers:
        return {}
    local_memory = {name: buffer[:, group.rank :: group.size].cpu().contiguous() for name, buffer in buffers.items()}
    parts = group.gather(local_memory, "memory")
    whole = {name: buffer.cpu().clone() for name, buffer in buffers.items()}
    for rank, part in enumerate(parts):
        for name, rows in part.items():
            # Stream s belongs to process s % size, as in StreamLoader.make.
            whole[name][:, rank :: group.size] = rows
    return whole


def shards(learner: nn.Module, group: Group, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the sharded tensors of weights and moments, and those that all processes have, for `write_shards`."""
    weights = {f"{WEIGHT}{name}": tensor for name, tensor in (_state_tensors(learner) | memory(learner, group)).items()}
    return weights | {
        f"{MOMENT}{kind}/{name}": tensor
        for name, weight in learner.named_parameters()
        for kind, tensor in optimizer.state.get(weight, {}).items()
    }


def put_shards(learner: nn.Module, parallel: Parallel, optimizer: torch.optim.Optimizer, folder: Path) -> None:
    """Fill the sharded weights and moments from files, which may have other shards. All processes call.

    Raises UserError if the files are of another model.
    """
    from osbert.training.sharding import read_shards, shapes  # which imports what only sharded runs need

    stored = shapes(folder)
    learner_tensors = _state_tensors(learner)
    _require_equal({name: shape for name, (shape, _) in below(WEIGHT, stored).items()}, learner_tensors)
    weights = dict(learner.named_parameters())
    filled = {f"{WEIGHT}{name}": tensor for name, tensor in learner_tensors.items()}
    for name, (shape, dtype) in below(MOMENT, stored).items():
        like = weights[name.partition("/")[2]]
        # Step counts are not sharded, and moments are as their weights are.
        filled[f"{MOMENT}{name}"] = (
            torch.zeros_like(like, dtype=dtype) if shape == like.shape else torch.zeros(shape, dtype=dtype)
        )
    with torch.no_grad():
        read_shards(folder, {key: tensor.detach() for key, tensor in filled.items()})
    put_moments(learner, parallel, optimizer, below(MOMENT, filled))


def put_weights(learner: nn.Module, parallel: Parallel, tensors: Mapping[str, Tensor]) -> None:
    """Copy full tensors into the learner. Raises UserError if their names or shapes are not the learner's."""
    learner_tensors = _state_tensors(learner)
    _require_equal({name: tensor.shape for name, tensor in tensors.items()}, learner_tensors)
    with torch.no_grad():
        for name, tensor in tensors.items():
            learner_tensors[name].copy_(parallel.own(tensor, learner_tensors[name]))


def _require_equal(given: Mapping[str, torch.Size], learner_tensors: Mapping[str, Tensor]) -> None:
    """Raise UserError if the names or shapes of a checkpoint's weights are not the learner's."""
    expected = {name: tensor.shape for name, tensor in learner_tensors.items()}
    if given != expected:
        other = sorted(name for name in {*expected, *given} if expected.get(name) != given.get(name))
        raise UserError(
            f"The checkpoint belongs to another model: {', '.join(other[:5])} differ ({len(other)} tensors).",
            code="damaged-file",
        )


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
    state = {index: by_name[name] for index, name in enumerate(ordered) if name in by_name}
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _state_tensors(learner: nn.Module) -> dict[str, Tensor]:
    saved = learner.state_dict().keys()
    named = [*learner.named_parameters(), *learner.named_buffers()]  # both skip what was already seen
    return {name: tensor.detach() for name, tensor in named if name in saved}
