"""Runs of word2vec and GloVe: vectors of words that occur together, stopped and gone on with, and used as any model."""

from __future__ import annotations

import json
import random
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import osbert
from osbert.inference.embedder import remarks
from osbert.inference.vectors.settings import EmbeddingOptions
from osbert.runs.events import Measurement
from osbert.runs.pretrain.pretraining import PretrainRequest, pretrain
from osbert.training.interruption import Interruption, StopRequest
from osbert.training.run_folder import RunFolder
from osbert_lab.static_vectors import clock, learners
from osbert_lab.static_vectors.word_vectors import read_word_vectors
from refusals import refusal
from terminal import run

TOPICS = ("apple pear plum cherry grape", "lion tiger wolf bear fox")
QUICK: dict[str, dict[str, Any]] = {
    "word2vec": {"width": 12, "epochs": 8, "learning_rate": 0.05, "workers": 1, "sample": 0.0},
    "glove": {"width": 12, "epochs": 8, "window": 5, "largest": 100.0, "workers": 1},
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents of one topic each."""
    folder, rng = tmp_path_factory.mktemp("words"), random.Random(0)
    texts = [" ".join(rng.choices(rng.choice(TOPICS).split(), k=8)) for _ in range(400)]
    (folder / "texts.txt").write_text("\n".join(texts) + "\n")
    osbert.train_tokenizer(folder / "texts.txt", out=folder / "vocabulary", kind="words", vocabulary=50)
    osbert.build_corpus(
        folder / "texts.txt", tokenizer=folder / "vocabulary", out=folder / "corpus", workers=1, documents="line"
    )
    return folder / "corpus"


def table(folder: Path) -> np.ndarray[Any, Any]:
    return osbert.load(folder).backend.learner.backbone.table.weight.detach().numpy()


@pytest.mark.parametrize("method", QUICK)
def test_words_of_a_topic_are_alike(method: str, corpus: Path, tmp_path: Path) -> None:
    made = osbert.pretrain(method, corpus=corpus, out=tmp_path / "run", **QUICK[method])
    vectors = made.model.embed(" ".join(TOPICS).split())
    alike = vectors @ vectors.T
    same = np.kron(np.eye(2), np.ones((5, 5))) > 0
    assert alike[same].min() > alike[~same].max()
    assert made.metrics["step"] == 8 and made.metrics[f"{method}.loss"] > 0
    (remark,) = remarks(EmbeddingOptions(), made.model)
    assert "static" in remark and "sentence" not in remark
    assert np.array_equal(table(tmp_path / "run")[:5], np.zeros((5, 12)))
    assert run("convert", str(tmp_path / "run"), str(tmp_path / "words.vec"), "--to", "word2vec") == 0
    assert set(read_word_vectors(tmp_path / "words.vec").words) == set(" ".join(TOPICS).split())


@pytest.mark.parametrize("method", QUICK)
def test_a_stopped_run_goes_on_to_the_same_vectors(method: str, corpus: Path, tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    osbert.pretrain(method, corpus=corpus, out=whole, **QUICK[method])
    wish, events = Interruption(), []

    def stop(event: Any) -> None:
        events.append(event)
        if isinstance(event, Measurement) and event.values["step"] == 3:
            wish.signal = signal.SIGTERM

    request = PretrainRequest(recipe=method, settings=QUICK[method], corpus=corpus, out=cut)
    with pytest.raises(StopRequest):
        pretrain(request, watch=stop, wish=wish)
    with refusal("unfinished-run"):
        osbert.load(cut)
    osbert.pretrain(method, corpus=corpus, out=cut, **QUICK[method])
    assert (cut / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    steps = [line["step"] for line in map(json.loads, (cut / "metrics.jsonl").read_text().splitlines())]
    assert steps == [*range(1, 9)]
    with refusal("begun-with-other-settings", "width"):
        osbert.pretrain(method, corpus=corpus, out=cut, **{**QUICK[method], "width": 13})


def test_a_resumed_run_has_the_time_that_it_had_left(corpus: Path, tmp_path: Path) -> None:
    """Also of what passed before its first round, in which GloVe counts pairs."""
    wish = Interruption()

    def stop(event: Any) -> None:
        if isinstance(event, Measurement):
            wish.signal = signal.SIGTERM

    settings = {**QUICK["glove"], "minutes": 10}
    with pytest.raises(StopRequest):
        pretrain(PretrainRequest(recipe="glove", settings=settings, corpus=corpus, out=tmp_path), watch=stop, wish=wish)
    noted = tmp_path / "checkpoints" / "spent.json"
    [line] = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert json.loads(noted.read_text())["seconds"] > line["seconds"]
    noted.write_text('{"seconds": 600}')
    assert osbert.pretrain("glove", corpus=corpus, out=tmp_path, **settings).metrics["step"] == 2


@pytest.mark.parametrize("method", QUICK)
def test_minutes_replace_the_epochs(method: str, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With no time at all a run learns from one block, or one step, and says how long it took."""
    monkeypatch.setattr(learners, "BLOCK", 500)
    monkeypatch.setattr(clock, "ENDING", 60.0)
    made = osbert.pretrain(method, corpus=corpus, out=tmp_path / "run", **QUICK[method], minutes=0.01)
    assert made.metrics["step"] == 1 and 0 < made.metrics["tokens"] <= 500 and made.metrics["seconds"] > 0
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert facts["budget"] == {"minutes": 0.01}
    assert facts["finished"]["wall_seconds"] > 0 and not facts["finished"]["resumed"]
    assert RunFolder(tmp_path / "run").pretraining_tokens == made.metrics["tokens"]


def test_cbow_in_two_processes(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learners, "BLOCK", 500)
    settings = {**QUICK["word2vec"], "method": "cbow", "workers": 2, "epochs": 2}
    made = osbert.pretrain("word2vec", corpus=corpus, out=tmp_path / "run", **settings)
    assert np.isfinite(table(tmp_path / "run")).all() and made.metrics["step"] == 2
    assert not (tmp_path / "run" / "tables.npy").exists()


def test_what_vectors_cannot_be_learnt_with_is_refused(corpus: Path, tmp_path: Path) -> None:
    for given, code in (({"window": 0}, "invalid-setting"), ({"layers": 2}, "unknown-setting")):
        with refusal(code):
            osbert.pretrain("word2vec", corpus=corpus, out=tmp_path / "run", **given)
    with refusal("options-exclude-each-other", "--from"):
        pretrain(PretrainRequest(recipe="glove", corpus=corpus, out=tmp_path / "run", origin=tmp_path))
    assert run("bench", "word2vec", "--corpus", str(corpus)) == 1


@pytest.mark.parametrize("method", QUICK)
def test_words_that_stand_alone_are_too_little(method: str, corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("pear\nunknown\n")
    osbert.build_corpus(tmp_path / "texts.txt", tokenizer=corpus, out=tmp_path / "corpus", workers=1, documents="line")
    with refusal("too-little-data"):
        osbert.pretrain(method, corpus=tmp_path / "corpus", out=tmp_path / "run", **QUICK[method])
    with refusal("too-little-data"):  # no word is kept
        osbert.pretrain("word2vec", corpus=corpus, out=tmp_path / "none", **QUICK["word2vec"] | {"sample": 1e-30})
