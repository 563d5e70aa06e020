"""Classes by name: entailment equal to transformers' pipeline, similarity and cloze to their definitions; refusals."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from osbert.inference.engine import Engine, load
from osbert.inference.label_predictor import LabelPredictor
from osbert.inference.label_settings import NamingOptions, read_labels
from osbert.interop.hub import minilm
from osbert.tasks.kinds.classify import Classify
from refusals import refusal
from tiny_runs import write_run

NAMES = ["film", "play", "the actor", "bad", "a good film"]
TEXTS = ["a good film", "the bad play.", "poor actor", "the " * 40, "fine"]
WORDS = ["good", "bad", "film", "play", "the", "a"]
NLI = Classify(labels=("contradiction", "entailment", "neutral"), text="one", pair="two")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    words = ["good", "fine", "bad", "poor", "film", "a", "the", "play", "##s", "actor", ".", "this", "is", "about"]
    return write_run(tmp_path_factory.mktemp("nli") / "nli", NLI, words=[*words, "text"])


@pytest.fixture(scope="module")
def nli(folder: Path) -> Engine:
    return load(folder)


@pytest.fixture(scope="module")
def sentences() -> Engine:
    return load(minilm())


def table(predictions: Any, names: list[str]) -> np.ndarray:
    return np.array([[prediction.probabilities[name] for name in names] for prediction in predictions])


@pytest.mark.parametrize("multi", [False, True])
def test_entailment_equals_the_pipeline_of_transformers(folder: Path, nli: Engine, multi: bool) -> None:
    from transformers import pipeline

    theirs = pipeline("zero-shot-classification", model=str(folder), device="cpu")
    expected = theirs(TEXTS, NAMES, hypothesis_template="This text is about {}.", multi_label=multi)
    expected = [dict(zip(row["labels"], row["scores"])) for row in expected]
    found = nli.predict(TEXTS, labels=NAMES, multi=multi)
    np.testing.assert_allclose(table(found, NAMES), [[row[name] for name in NAMES] for row in expected], atol=1e-5)
    if multi:
        assert found[0].value == tuple(sorted(name for name in NAMES if expected[0][name] >= 0.5))
        [single] = nli.predict(TEXTS[:1], labels=NAMES[:1], multi=True)
        assert single.probabilities[NAMES[0]] == pytest.approx(expected[0][NAMES[0]], abs=1e-5)
    else:
        assert [prediction.value for prediction in found] == [max(row, key=row.__getitem__) for row in expected]
    assert [prediction.truncated > 0 for prediction in found] == [False, False, False, True, False]


def test_similarity_is_the_softmax_of_cosines(sentences: Engine) -> None:
    texts, names = (
        ["Where is my card?", "I want my money back.", "咖啡馆九点开门。"],
        ["card_arrival", "refund", "咖啡"],
    )
    found = table(sentences.predict(texts, labels=names), names)
    scores = 20 * sentences.embed(texts) @ sentences.embed(["card arrival", "refund", "咖啡"]).T
    np.testing.assert_allclose(found, np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True), atol=1e-5)
    described = sentences.predict(texts, labels={"a": "my card has not arrived", "b": "give me my money back"})
    assert [prediction.value for prediction in described[:2]] == ["a", "b"]


def test_cloze_is_the_mean_log_probability_at_masks(runs: dict[str, Path]) -> None:
    model = load(runs["pretrained"])
    assert model.masks is not None
    names = ["film", "bad actor", "plays"]
    found = table(model.predict(["a good film"], labels=names, template="the {label}."), names)[0]
    scores = []
    for count, name in ((1, "film"), (2, "bad actor"), (2, "play ##s")):
        tokenizer = model.tokenizer
        ids = torch.tensor([tokenizer.vocabulary.index(piece) for piece in name.split()])
        fills = model.fill(f"a good film the {'[MASK] ' * count}.", top=len(tokenizer))
        by_piece = [{fill.piece: fill.probability for fill in mask} for mask in fills]
        scores.append(np.mean([np.log(by[tokenizer.vocabulary[int(i)]]) for by, i in zip(by_piece, ids)]))
    np.testing.assert_allclose(found, np.exp(scores) / np.exp(scores).sum(), atol=1e-5)
    masked = model.predict(["a [MASK] film", "the play"], labels=names)
    assert len(masked) == 2


def test_calibration_makes_classes_equally_frequent(sentences: Engine, runs: dict[str, Path]) -> None:
    names = ["film", "play"]
    texts = [f"a {word} film number {number}" for number in range(16) for word in ("good", "bad")]
    plain = table(sentences.predict(texts, labels=names), names)
    weighed = table(sentences.predict(texts, labels=names, calibrate=True), names)
    expected = plain / plain.mean(axis=0)
    np.testing.assert_allclose(weighed, expected / expected.sum(axis=1, keepdims=True), atol=1e-6)
    few = sentences.predict(texts[:31], labels=names, calibrate=True)
    np.testing.assert_allclose(table(few, names), plain[:31], atol=1e-6)
    cloze = load(runs["pretrained"])
    alone, among = cloze.predict(texts[:1], labels=names), cloze.predict(iter(texts), labels=names)
    assert alone[0].probabilities != next(among).probabilities


def test_each_text_with_labels_of_its_own(nli: Engine, sentences: Engine, runs: dict[str, Path]) -> None:
    own = [["film", "play"], ["bad", "good", "the actor"]]
    for model in (nli, sentences, load(runs["pretrained"])):
        found = model.predict(TEXTS[:2], labels=own)
        for text, names, prediction in zip(TEXTS, own, found):
            [alone] = model.predict([text], labels=names)
            assert prediction.value == alone.value
            np.testing.assert_allclose(table([prediction], names), table([alone], names), atol=1e-5)
    with refusal("wrong-number-of-values"):
        nli.predict(TEXTS, labels=own)


def test_thousands_of_classes_and_unicode(nli: Engine, sentences: Engine) -> None:
    names = [" ".join(WORDS[int(digit)] for digit in np.base_repr(i, 6)) for i in range(2000)]
    names = list(dict.fromkeys(names))
    [prediction] = nli.predict(["a good film"], labels=names, multi=True)
    assert len(prediction.probabilities) == len(names) > 1900
    assert len(prediction.top(3)) == 3
    asked = LabelPredictor(nli, read_labels(names, where="labels"), NamingOptions())
    assert any(f"a text is read {len(names):,} times" in remark for remark in asked.remarks)
    assert sentences.predict(["cafés"], labels=["Café ☕", "ярмарка", "天气"])[0].value == "Café ☕"


def test_what_cannot_be_predicted_is_refused(nli: Engine, sentences: Engine, runs: dict[str, Path]) -> None:
    for labels, code in ((["a", "", "b"], "invalid-value"), (["a", "b", "a"], "duplicate-name"),
                         (["a"], "nothing-to-learn"), ([], "nothing-to-learn"), (["Film", "film"], "duplicate-name"),
                         (["a\tb", "c"], "invalid-value"), (["the " * 30, "a"], "invalid-value")):  # fmt: skip
        with refusal(code):
            nli.predict(TEXTS, labels=labels)
    with refusal("invalid-value", "template"):
        nli.predict(TEXTS, labels=NAMES, template="no slot")
    with refusal("options-exclude-each-other"):
        sentences.predict(TEXTS, labels=NAMES, multi=True)
    with refusal("options-exclude-each-other"):
        nli.predict(TEXTS, labels=NAMES, calibrate=True)
    with refusal("wrong-number-of-texts"):
        nli.predict([("a", "film")], labels=NAMES)
    with refusal("invalid-value", "zebra"):
        load(runs["pretrained"]).predict(TEXTS, labels=["film", "zebra"])
    for name in ("tagger", "classifier", "pairs", "labeller", "number", "windows", "reader", "encoder"):
        with refusal("unsupported-model"):
            load(runs[name]).predict(TEXTS, labels=NAMES)
    with pytest.raises(TypeError):
        nli.predict(TEXTS, labels="film")


def test_threads_share_a_model(sentences: Engine) -> None:
    sets = [["film", "play"], ["weather", "politics", "sport"]]
    expected = [table(sentences.predict(TEXTS, labels=names), names) for names in sets]
    found: dict[int, np.ndarray] = {}

    def work(number: int) -> None:
        for _ in range(3):
            found[number] = table(sentences.predict(TEXTS, labels=sets[number]), sets[number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(2):
        np.testing.assert_allclose(found[number], expected[number], atol=1e-5)
