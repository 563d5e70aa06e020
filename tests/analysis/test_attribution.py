"""Weights of words: equal to a plain computation and to captum, complete, undisturbed by neighbours, and faithful."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from osbert.analysis.attribution import Interpolation, attribute, gauss_legendre, require_table
from osbert.analysis.explanation import Explanation, OutputScore, ScoredRecord, baseline_vector, explain
from osbert.analysis.settings import AttributionOptions
from osbert.analysis.words import token_words
from osbert.data.batch import collate
from osbert.data.example import Example
from osbert.data.pack import Packer
from osbert.errors import UserError
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.tasks import Record
from osbert.tasks.kinds.classify import Classify
from osbert.text.tokenizer import SPECIALS, Tokenizer

WORDS = [f"w{number}" for number in range(40)]
TOKENIZER = Tokenizer([*SPECIALS, *WORDS])
PACKER = Packer(tokenizer=TOKENIZER, length=40)
TASK = Classify(labels=("no", "yes"))
TEXTS = ["w1 w2 w3", "w4 w5 w6 w7 w8 w9", "w2 w2 w11 w12", "w30"]


def learner_of(seed: int = 0) -> Learner:
    """Return a small classifier whose scores are far from linear."""
    torch.manual_seed(seed)
    backbone = Architecture(layers=2, heads=2, width=16, vocabulary=len(TOKENIZER), length=40).build()
    learner = Learner(backbone, {TASK.name: TASK.head(backbone)}).eval()
    for weight in learner.parameters():
        if weight.ndim == 2:
            nn.init.normal_(weight, std=0.3)
    return learner


def examples_of(texts: Sequence[str]) -> list[Example]:
    return [TASK.encode(Record(number=0, texts=(text,)), PACKER)[0] for text in texts]


def line_of(learner: Learner, texts: Sequence[str], baseline: str = "pad") -> Interpolation:
    examples = examples_of(texts)
    weights = [np.array([-1.0, 1.0])] * len(texts)
    return Interpolation(
        learner=learner,
        examples=examples,
        score=OutputScore(TASK.name, weights),
        baseline=baseline_vector(learner, TOKENIZER, baseline)[1],  # type: ignore[arg-type]
        fixed=[example.special for example in examples],
    )


def explained(learner: Learner, texts: Sequence[str], **options: object) -> list[Explanation]:
    records = [
        ScoredRecord(label="yes", texts=(text,), examples=[example], words=token_words(TASK, record, PACKER))
        for text, example in zip(texts, examples_of(texts))
        if (record := Record(number=0, texts=(text,)))
    ]
    score = OutputScore(TASK.name, [np.array([-1.0, 1.0])] * len(texts))
    return explain(learner, records, score, AttributionOptions(**options), TOKENIZER)  # type: ignore[arg-type]


class Given(nn.Module):
    """Gives word vectors whatever the pieces are."""

    def __init__(self, vectors: Tensor) -> None:
        super().__init__()
        self.vectors = vectors

    def forward(self, ids: Tensor) -> Tensor:
        return self.vectors


def plain(learner: Learner, text: str, points: int) -> NDArray[np.float64]:
    """Return integrated gradients of one text, a point at a time, in a model whose table is another module."""
    learner = copy.deepcopy(learner).double()
    [example] = examples_of([text])
    batch = collate([example])
    table = learner.backbone.embedding
    assert table is not None
    whole = table(batch.ids).detach()
    empty = torch.where(torch.from_numpy(example.special)[:, None], whole, table.weight[TOKENIZER.pad].detach())
    total = torch.zeros_like(whole)
    places, weights = np.polynomial.legendre.leggauss(points)
    for place, weight in zip((places + 1) / 2, weights / 2):
        vectors = (empty + place * (whole - empty)).requires_grad_()
        learner.backbone.embeddings.pieces = Given(vectors)
        scores = learner.heads[TASK.name].outputs(learner.backbone(batch), batch)[0]
        (gradient,) = torch.autograd.grad(scores[1] - scores[0], vectors)
        total += weight * gradient
    return (total * (whole - empty)).sum(dim=1).numpy()


def test_weights_equal_a_plain_computation() -> None:
    learner = learner_of()
    found = attribute(line_of(learner, TEXTS), [range(place, place + 1) for place in range(len(TEXTS))], points=12)
    for text, one in zip(TEXTS, found):
        np.testing.assert_allclose(one.weights[0], plain(learner, text, 12), rtol=1e-3, atol=1e-5)
        assert one.weights[0][0] == one.weights[0][-1] == 0, "[CLS] and [SEP] stay as they are"


def margins(learner: Learner, example: Example, vectors: Tensor) -> Tensor:
    """Return what one label's logit is above the other's for word vectors (B, n, D), each sequence read by itself."""
    batch = collate([example])
    found = []
    for own in vectors:
        learner.backbone.embeddings.pieces = Given(own)
        scores = learner.heads[TASK.name].outputs(learner.backbone(batch), batch)
        found.append(scores[0, 1] - scores[0, 0])
    return torch.stack(found)


def test_weights_equal_those_of_captum() -> None:
    from captum.attr import IntegratedGradients  # it imports matplotlib, which the other tests need not wait for

    learner = learner_of()
    line = line_of(learner, TEXTS)
    for place, one in enumerate(attribute(line, [range(place, place + 1) for place in range(4)], points=20)):
        batch = collate([line.examples[place]])
        whole = require_table(learner)(batch.ids).detach()[None]
        start = torch.where(torch.from_numpy(line.fixed[place])[None, :, None], whole, line.baseline)
        theirs = IntegratedGradients(partial(margins, copy.deepcopy(learner), line.examples[place]))
        weights = theirs.attribute(whole, start, n_steps=20).sum(dim=-1)[0].detach().numpy()
        np.testing.assert_allclose(one.weights[0], weights, rtol=0.01, atol=1e-4)


def test_the_completeness_error_falls_with_the_points() -> None:
    line = line_of(learner_of(), TEXTS, "zero")
    groups = [range(place, place + 1) for place in range(len(TEXTS))]
    errors = [np.mean([one.error for one in attribute(line, groups, points=points)]) for points in (1, 4, 32)]
    assert errors[0] > 5 * errors[1] > 25 * errors[2] and errors[2] < 0.01
    doubled = attribute(line, groups, points=1, tolerance=0.01)
    assert all(one.error <= 0.01 for one in doubled) and max(one.points for one in doubled) > 1
    places, weights = gauss_legendre(4)
    assert weights @ places**7 == pytest.approx(1 / 8)


def test_other_texts_change_nothing() -> None:
    learner = learner_of()
    together = explained(learner, TEXTS)
    for text, one in zip(TEXTS, together):
        [alone] = explained(learner, [text])
        assert (alone.points, alone.baseline, alone.label) == (one.points, one.baseline, one.label)
        for mine, other in zip(alone.words, one.words, strict=True):
            assert mine.word == other.word
            assert (mine.weight, mine.occlusion) == pytest.approx((other.weight, other.occlusion), abs=1e-5)


def test_the_model_is_left_as_it_was() -> None:
    learner = learner_of().train()
    frozen = next(learner.parameters()).requires_grad_(False)
    before = {name: weight.clone() for name, weight in learner.state_dict().items()}
    explained(learner, TEXTS)
    assert learner.training and not frozen.requires_grad and sum(one.requires_grad for one in learner.parameters()) > 9
    assert all(torch.equal(weight, before[name]) for name, weight in learner.state_dict().items())
    assert learner.backbone.embedding is not None and not learner.backbone.embedding._forward_hooks


def test_occlusion_is_the_drop_without_the_word() -> None:
    learner = learner_of()
    [one] = explained(learner, [TEXTS[1]], method="occlusion", baseline="mask")
    assert (one.error, one.agreement, one.points) == (None, None, 0)
    with torch.no_grad():
        scores = [
            learner.heads[TASK.name].outputs(learner.backbone(batch), batch)[0]
            for text in (TEXTS[1], TEXTS[1].replace("w6", "[MASK]"))
            if (batch := with_masks(text))
        ]
    drop = float((scores[0][1] - scores[0][0]) - (scores[1][1] - scores[1][0]))
    assert one.words[2].word == "w6" and one.words[2].weight == one.words[2].occlusion == pytest.approx(drop, abs=1e-5)


def test_the_check_of_a_long_text_takes_some_of_its_words() -> None:
    learner = learner_of()
    text = " ".join(WORDS[:20])
    [whole] = explained(learner, [text], check_words=0)
    [some] = explained(learner, [text], check_words=5)
    [few] = explained(learner, [TEXTS[0]], check_words=5)
    checked = [word for word in some.words if word.occlusion is not None]
    assert [word.occlusion for word in checked] == pytest.approx(
        [one.occlusion for one, word in zip(whole.words, some.words) if word.occlusion is not None], abs=1e-5
    )
    assert [one.weight for one in some.words] == pytest.approx([one.weight for one in whole.words], abs=1e-5)
    weights = [one.weight for one in some.words]
    assert len(checked) == 5 and {max(weights), min(weights)} <= {one.weight for one in checked}
    assert some.agreement is not None and "over 5 of 20 words" in list(some.lines())[-1]
    assert all(one.occlusion is not None for one in few.words)
    with pytest.raises(UserError) as caught:
        explained(learner, [text], check_words=2)
    assert caught.value.code == "invalid-value"


def with_masks(text: str) -> object:
    ids = [TOKENIZER.cls, *(TOKENIZER.vocabulary.index(word) for word in text.split()), TOKENIZER.sep]
    batch = collate(examples_of([TEXTS[1]]))
    return batch.replace_columns(ids=torch.tensor(ids))


def test_a_planted_word_is_found_first() -> None:
    """w0 alone decides the label in training: on new texts with it, it has the largest weight."""
    rng = np.random.default_rng(0)

    def drawn(count: int) -> tuple[list[str], list[bool]]:
        texts = [[str(word) for word in rng.choice(WORDS[1:], size=rng.integers(4, 12))] for _ in range(count)]
        planted = [place % 2 == 0 for place in range(count)]
        for text, has in zip(texts, planted):
            if has:
                text[rng.integers(len(text))] = "w0"
        return [" ".join(text) for text in texts], planted

    torch.manual_seed(0)
    backbone = Architecture(layers=2, heads=2, width=32, vocabulary=len(TOKENIZER), length=40, dropout=0.0).build()
    learner = Learner(backbone, {TASK.name: TASK.head(backbone)})
    backbone.initialise()
    optimiser = torch.optim.AdamW(learner.parameters(), lr=3e-3)
    for _ in range(60):
        texts, planted = drawn(32)
        records = [Record(number=0, texts=(text,), label=TASK.labels[has]) for text, has in zip(texts, planted)]
        batch = collate([TASK.encode(record, PACKER)[0] for record in records])
        loss = learner(batch)[TASK.name].total / 32
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss.item() < 0.1
    texts, planted = drawn(80)
    found = explained(learner, [text for text, has in zip(texts, planted) if has], check=False)
    first = [one.strongest(1)[0] for one in found]
    assert np.mean([word.word == "w0" and word.weight > 0 for word in first]) > 0.95
