"""An encoder of some layers of another: their weights, and all else the same."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from osbert.models.architecture import Architecture
from osbert_lab.distillation.layers import fewer_layers, select_layers

SIZES = Architecture(layers=4, heads=2, width=16, vocabulary=20, length=16)


def block(weights: dict[str, Tensor], layer: int) -> list[Tensor]:
    return [weight for name, weight in weights.items() if name.startswith(f"blocks.{layer}.")]


def test_layers_are_chosen_evenly_and_copied() -> None:
    teacher = SIZES.build()
    student = fewer_layers(teacher, 2)
    theirs, own = teacher.state_dict(), student.state_dict()
    assert student.architecture == dataclasses.replace(teacher.architecture, layers=2)
    for layer, chosen in enumerate((0, 3)):
        assert all(map(torch.equal, block(own, layer), block(theirs, chosen)))
    assert all(torch.equal(own[name], theirs[name]) for name in own if not name.startswith("blocks."))
    assert not {weight.data_ptr() for weight in own.values()} & {weight.data_ptr() for weight in theirs.values()}


@pytest.mark.parametrize(("distinct", "expected"), [(1, 1), (2, 3)])
def test_one_block_for_all_layers_stays_one(distinct: int, expected: int) -> None:
    """Of blocks that some layers share, each layer gets its own copy."""
    teacher = dataclasses.replace(SIZES, distinct=distinct).build()
    student = fewer_layers(teacher, 3)
    assert student.architecture.layers == 3
    assert student.architecture.blocks == expected
    assert torch.equal(block(student.state_dict(), 0)[0], block(teacher.state_dict(), 0)[0])


@pytest.mark.parametrize("count", [1, 3, 5, 8, 9])
def test_local_layers_stay_local_and_global_ones_global(count: int) -> None:
    sizes = dataclasses.replace(SIZES, layers=10, window=4, global_every=3)
    chosen = select_layers(sizes.build(), count)
    assert len(chosen) == count and list(chosen) == sorted({*chosen}) and chosen[-1] < 10
    assert [sizes.is_local(layer) for layer in chosen] == [sizes.is_local(place) for place in range(count)]


@pytest.mark.parametrize("count", [0, 4, 5])
def test_there_are_fewer_layers(count: int) -> None:
    with pytest.raises(ValueError, match=str(count)):
        fewer_layers(SIZES.build(), count)
