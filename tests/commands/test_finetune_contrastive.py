"""osbert finetune contrastive: alike texts come to have near vectors, and the run's vectors are those it was taught."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import osbert
import three_ways
from osbert.commands.convert import convert
from osbert.commands.embed import embed
from osbert.commands.evaluate import evaluate
from osbert.commands.export import export
from osbert.commands.finetune import finetune
from osbert.commands.predict import predict
from osbert.interop.sentence_files import Prompts, SentenceModel, read_sentence_model, write_sentence_model
from osbert.runs.contract import Notice
from osbert.runs.settings import ExportSettings
from osbert.training.progress import Progress
from refusals import refusal

SAME = {"good": "fine", "bad": "poor"}
THINGS = ["film", "actor", "play", "a film", "the actor", "the plays", "a play .", "the film ."]


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """Return a two-column file in which two words mean the same, and so do two others."""
    rows = [f"{word} {thing}\t{SAME[word]} {thing}" for word, thing in product(SAME, THINGS)]
    path = tmp_path / "pairs.tsv"
    path.write_text("\n".join(rows * 4) + "\n")
    return path


@pytest.fixture
def scored(tmp_path: Path) -> Path:
    rows = ["sentence1,sentence2,score"]
    for thing in THINGS:
        rows += [f"good {thing},fine {thing},5", f"good {thing},poor {thing},1", f"bad {thing},poor {thing},5"]
    path = tmp_path / "sts.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


def test_hard_negatives_are_learnt_from(encoder: Path, pairs: Path, tmp_path: Path) -> None:
    # A negative is the second text of its pair with the word that means the opposite.
    lines = [line.split("\t") for line in pairs.read_text().splitlines()]
    other = {"fine": "poor", "poor": "fine"}
    rows = [
        {"text": first, "pair": second, "negative": " ".join([other[second.split()[0]], *second.split()[1:]])}
        for first, second in lines
    ]
    settings: dict[str, Any] = {"epochs": 4, "batch": 8, "learning_rate": 3e-3, "precision": "fp32", "pooling": "mean"}
    events: list[Any] = []
    data = {"train": rows, "dev": rows[:16]}
    run = osbert.finetune(
        "contrastive", model=encoder, data=data, out=tmp_path / "run", watch=events.append, **settings
    )
    with_negatives = run.predict([(rows[0]["text"], rows[0]["pair"]), (rows[0]["text"], rows[0]["negative"])])
    assert with_negatives[0].value > with_negatives[1].value + 0.2
    losses = [event.loss for event in events if isinstance(event, Progress)]
    assert losses[-1] < losses[0] and "negative" in (tmp_path / "run" / "recipe.toml").read_text()
    before = (tmp_path / "run" / "model.safetensors").read_bytes()
    plain = {split: [{"text": row["text"], "pair": row["pair"]} for row in own] for split, own in data.items()}
    osbert.finetune("contrastive", model=encoder, data=plain, out=tmp_path / "plain", **settings)
    assert (tmp_path / "plain" / "model.safetensors").read_bytes() != before


def test_pairs_are_learnt_and_the_run_is_a_model_of_sentences(
    encoder: Path, pairs: Path, scored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    settings = ("--epochs", "8", "--learning-rate", "3e-3", "--precision", "fp32", "--batch", "16")
    given = ("--sts", str(scored), "--pooling", "mean", "--micro-tokens", "8", *settings)
    finetune("contrastive", *given, model=encoder, data=pairs, out=run)
    told = capsys.readouterr().out
    assert told.count("before training") == 2 and "dev spearman" in told
    facts = json.loads((run / "run.json").read_text())["finished"]
    assert facts["best"]["metrics"]["spearman"] > max(0.6, facts["before"]["spearman"] + 0.1)
    predict(run, "good film", "fine film")
    alike = float(capsys.readouterr().out)
    predict(run, "good film", "poor film")
    assert float(capsys.readouterr().out) < alike <= 1
    evaluate(run, data=scored)
    assert f"{facts['best']['metrics']['spearman']:.4f}" in capsys.readouterr().out
    texts = tmp_path / "texts.txt"
    texts.write_text("good film\nfine film\n")
    embed(run, texts, out=tmp_path / "x.npy")
    assert "was trained for sentence vectors: pooling mean" in capsys.readouterr().out
    vectors = np.load(tmp_path / "x.npy")
    assert float(vectors[0] @ vectors[1]) == pytest.approx(alike, abs=1e-3)


def test_plain_texts_are_learnt_from_twice(encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("".join(f"{word} {thing}\n" for word, thing in product(["good", "bad", "poor"], THINGS)))
    finetune("contrastive", "--epochs", "1", "--precision", "fp32", model=encoder, data=texts, out=tmp_path / "run")
    told = capsys.readouterr().out
    assert "texts, each shown twice: dropout makes the difference" in told and "best: epoch 1" in told
    modules = json.loads((tmp_path / "run" / "modules.json").read_text())
    assert [part["type"].rpartition(".")[2] for part in modules] == ["Transformer", "Pooling", "Normalize"]


@pytest.mark.lab
def test_in_every_form_the_vectors_are_those_of_the_run(
    encoder: Path, pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its pooling, length and normalisation go along, and a head without scores does not stand in the way."""
    run, texts = tmp_path / "run", tmp_path / "texts.txt"
    given = ("--epochs", "1", "--precision", "fp32", "--pooling", "max", "--length", "8")
    finetune("contrastive", *given, model=encoder, data=pairs, out=run)
    short = ["good film", "the bad actor"]
    texts.write_text("good film\nthe poor actor plays a bad film . " + "a play " * 8)
    convert(run, tmp_path / "google", to="google")
    convert(tmp_path / "google", tmp_path / "back", to="osbert")
    convert(run, tmp_path / "huggingface", to="huggingface")
    convert(tmp_path / "google", tmp_path / "converted", to="onnx")
    capsys.readouterr()
    export(run, to="onnx", out=tmp_path / "exported")
    assert "an encoder, on 64 sequences of random pieces" in capsys.readouterr().out
    found = []
    for name in ("run", "back", "huggingface", "converted", "exported"):
        capsys.readouterr()
        embed(tmp_path / name, texts, out=tmp_path / f"{name}.npy")
        told = capsys.readouterr().out
        assert "trained for sentence vectors: pooling max, layers -1, at most 8 tokens, vectors of length 1" in told
        found.append(np.load(tmp_path / f"{name}.npy"))
        np.testing.assert_allclose(
            osbert.load(tmp_path / name).embed(texts.read_text().splitlines()), found[-1], atol=1e-6
        )
        ways = three_ways.vectors(tmp_path / name, short, tmp_path / f"{name}-ways")
        np.testing.assert_allclose(list(ways.values()), [ways["library"]] * 3, atol=1e-6)
    np.testing.assert_array_equal(found[1:3], [found[0]] * 2)
    np.testing.assert_allclose(found[3:], [found[0]] * 2, atol=1e-5)
    with refusal("options-exclude-each-other"):
        export(run, to="onnx", out=tmp_path / "again", settings=ExportSettings(data=pairs))


