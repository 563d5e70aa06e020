"""Span boundaries: spans by law and by count, and the loss against the formula of the paper, piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

import corpora
from osbert.data.batch import Batch, collate
from osbert.data.corrupt import word_bounds
from osbert.data.example import Example
from osbert.data.examples import Examples
from osbert.data.noise import Noise
from osbert.data.pack import Packer
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.text.document import Document
from osbert_lab.spanbert.boundary_head import SpanBoundaryHead
from osbert_lab.spanbert.span_boundary import SpanBoundary
from terminal import run
from vocabularies import train


def runs(index: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the runs of consecutive positions."""
    yield from np.split(index, 1 + np.flatnonzero(np.diff(index) != 1))


@pytest.fixture()
def masked(packer: Packer, make_documents: Callable[..., list[Document]]) -> Callable[..., Examples]:
    """Return a maker of sequences with masked spans."""

    def make(objective: SpanBoundary, lengths: list[list[int]]) -> Examples:
        spans = Examples.of([*packer.spans(make_documents(lengths), np.random.default_rng(0))])
        return objective.corrupt_all(spans, packer, Noise.at(1, np.arange(len(spans))))

    return make


def test_spans_are_whole_words_and_all_pieces_of_one_are_replaced_alike(
    packer: Packer, masked: Callable[..., Examples]
) -> None:
    kinds: list[str] = []
    for example in masked(SpanBoundary(rate=0.3, mask=0.4, random=0.3), [[18] * 6] * 8):
        target = example.targets["span_boundary"]
        assert target.index is not None
        firsts, ends = word_bounds(example.words, example.special)
        for index in runs(target.index):
            assert index[0] in firsts and index[-1] + 1 in ends
            shown, truth = example.ids[index], target.labels[np.isin(target.index, index)]
            changed = shown != truth
            kinds.append("mask" if (shown == packer.tokenizer.mask).all() else "random" if changed.any() else "same")
            assert changed.all() or not changed.any() or not (shown == packer.tokenizer.mask).any()
    assert {*kinds} == {"mask", "random", "same"}


def test_spans_have_3_8_words_on_average(packer: Packer) -> None:
    """Section 3.1. Few spans in a long text, so that hardly two of them touch."""
    ids, every = np.arange(12_000), np.ones(12_000, np.bool_)
    text = Example(ids=ids, segments=ids * 0, words=every, special=~every)
    target = SpanBoundary(rate=0.02).corrupt(text, packer, np.random.default_rng(0)).targets["span_boundary"]
    assert target.index is not None
    assert np.mean([len(index) for index in runs(target.index)]) == pytest.approx(3.8, abs=0.5)


def build(packer: Packer, reach: int) -> Learner:
    """Return an encoder with the head, all weights and biases of which are drawn anew."""
    torch.manual_seed(0)
    backbone = Architecture(layers=1, heads=2, width=16, vocabulary=len(packer.tokenizer), length=64).build()
    head = SpanBoundary(reach=reach, position_width=6).head(backbone)
    learner = Learner(backbone, {"span_boundary": head}).eval()
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter)
    return learner


def boundary_losses(learner: Learner, batch: Batch, reach: int) -> list[torch.Tensor]:
    """Return -log P(x_i | y_i) of each piece that the boundary predicts, one at a time (section 3.2)."""
    head, hidden = learner.heads["span_boundary"], learner.backbone(batch).hidden
    assert isinstance(head, SpanBoundaryHead)
    layers, target = head.boundary, batch.targets["span_boundary"]
    truth = dict(zip(target.index.tolist(), target.labels.tolist()))
    losses = []
    for token, label in truth.items():
        start = max(place for place in range(token + 1) if place in truth and place - 1 not in truth)
        end = min(place for place in truth if place >= token and place + 1 not in truth)
        if token - start >= reach:
            continue
        h0 = torch.cat([hidden[start - 1], hidden[end + 1], layers.positions.weight[token - start]])
        h1 = functional.gelu(layers.inner.weight @ h0 + layers.inner.bias)
        h1 = functional.layer_norm(h1, (16,), layers.inner_norm.weight, layers.inner_norm.bias, 1e-12)
        y = functional.gelu(layers.outer.weight @ h1 + layers.outer.bias)
        y = functional.layer_norm(y, (16,), layers.outer_norm.weight, layers.outer_norm.bias, 1e-12)
        scores = learner.backbone.get_parameter("embeddings.pieces.weight") @ y + layers.bias
        losses.append(-scores.log_softmax(0)[label])
    return losses


@pytest.mark.parametrize("reach", [1, 3, 20])
def test_the_loss_is_that_of_the_states_and_that_of_the_boundaries(
    packer: Packer, masked: Callable[..., Examples], reach: int
) -> None:
    learner = build(packer, reach)
    batch = collate([*masked(SpanBoundary(rate=0.4), [[9, 7, 8]] * 3)])
    head = learner.heads["span_boundary"]
    with torch.no_grad():
        loss, expected = learner(batch)["span_boundary"], boundary_losses(learner, batch, reach)
        target = batch.targets["span_boundary"]
        scores = head.outputs(learner.backbone(batch), batch)
        own = functional.cross_entropy(scores, target.labels, reduction="sum")
    assert float(loss.total) == pytest.approx(float(own + sum(expected)), rel=1e-5)
    assert loss.count == len(target.labels) and int(loss.ratios["boundary"][1]) == len(expected)
    assert len(expected) < len(target.labels) or reach == 20


def test_a_boundary_sees_no_piece_of_its_span(packer: Packer, masked: Callable[..., Examples]) -> None:
    """Gradients of the boundary's vectors reach the states beside the spans alone."""
    learner = build(packer, 20)
    batch = collate([*masked(SpanBoundary(rate=0.3), [[9, 7, 8]] * 3)])
    states = learner.backbone(batch)
    states.hidden.retain_grad()
    head, target = learner.heads["span_boundary"], batch.targets["span_boundary"]
    torch.nn.init.zeros_(head.get_parameter("dense.weight"))  # the states of the masked pieces count no more
    head(states, batch).total.backward()
    assert states.hidden.grad is not None
    reached = {*states.hidden.grad.abs().sum(1).nonzero().squeeze(1).tolist()}
    inside = {*target.index.tolist()}
    assert reached == {place for token in inside for place in (token - 1, token + 1)} - inside


@pytest.mark.parametrize(
    "settings", [{"unit": "words"}, {"unit_from": 0.5}, {"reach": 0}, {"position_width": 0}, {"ngrams": (0.5,)}]
)
def test_settings_out_of_range_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"must be"):
        SpanBoundary(**settings)  # type: ignore[arg-type]


def test_an_encoder_trains_is_shown_and_predicts_its_masks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = corpora.build_corpus(tmp_path, texts := corpora.invented(), train(texts, vocabulary=120))
    sizes = ("--model.layers", "1", "--model.width", "16", "--model.heads", "2", "--data.length", "32")
    options = ("--objectives", "span_boundary", *sizes, "--position-width", "8")
    assert run("corpus", "show", corpus, "--masks", "2", "--recipe", "cpu", *options) == 0
    assert "[MASK]←" in capsys.readouterr().out
    training = ("--steps", "4", "--batch", "4", "--device", "cpu", "--precision", "fp32")
    assert run("pretrain", "cpu", "--corpus", corpus, "--out", tmp_path / "run", *options, *training) == 0
    assert run("predict", tmp_path / "run", "bada [MASK] kefe") == 0
