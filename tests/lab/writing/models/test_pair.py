"""The encoder-decoder: who sees whom, cached writing, and its arithmetic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from osbert.data.batch import Batch, collate
from osbert.data.example import Example
from osbert.data.examples import Examples
from osbert.models.contract import Learner, StepSize
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert.models.transformer.kernels import reference
from osbert_lab.writing import steps
from osbert_lab.writing.decoder_inputs import decoder_examples
from osbert_lab.writing.pair import Pair, previous_index
from osbert_lab.writing.pair_architecture import PairArchitecture

KINDS: dict[str, dict[str, Any]] = {
    "learned": {},
    "distances": {
        "positions": "none",
        "distance_scores": 8,
        "normalization": "pre",
        "root_norm": True,
        "biases": False,
    },
    "rotary": {"positions": "rotary", "decoder_layers": 3},
}
SOURCES, TEXTS = ([5, 6, 7, 8], [9, 10], [11, 12, 13]), ([20, 21, 22], [23, 24, 25, 26], [27, 28])


def example(ids: list[int], record: int) -> Example:
    flags = np.zeros(len(ids), np.bool_)
    return Example(ids=np.array(ids), segments=flags.astype(np.int8), words=flags, special=flags, record=record)


def batch_of(sources: Any = SOURCES, texts: Any = TEXTS) -> Batch:
    sides = [Examples.of([example(ids, row) for row, ids in enumerate(rows)]) for rows in (sources, texts)]
    return collate(list(decoder_examples(*sides, 0, name="generate")))


def rows(batch: Batch, hidden: torch.Tensor) -> dict[int, torch.Tensor]:
    return dict(zip(batch.records.tolist(), hidden.split(list(batch.lengths)), strict=True))


@pytest.fixture(params=KINDS)
def learner(request: pytest.FixtureRequest) -> Learner:
    torch.manual_seed(0)
    sizes = {"vocabulary": 40, "width": 16, "layers": 2, "heads": 2, "length": 16, "segments": 0, "deviation": 0.3}
    backbone = PairArchitecture(**sizes, **KINDS[request.param]).build()
    return Learner(backbone, {"generate": MaskedLanguageHead(backbone, target="generate")}).eval()


@torch.no_grad()
def test_a_token_sees_its_source_and_what_is_before_it(learner: Learner) -> None:
    backbone = learner.backbone
    batch = batch_of()
    before = rows(batch, backbone(batch).hidden)
    later = batch_of(texts=([20, 21, 22], [23, 24, 30, 26], [27, 28]))  # read at the fourth token of the second
    after = rows(later, backbone(later).hidden)
    assert all(torch.equal(before[row], after[row]) for row in (0, 2))
    assert torch.equal(before[1][:3], after[1][:3]) and not torch.allclose(before[1][3], after[1][3])
    assert batch.source is not None and later.source is not None
    assert torch.equal(backbone(batch.source).hidden, backbone(later.source).hidden)
    other = batch_of(sources=([5, 6, 7, 8], [9, 31], [11, 12, 13]))
    seen = rows(other, backbone(other).hidden)
    assert all(torch.equal(before[row], seen[row]) for row in (0, 2))
    assert (before[1] - seen[1]).abs().amax(dim=1).min() > 1e-4


@torch.no_grad()
def test_alone_and_by_the_plain_kernel_it_is_the_same(learner: Learner) -> None:
    batch = batch_of()
    found = rows(batch, learner.backbone(batch).hidden)
    for row, both in enumerate(zip(SOURCES, TEXTS, strict=True)):
        alone = batch_of(*([side] for side in both))
        torch.testing.assert_close(found[row], learner.backbone(alone).hidden, rtol=0, atol=1e-5)
    for part in learner.modules():
        if hasattr(part, "kernel"):
            part.kernel = reference
    torch.testing.assert_close(rows(batch, learner.backbone(batch).hidden), found, rtol=0, atol=1e-5)


@torch.no_grad()
def test_cached_steps_score_as_one_pass_does(learner: Learner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "WORTHWHILE", 2)  # before and after weights are laid out
    head = learner.heads["generate"]
    assert isinstance(head, MaskedLanguageHead)
    decoder = learner.backbone.decoder(head)
    assert decoder is not None
    batch = batch_of(texts=([20, 21, 22], [23, 24, 25], [27, 28, 29]))
    wanted = rows(batch, head.every(learner.backbone(batch), batch))
    prompts = [replace(example([0], row), source=example(ids, row)) for row, ids in enumerate(SOURCES)]
    steps_of = [decoder.begin(prompts, most=4), decoder.step(torch.tensor([20, 23, 27]))]
    for row in range(3):
        torch.testing.assert_close(torch.stack([step[row] for step in steps_of]), wanted[row][:2], rtol=0, atol=1e-5)
    decoder.choose(torch.tensor([2, 0]))
    last = decoder.step(torch.tensor([28, 21]))
    torch.testing.assert_close(last, torch.stack([wanted[2][2], wanted[0][2]]), rtol=0, atol=1e-5)
    for chosen in ([0, 0, 1], [0, 1, 2, 2]):  # texts with different numbers of rows, then two of each
        decoder.choose(torch.tensor(chosen))
    found, chosen_alone = decoder.step(torch.tensor([29, 29, 22, 22])), decoder.fresh()
    for row, source in enumerate([2, 2, 0, 0]):
        chosen_alone.begin([prompts[source]], most=4)
        for piece in {2: (27, 28, 29), 0: (20, 21, 22)}[source]:
            alone = chosen_alone.step(torch.tensor([piece]))
        torch.testing.assert_close(found[row], alone[0], rtol=0, atol=1e-5)
    kept = [
        *chosen_alone.cache.keys,
        *chosen_alone.cache.values,
        *(part for pair in chosen_alone.keys for part in pair),
    ]
    assert sum(part.nbytes for part in kept) == chosen_alone.memory(prompts[0], most=4)
    rounded = decoder.fresh("bf16")
    near = [rounded.begin(prompts, most=4), rounded.step(torch.tensor([20, 23, 27]))]
    for exact, other in zip(steps_of, near, strict=True):
        assert (exact - other).abs().mean() < 0.03 * exact.abs().mean() + 0.01
    with pytest.raises(ValueError, match="source"):
        decoder.begin([example([0], 0)], most=1)


def test_the_arithmetic_of_a_step_counts_both_sides(learner: Learner) -> None:
    batch = batch_of()
    size = StepSize.of(learner, [batch])
    assert size.source is not None
    assert (size.tokens, size.source.tokens, size.cross_pairs) == (9, 9, 4 * 3 + 2 * 4 + 3 * 2)
    assert isinstance(learner.backbone, Pair)
    assert learner.backbone.flops(size) > learner.backbone.encoder.flops(size.source) > 0


def test_what_an_encoder_decoder_cannot_be_is_said() -> None:
    for change in (
        {"direction": "left_to_right"},
        {"adapters": 4},
        {"decoder_layers": -1},
        {"positions": "disentangled"},
        {"reading": "both"},
    ):
        problems = " ".join(PairArchitecture(vocabulary=9, **change).problems())
        assert next(iter(change)) in problems


@torch.no_grad()
def test_both_sides_read_a_text_and_the_last_token_stands_for_it() -> None:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"vocabulary": 40, "width": 16, "layers": 2, "heads": 2, "length": 16, "deviation": 0.3}
    backbone = PairArchitecture(**sizes, segments=0, reading="both", summary="last").build().eval()
    batch = collate([example(ids, row) for row, ids in enumerate(SOURCES)])
    read = batch.replace_columns(ids=batch.ids[previous_index(batch)], source=batch)
    assert [part.tolist() for part in read.ids.split(list(batch.lengths))] == [[8, 5, 6, 7], [13, 11, 12], [10, 9]]
    states = backbone(batch)
    assert torch.equal(states.hidden, backbone(read).hidden)
    last = backbone.summaries(batch)
    assert last.tolist() == [3, 6, 8] and torch.equal(states.summary, states.hidden[last])
    torch.testing.assert_close(states.pooled, torch.tanh(backbone.writer.pooler(states.summary)))
    assert isinstance(backbone.encoder.pooler, torch.nn.Identity) and backbone.readable(batch) is None
    for row, ids in enumerate(SOURCES):
        alone = backbone(collate([example(ids, 0)])).hidden
        torch.testing.assert_close(rows(batch, states.hidden)[row], alone, rtol=0, atol=1e-5)
    learner = Learner(backbone, {})
    pairs = 4 * 4 + 3 * 3 + 2 * 2
    size = StepSize.of(learner, [batch])
    assert (size.tokens, size.pairs) == (9, pairs)
    assert backbone.flops(size) == backbone.flops(replace(size, source=size, cross_pairs=pairs))