def test_each_column_is_read_with_its_prompt_and_the_run_keeps_them(encoder: Path, pairs: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"epochs": 1, "batch": 8, "learning_rate": 3e-3, "precision": "fp32", "pooling": "mean"}
    prompts = {"query_prompt": "the good ", "document_prompt": "a film "}
    run = osbert.finetune("contrastive", model=encoder, data=pairs, out=tmp_path / "run", **prompts, **settings)
    # The same training on texts that have the prompts in them.
    written = tmp_path / "written.tsv"
    lines = [line.split("\t") for line in pairs.read_text().splitlines()]
    written.write_text("".join(f"the good {first}\ta film {second}\n" for first, second in lines))
    osbert.finetune("contrastive", model=encoder, data=written, out=tmp_path / "written", **settings)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("run", "written")]
    assert weights[0] == weights[1]
    model, plain = osbert.load(tmp_path / "run"), osbert.load(tmp_path / "written")
    query, document = model.embed(["fine actor"], role="query"), model.embed(["poor play"], role="document")
    np.testing.assert_allclose(query, plain.embed(["the good fine actor"]), atol=1e-6)
    np.testing.assert_allclose(document, plain.embed(["a film poor play"]), atol=1e-6)
    [prediction] = run.predict([("fine actor", "poor play")])
    assert prediction.value == pytest.approx((query * document).sum(), abs=1e-6)
    # A second stage takes the prompts of the first, unless others are given.
    osbert.finetune("contrastive", model=tmp_path / "run", data=pairs, out=tmp_path / "next", **settings)
    again = osbert.load(tmp_path / "next")
    np.testing.assert_allclose(again.embed(["fine"], role="query"), again.embed(["the good fine"]), atol=1e-6)
    osbert.finetune(
        "contrastive", model=tmp_path / "run", data=pairs, out=tmp_path / "none",
        query_prompt="", document_prompt="", **settings,
    )  # fmt: skip
    none = osbert.load(tmp_path / "none")
    np.testing.assert_array_equal(none.embed(["fine"], role="query"), none.embed(["fine"]))
    # Single texts have no role: their prompt becomes the default one.
    texts = tmp_path / "texts.txt"
    texts.write_text("".join(f"{first}\n" for first, _ in lines))
    osbert.finetune(
        "contrastive", model=encoder, data=texts, out=tmp_path / "single",
        query_prompt="a film ", document_prompt="a film ", **settings,
    )  # fmt: skip
    single = osbert.load(tmp_path / "single")
    np.testing.assert_allclose(single.embed(["fine"]), single.embed(["fine"], role="document"), atol=1e-6)


