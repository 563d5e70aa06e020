"""Fixtures of models: examples, batches and tiny Transformers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from osbert.data.batch import Batch, collate
from osbert.data.example import Example, Target
from osbert.models.architecture import Architecture
from osbert.models.families.transformer import Transformer

VOCABULARY = 50


def _example(rng: np.random.Generator, length: int, order: str, record: int) -> Example:
    ranks = {
        "none": None,
        "causal": np.arange(length),
        "random": rng.integers(-1, length, size=length),
    }[order]
    return Example(
        ids=rng.integers(0, VOCABULARY, size=length),
        segments=rng.integers(0, 2, size=length),
        words=np.ones(length, dtype=bool),
        special=np.zeros(length, dtype=bool),
        order=ranks,
        record=record,
    )


@pytest.fixture(scope="session")
def make_examples() -> Callable[..., list[Example]]:
    """Return a maker of random examples: (lengths, order="none" | "causal" | "random", seed)."""

    def make(lengths: Sequence[int], *, order: str = "none", seed: int = 0) -> list[Example]:
        rng = np.random.default_rng(seed)
        return [_example(rng, length, order, place) for place, length in enumerate(lengths)]

    return make


@pytest.fixture(scope="session")
def make_batch(make_examples: Callable[..., list[Example]]) -> Callable[..., Batch]:
    """Return a maker of random batches; with `masked` every example also carries that many "mlm" labels."""

    def make(lengths: Sequence[int], *, order: str = "none", seed: int = 0, masked: int = 0) -> Batch:
        rng = np.random.default_rng(seed)
        examples = make_examples(lengths, order=order, seed=seed)
        if masked:
            examples = [replace(example, targets={"mlm": _target(rng, len(example), masked)}) for example in examples]
        return collate(examples)

    return make


def _target(rng: np.random.Generator, length: int, masked: int) -> Target:
    index = np.sort(rng.choice(length, size=min(masked, length), replace=False))
    return Target(labels=rng.integers(0, VOCABULARY, size=len(index)), index=index)


@pytest.fixture(scope="session")
def make_backbone() -> Callable[..., Transformer]:
    """Return a maker of small backbones in evaluation mode, with weights large enough to make attention matter."""

    def make(seed: int = 0, **settings: object) -> Transformer:
        torch.manual_seed(seed)
        sizes = {"layers": 2, "heads": 2, "width": 16, "vocabulary": VOCABULARY, "length": 40, "deviation": 0.5}
        return Architecture(**(sizes | settings)).build().eval()

    return make
