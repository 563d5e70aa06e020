"""The count of a step's arithmetic is what torch counts, whatever the sizes; peaks are found by name or measured."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from osbert.data.batch import collate
from osbert.data.example import Example, Target
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner, StepSize
from osbert.models.heads import predictions
from osbert.models.heads.predictions import MaskedLanguageHead, SequenceHead
from osbert.models.transformer.kernels import reference
from osbert.training.processor import choose
from osbert_lab.planning.speed import FORMULA, PEAKS, look_up_peak, measure_peak, training_flops

VOCABULARY = 23


def plain(states, weight, bias, labels, weights=None) -> tuple[torch.Tensor, torch.Tensor]:
    scores = functional.linear(states, weight, bias)
    return functional.cross_entropy(scores, labels, reduction="sum"), torch.zeros(())


def learner(*, layers: int = 2, feedforward: int = 0, rotary: bool = False, **sizes: int) -> Learner:
    torch.manual_seed(0)
    backbone = Architecture(
        layers=layers,
        feedforward=feedforward,
        vocabulary=VOCABULARY,
        length=16,
        positions="rotary" if rotary else "learned",
        **({"heads": 2, "width": 8} | sizes),
    ).build()
    nsp = SequenceHead(backbone, target="nsp", form="nsp")
    return Learner(backbone, {"mlm": MaskedLanguageHead(backbone), "nsp": nsp})


def example(length: int, masked: int) -> Example:
    ids, plain = np.arange(length) % VOCABULARY, np.zeros(length, np.bool_)
    targets = {
        "mlm": Target(labels=ids[:masked], index=np.arange(masked)),
        "nsp": Target(labels=np.array([length % 2])),
    }
    return Example(ids=ids, segments=np.zeros(length, np.int8), words=plain, special=plain, targets=targets)


@settings(max_examples=12)
@given(
    lengths=st.lists(st.integers(2, 16), min_size=1, max_size=4),
    masked=st.integers(1, 2),
    layers=st.integers(1, 3),
    feedforward=st.sampled_from([0, 12]),
    rotary=st.booleans(),
    embedding=st.sampled_from([0, 6]),
)
def test_the_count_is_what_torch_counts(
    lengths: list[int], masked: int, layers: int, feedforward: int, rotary: bool, embedding: int
) -> None:
    """Every product of matrices that the plain kernel and its backward pass make, to the last FLOP.

    The fused cross-entropy makes the same products as the plain one, in a form that torch's counter does not see.
    """
    model = learner(layers=layers, feedforward=feedforward, rotary=rotary, embedding=embedding)
    for block in model.backbone.blocks:
        block.attention.kernel = reference
    batch = collate([example(length, masked) for length in lengths])
    with FlopCounterMode(display=False) as counter, patch.object(predictions, "linear_cross_entropy", plain):
        torch.stack([loss.total for loss in model(batch).values()]).sum().backward()
    assert training_flops(model, StepSize.of(model, [batch])) == counter.get_total_flops()


def test_the_count_is_the_printed_formula() -> None:
    """FORMULA, written out for BERT."""
    model = learner(layers=3, heads=2, width=16)
    lengths, masked = (9, 4), 2
    n, b, m = sum(lengths), len(lengths), masked * len(lengths)
    pairs = sum(length**2 for length in lengths)
    layers, d, f, v = 3, 16, 64, VOCABULARY
    weights = layers * (4 * d**2 + 2 * d * f)
    forward = 2 * n * weights + 4 * pairs * layers * d + 2 * m * (d**2 + d * v) + 2 * b * d**2 + 4 * b * d
    # [CLS] is masked too in these examples, so M tokens are read; of the sequence of 4 that is half, which is not few.
    r = masked + 4
    forward -= 2 * (n - r) * (2 * d**2 + 2 * d * f) + 4 * (pairs - (masked * 9 + 4 * 4)) * d
    size = StepSize.of(model, [collate([example(length, masked)]) for length in lengths])
    assert training_flops(model, size) == 3 * forward
    assert (
        "3 x (2 N W - 2 (N - R) (2 D^2 + 2 D F) + 4 (P (L - 1) + Q) D + 2 M (D^2 + D V) + 2 B D^2 + heads)" in FORMULA
    )


def test_a_model_without_memory_counts_the_same() -> None:
    """A plan counts models that would not fit."""
    real = learner()
    size = StepSize(tokens=100, pairs=1000, sequences=10, labels={"mlm": 15, "nsp": 10}, read=25, read_pairs=250)
    assert training_flops(real.to("meta"), size) == training_flops(learner(), size) > 0


@pytest.mark.parametrize(
    ("name", "flops"),
    [
        ("NVIDIA H200", 989e12),
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA L4", 121e12),
        ("NVIDIA L40S", 362e12),
        ("NVIDIA RTX A4000", None),
        ("NVIDIA A10G", None),
        ("Abacus 9000", None),
    ],
)
def test_published_peaks_go_by_the_longest_name(name: str, flops: float | None) -> None:
    assert look_up_peak(name) == flops
    assert all(part in PEAKS for part in ("H200", "A100"))


def test_a_measured_peak_says_so_and_no_product_beats_it_by_far() -> None:
    found = measure_peak(choose("cpu", "fp32"))
    assert found.source.startswith("measured: cpu fp32")
    assert 1e8 < found.flops < 1e14
