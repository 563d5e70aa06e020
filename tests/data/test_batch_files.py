"""Batches written and read again are the same, and a damaged file is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from osbert.data.batch import Batch, collate, read_batches, write_batches
from osbert.data.example import Example, Target
from refusals import refusal


def example(tokens: int, **targets: Target) -> Example:
    zeros = np.zeros(tokens, np.int32)
    flags = zeros.astype(bool)
    return Example(ids=zeros + 7, segments=zeros, words=flags, special=flags, targets=targets, record=tokens)


def same(one: Batch, other: Batch) -> bool:
    def parts(batch: Batch) -> list[object]:
        targets = [(name, *vars(target).values()) for name, target in sorted(batch.targets.items())]
        flat = [value for name, *values in targets for value in (name, *values)]
        return [*(value for name, value in vars(batch).items() if name != "targets"), *flat]

    pairs = zip(parts(one), parts(other), strict=True)
    return all(torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in pairs)


def test_round_trip(tmp_path: Path) -> None:
    masked = Target(labels=np.array([3, 4]), index=np.array([1, 2]), weights=np.array([1.0, 0.5]))
    pair, number = Target(labels=np.array([1])), Target(labels=np.array([0.25]))
    columns = {
        "order": np.arange(4),
        "positions": np.array([5, 4, 3, 2]),
        "unseen": np.arange(4) > 2,
        "head_words": np.arange(4) > 1,
    }
    batches = [
        collate([example(5, mlm=masked, nsp=pair), example(3, nsp=pair)]),
        collate([replace(example(4, score=number), **columns)]),
    ]
    write_batches(tmp_path / "some.npz", batches)
    read = read_batches(tmp_path / "some.npz")
    assert len(read) == 2 and all(map(same, batches, read))
    assert not same(batches[0], batches[1])
    assert batches[0].head_words is None  # only the examples of heads that read words have this column


@pytest.mark.parametrize("keep", [0, 10, 0.5])
def test_a_damaged_file_is_told(tmp_path: Path, keep: float) -> None:
    path = tmp_path / "some.npz"
    write_batches(path, [collate([example(5)])])
    data = path.read_bytes()
    path.write_bytes(data[: int(keep * len(data)) if keep < 1 else int(keep)])
    with refusal("damaged-file", "some.npz"):
        read_batches(path)
