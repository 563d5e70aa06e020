"""Every family with word vectors and every kind of task can be explained: the score is the prediction's own."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from osbert import components
from osbert.analysis.attribution import Interpolation, attribute
from osbert.analysis.explanation import Explanation, OutputScore, baseline_vector
from osbert.data.pack import Packer
from osbert.inference.engine import Engine, load
from osbert.models import families
from osbert.models.contract import Backbone, Learner
from osbert.models.heads.predictions import SequenceHead
from osbert.tasks import Record
from osbert.tasks.kinds.classify import Classify
from osbert.tasks.kinds.rerank import Rerank
from osbert.tasks.kinds.tag import Tag
from osbert.text.tokenizer import SPECIALS, Tokenizer
from own_files import beside
from refusals import refusal
from tiny_runs import write_run

TOY = "toy_mean"
VARIANTS: list[dict[str, object]] = [
    {},
    {"positions": "rotary", "normalization": "pre", "window": 2, "global_every": 2},
    {"positions": "disentangled", "embedding": 8},
    {"direction": "left_to_right", "distinct": 1},
    {"recurrent": 1, "segments": 0, "summary": "mean"},
]


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the folder of families have one file more."""
    beside(monkeypatch, families)


def weights_in(backbone: Backbone, points: int) -> float:
    """Return the completeness error of a classifier on a backbone with random weights."""
    tokenizer = Tokenizer([*SPECIALS, *"abcdef"])
    task = Classify(labels=("no", "yes"))
    learner = Learner(backbone, {task.name: SequenceHead(backbone, target=task.name)}).eval()
    for weight in learner.parameters():
        if weight.ndim == 2:
            nn.init.normal_(weight, std=0.2)
    packer = Packer(tokenizer=tokenizer, length=16)
    examples = [task.encode(Record(number=0, texts=(text,)), packer)[0] for text in ("a b c d e f a b", "f e")]
    line = Interpolation(
        learner=learner,
        examples=examples,
        score=OutputScore(task.name, [np.array([-1.0, 1.0])] * 2),
        baseline=baseline_vector(learner, tokenizer, "auto")[1],
        fixed=[example.special for example in examples],
    )
    found = attribute(line, [range(1), range(1, 2)], points=points)
    assert all((one.weights[0] != 0).tolist() == (~example.special).tolist() for one, example in zip(found, examples))
    return max(one.error for one in found)


OTHERS = [name for name in components.names("models.families") if name != "transformer"]  # of which all VARIANTS are


@pytest.mark.parametrize("family", [*OTHERS, TOY])
def test_words_are_weighed_in_every_family(family: str) -> None:
    kind: type[Backbone] = components.find("models.families", family, base=Backbone)
    torch.manual_seed(0)
    linear = family == TOY
    backbone = kind.settings().replace(vocabulary=11, width=12, length=16).build()
    if backbone.embedding is None:
        with refusal("unsupported-model"):
            weights_in(backbone, 32)
        return
    assert weights_in(backbone, 1 if linear else 32) < 0.02


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
def test_words_are_weighed_in_every_kind_of_transformer(settings: dict[str, object]) -> None:
    kind: type[Backbone] = components.find("models.families", "transformer", base=Backbone)
    sizes = {"vocabulary": 11, "width": 12, "length": 16, "layers": 2, "heads": 2, "feedforward": 24}
    torch.manual_seed(0)
    assert weights_in(kind.settings(**{**sizes, **settings}).build(), 32) < 0.02


def explained(model: Engine, *texts: str, label: str = "") -> list[Explanation]:
    """Return the explanations of texts, whose words are parts of them."""
    found = model.explain(texts, label=label, points=8, tolerance=1e9)
    for one in found:
        assert one.words and all(texts[word.text][word.start : word.end] == word.word for word in one.words)
        sums = sum(word.weight for word in one.words)
        assert one.error == pytest.approx(
            abs(sums - (one.score - one.baseline_score)) / max(abs(one.score - one.baseline_score), 1e-9), abs=1e-6
        )
    return found


