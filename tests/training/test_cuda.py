"""Training on a GPU beside training on the CPU: the same losses, exact resumption, halves where memory runs out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from osbert.data.example import Example, Target
from osbert.data.record_loader import EncodedAhead, RecordLoader
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.models.heads.predictions import MaskedLanguageHead, SequenceHead
from osbert.training.optimizer import OptimizerSettings
from osbert.training.settings import TrainingSettings
from osbert.training.trainer import Trainer

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
VOCABULARY = 1000
SIZES = {"cpu": (1, 32, 40), "cuda": (2, 128, 300)}
"""Layers, width and longest sequence: on a GPU heads are 64 wide, and sequences longer than a tile of its kernel."""


def example(rng: np.random.Generator, record: int, length: int) -> Example:
    """Return a sequence with a class, and labels at one in seven of its tokens."""
    index = np.sort(rng.choice(length, size=max(1, length // 7), replace=False))
    return Example(
        ids=rng.integers(1, VOCABULARY, length),
        segments=np.repeat([0, 1], [length // 2, length - length // 2]),
        words=np.ones(length, np.bool_),
        special=np.zeros(length, np.bool_),
        targets={
            "mlm": Target(labels=rng.integers(1, 20, len(index)), index=index),
            "nsp": Target(labels=np.array([record % 2])),
        },
        record=record,
    )


def make_trainer(
    folder: Path,
    *,
    sizes: str,
    dropout: float = 0.1,
    batch: int = 16,
    micro_tokens: int = 1500,
    positions: str = "learned",
    **training,
) -> Trainer:
    """Return a trainer of a small model and sequences of many lengths."""
    torch.manual_seed(0)
    layers, width, longest = SIZES[sizes]
    architecture = Architecture(
        layers=layers,
        width=width,
        heads=2,
        vocabulary=VOCABULARY,
        length=longest,
        dropout=dropout,
        attention_dropout=dropout,
        positions=positions,
    )
    backbone = architecture.build()
    heads = {"mlm": MaskedLanguageHead(backbone), "nsp": SequenceHead(backbone, target="nsp", form="nsp")}
    rng = np.random.default_rng(0)
    examples = [example(rng, record, int(rng.integers(longest // 10, longest + 1))) for record in range(4 * batch)]
    return Trainer(
        Learner(backbone, heads),
        RecordLoader(EncodedAhead([one] for one in examples), batch=batch, micro_tokens=micro_tokens, seed=0),
        OptimizerSettings(learning_rate=1e-3, warmup=0.2),
        TrainingSettings(**{"checkpoint_every": 0, "compile": "no", **training}),
        folder,
    )


@pytest.mark.parametrize(
    ("device", "precision", "compile", "near"),
    [
        ("cpu", "bf16", "no", 0.02),
        pytest.param("cuda", "fp32", "no", 0.001, marks=needs_gpu),
        pytest.param("cuda", "bf16", "no", 0.02, marks=needs_gpu),
        pytest.param("cuda", "bf16", "yes", 0.02, marks=needs_gpu),
    ],
)
def test_steps_are_those_of_the_cpu(tmp_path: Path, device: str, precision: str, compile: str, near: float) -> None:
    exact = make_trainer(tmp_path, sizes=device, dropout=0.0, steps=4, device="cpu", precision="fp32")
    settings = {"device": device, "precision": precision, "compile": compile}
    other = make_trainer(tmp_path, sizes=device, dropout=0.0, steps=4, **settings)
    for one, two in zip(exact.run(), other.run(), strict=True):
        assert two.losses == pytest.approx(one.losses, rel=near)
        assert two.gradient_norm == pytest.approx(one.gradient_norm, rel=3 * near)
        assert two.tokens == one.tokens


@pytest.mark.parametrize(
    ("device", "precision", "positions"),
    [
        ("cpu", "fp32", "learned"),
        ("cpu", "fp32", "disentangled"),
        *(pytest.param("cuda", kind, "learned", marks=needs_gpu) for kind in ("fp32", "bf16")),
    ],
)
def test_two_runs_and_a_resumed_one_end_in_the_same_bits(
    tmp_path: Path, device: str, precision: str, positions: str
) -> None:
    settings = {"sizes": device, "device": device, "precision": precision, "positions": positions}
    settings |= {"steps": 12, "checkpoint_every": 5}
    whole, again = (make_trainer(tmp_path / name, **settings) for name in ("whole", "again"))
    first, second = ([(step.losses, step.gradient_norm) for step in trainer.run()] for trainer in (whole, again))
    assert first == second
    cut = make_trainer(tmp_path / "cut", **settings)
    for progress in cut.run():
        if progress.step == 8:
            break
    resumed = make_trainer(tmp_path / "cut", **settings)
    assert resumed.resume() and resumed.step == 5
    assert [(step.losses, step.gradient_norm) for step in resumed.run()] == first[5:]
    assert not resumed.notices
    for name, weight in whole.learner.named_parameters():
        assert torch.equal(weight, again.learner.get_parameter(name)), name
        assert torch.equal(weight, resumed.learner.get_parameter(name)), name


@pytest.fixture
def whole_memory() -> Iterator[None]:
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()


@needs_gpu
@pytest.mark.parametrize("compile", ["no", "yes"])
def test_memory_that_runs_out_halves_the_passes(tmp_path: Path, whole_memory: None, compile: str) -> None:
    """The GPU's own allocator refuses, in the middle of a pass, what would go beyond part of a step's memory."""
    sizes = {"sizes": "cuda", "dropout": 0.0, "batch": 256, "micro_tokens": 0}
    settings = {**sizes, "steps": 4, "device": "cuda", "compile": compile}
    whole = make_trainer(tmp_path / "whole", **settings)
    torch.cuda.reset_peak_memory_stats()
    begun = torch.cuda.memory_allocated()
    wanted = list(whole.run())
    peak = torch.cuda.max_memory_allocated()
    halved = make_trainer(tmp_path / "halved", **settings)
    torch.cuda.empty_cache()
    room = torch.cuda.memory_reserved() + 0.6 * (peak - begun)
    torch.cuda.set_per_process_memory_fraction(room / torch.cuda.get_device_properties(0).total_memory)
    found = list(halved.run())
    assert halved.counters.halvings >= 1
    assert any("out of memory" in notice for notice in halved.notices)
    for one, two in zip(wanted, found, strict=True):
        assert two.losses == pytest.approx(one.losses, rel=0.02)
        assert two.gradient_norm == pytest.approx(one.gradient_norm, rel=0.06)
        assert two.tokens == one.tokens