def test_a_sentence_model_keeps_its_pooling_and_its_prompts(encoder: Path, pairs: Path, tmp_path: Path) -> None:
    """A second stage starts from the vectors of the first: no other pooling, no new layer, no prompt lost."""
    model = tmp_path / "model"
    shutil.copytree(encoder, model)
    texts = {"query": "the good ", "passage": "a film ", "topic": "play "}
    before = SentenceModel(pooling="cls+mean", normalize=True, length=16, prompts=Prompts(texts=texts, pooled=False))
    write_sentence_model(model, before, width=16)
    events: list[Any] = []
    settings: dict[str, Any] = {"epochs": 1, "batch": 16, "learning_rate": 1e-9, "precision": "fp32", "dimensions": [8]}
    run = osbert.finetune(
        "contrastive", model=model, data=pairs, out=tmp_path / "run", document_prompt="text: ", watch=events.append,
        **settings,
    )  # fmt: skip
    after = read_sentence_model(run.folder)
    assert after is not None
    assert after.pooling == "cls+mean" and list(run.model.source.matryoshka) == [8]
    assert after.prompts.texts == {**texts, "document": "text: "} and after.prompts.pooled
    told = "\n".join(event.text for event in events if isinstance(event, Notice))
    assert "query 'the good ', document 'text: '" in told and "does not pool the tokens of prompts" in told
    # At such a rate the vectors are those of before: what was trained is what is written.
    one, other = (osbert.load(folder).embed(["good film"]) for folder in (model, run.folder))
    assert float((one * other).sum()) > 0.999
    assert run.predict([("good film", "fine film")])[0].value == pytest.approx(
        float((run.model.embed(["good film"], role="query") * run.model.embed(["fine film"], role="document")).sum()),
        abs=1e-5,
    )
    # Its vectors can be cut: by the user, and by the folder as sentence-transformers' truncate_dim.
    cut = run.model.embed(["good film"])[:, :8]
    np.testing.assert_allclose(run.model.embed(["good film"], dimensions=8), cut / np.linalg.norm(cut), atol=1e-6)
    write_sentence_model(run.folder, replace(after, dimensions=8), width=16)
    np.testing.assert_allclose(osbert.load(run.folder).embed(["good film"]), cut, atol=1e-6)
    with refusal("invalid-value", "33", "32"):
        osbert.load(run.folder).embed(["good film"], dimensions=33)


def test_a_stop_between_steps_of_several_passes_changes_no_bit(encoder: Path, pairs: Path, tmp_path: Path) -> None:
    """Each pass of a step is computed twice with the same dropout (GradCache), also after a resumption."""
    rows = [line.split("\t") for line in pairs.read_text().splitlines()[:24]]
    data = [{"text": first, "pair": second, "negative": first} for first, second in rows]
    settings: dict[str, Any] = {"epochs": 2, "batch": 8, "micro_tokens": 24, "dropout": 0.3, "learning_rate": 1e-3}
    settings |= {"precision": "fp32", "data": {"train": data, "dev": data[:8]}, "model": encoder}

    def stop(event: Any) -> None:
        if isinstance(event, Progress) and event.step == 4:
            raise KeyboardInterrupt

    whole = osbert.finetune("contrastive", out=tmp_path / "whole", **settings)
    with pytest.raises(KeyboardInterrupt):
        osbert.finetune("contrastive", out=tmp_path / "run", watch=stop, **settings)
    assert [path.name for path in (tmp_path / "run").glob("checkpoints/step-*")] == ["step-4"]
    run = osbert.finetune("contrastive", out=tmp_path / "run", **settings)
    weights = [(folder / "model.safetensors").read_bytes() for folder in (run.folder, whole.folder)]
    assert weights[0] == weights[1] and run.metrics == whole.metrics


def test_scores_and_judgements_are_learnt_from(encoder: Path, scored: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"epochs": 8, "batch": 8, "learning_rate": 3e-3, "precision": "fp32", "pooling": "mean"}
    run = osbert.finetune("contrastive", model=encoder, data=scored, dev=scored, out=tmp_path / "graded", **settings)
    assert run.metrics["spearman"] > max(0.6, run.facts["before"]["spearman"])
    rows = [row.split(",") for row in scored.read_text().splitlines()[1:]]
    judged = [{"query": one, "document": other, "label": int(score) // 5} for one, other, score in rows]
    run = osbert.finetune("contrastive", model=encoder, data=judged, out=tmp_path / "judged", held_out=0.3, **settings)
    alike, other = run.predict([("good film", "fine film"), ("good film", "poor film")])
    assert alike.value > other.value + 0.05
    assert 'rows = "judged"' in (run.folder / "recipe.toml").read_text()