def test_the_score_is_that_of_the_prediction(runs: dict[str, Path], tmp_path: Path) -> None:
    models = {name: load(folder, device="cpu") for name, folder in runs.items()}
    long = "a good film the bad play " * 5
    for name, texts in {"classifier": [long], "windows": [long], "pairs": ["a film", "the play"]}.items():
        model = models[name]
        [said], [found] = model.predict([tuple(texts)]), explained(model, *texts)
        temperature = getattr(model.task, "temperature", 0.0) or 1.0
        other = next(label for label in said.probabilities if label != said.value)
        odds = math.log(said.probabilities[said.value] / said.probabilities[other])
        assert (found.label, found.score) == (said.value, pytest.approx(odds * temperature, abs=1e-5))
        [against] = explained(model, *texts, label=other)
        assert (against.label, against.score) == (other, pytest.approx(-found.score, abs=1e-5))

    [said], found = models["labeller"].predict([long]), explained(models["labeller"], long)
    assert [one.label for one in found] == list(said.value) or len(found) == 1
    odds = said.probabilities[found[0].label]
    assert found[0].score == pytest.approx(math.log(odds / (1 - odds)), abs=1e-5)

    [said], [one] = models["number"].predict([long]), explained(models["number"], long)
    assert one.score + 3.0 == pytest.approx(said.value, abs=1e-5)

    for name in ("reader", "reader-of-all"):
        [said], [one] = models[name].predict([("the film", long)]), explained(models[name], "the film", long)
        assert one.text == said.value
        assert one.score == pytest.approx(said.chosen.score, abs=1e-5) or one.label == "no answer"

    ranks = load(write_run(tmp_path / "ranks", Rerank(query="q", document="d")), device="cpu")
    documents = ("good film", "a play", "bad actor")
    [said], [one] = ranks.predict([documents]), explained(ranks, *documents)
    assert (one.text, one.score) == (said.ranked[0].document, pytest.approx(said.ranked[0].value, abs=1e-5))


@pytest.mark.lab
def test_the_score_of_a_choice_is_that_of_the_prediction(runs: dict[str, Path]) -> None:
    model, choices = load(runs["chooser"], device="cpu"), ("a good", "film play", "bad actor", "the")
    [prediction], [explanation] = model.predict([choices]), explained(model, *choices)
    logs = {name: math.log(share) for name, share in prediction.probabilities.items()}
    others = [log for name, log in logs.items() if name != prediction.value]
    assert explanation.score == pytest.approx(logs[explanation.label] - sum(others) / 2, abs=1e-5)


@pytest.mark.parametrize("pieces", ["first", "all"])
def test_the_score_of_an_entity_is_that_of_its_words(pieces: str, tmp_path: Path) -> None:
    task = Tag(types=("PER", "WORK"), scheme="words", pieces=pieces)  # type: ignore[arg-type]
    model = load(write_run(tmp_path / "tagger", task), device="cpu")
    text = "good films actor plays " * 10  # two windows
    [said], found = model.predict([text]), explained(model, text)
    assert [(one.label, one.text) for one in found] == [(one.type, one.text) for one in said.value]
    if pieces == "first":
        rows = model.backend.outputs(task, (examples := task.encode(task.record_of([text]), model.packer)), tokens=99)
        assert len(examples) > 1 and found[0].score == pytest.approx(np.max(contrasts(rows[0][1])), abs=1e-4)
    only = explained(model, text, label=found[0].label)
    assert 0 < len(only) <= len(found) and {one.label for one in only} == {found[0].label}


def contrasts(outputs: np.ndarray) -> np.ndarray:
    return outputs - (outputs.sum() - outputs) / (len(outputs) - 1)


def test_masks_are_explained_by_the_odds_of_their_pieces(runs: dict[str, Path]) -> None:
    model = load(runs["pretrained"], device="cpu")
    text = "  a [MASK] film, 好 [MASK] play"
    found = explained(model, text)
    for one, [fill] in zip(found, model.fill(text, top=1), strict=True):
        odds = math.log(fill.probability / (1 - fill.probability))
        assert (one.label, one.score) == (fill.piece, pytest.approx(odds, abs=1e-4))
        assert [word.word for word in one.words] == ["a", "film", ",", "好", "play"]
    assert [one.label for one in explained(model, text, label="bad")] == ["bad", "bad"]


def test_what_cannot_be_explained_is_refused(runs: dict[str, Path], tmp_path: Path) -> None:
    classifier, mask = load(runs["classifier"], device="cpu"), load(runs["pretrained"], device="cpu")
    with refusal("unknown-label", "po", "pos"):
        classifier.explain("a film", label="po")
    with refusal("invalid-value", "points", 0):
        classifier.explain("a film", points=0)
    with refusal("unknown-setting", "points"):
        classifier.explain("a film", point=3)
    with refusal("empty-text"):
        classifier.explain(" \n")
    with refusal("wrong-number-of-texts"):
        classifier.explain(("a", "b"))
    with refusal("invalid-value", "goood"):
        mask.explain("a [MASK]", label="goood")
    with refusal("invalid-value", "[MASK]"):
        mask.explain("a film")
    with refusal("unsupported-model"):
        load(runs["encoder"], device="cpu").explain("a film")
    with refusal("not-a-model"):
        load(runs["encoder"], device="cpu").explain(("a film", "b"))
    frozen = Tag(types=("PER",), features="last")
    with refusal("unsupported-model"):
        load(write_run(tmp_path / "frozen", frozen), device="cpu").explain("a film")
