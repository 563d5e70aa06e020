"""CoVe from pairs of texts to a translator whose encoder serves vectors, tags and translation."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import osbert
from osbert.runs.pretrain.settings import read_plan
from refusals import refusal
from terminal import run

SMALL = ("--model.width", "16", "--steps", "12", "--log-every", "3", "--batch", "16", "--data.length", "24")
QUICK = ("--device", "cpu", "--precision", "fp32")


@pytest.fixture(scope="module")
def cove(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cove")
    names = [f"{one}{two}" for one in ("ba", "lo", "mi") for two in ("da", "fa", "ki", "na")]
    pairs = [f"{one} {two} .\nx{two} x{one} .\n" for one in names for two in names]
    (folder / "pairs.txt").write_text("\n".join(pairs))
    (folder / "multi30k").mkdir()
    for split in ("train", "val"):
        for language, line in (("en", 0), ("de", 1)):
            lines = [pair.splitlines()[line] for pair in pairs[:16]]
            (folder / "multi30k" / f"{split}.{language}").write_text("\n".join(lines) + "\n")
    words = ("--kind", "words", "--vocabulary", "60")
    assert run("tokenizer", "train", folder / "pairs.txt", *words, "--out", folder / "vocabulary") == 0
    assert (
        run("corpus", "build", folder / "pairs.txt", "--tokenizer", folder / "vocabulary", "--out", folder / "c") == 0
    )
    assert run("pretrain", "cove-small", *SMALL, *QUICK, "--corpus", folder / "c", "--out", folder / "cove") == 0
    return folder


def test_it_learns_writes_and_gives_its_layers(cove: Path) -> None:
    lines = [json.loads(line) for line in (cove / "cove" / "metrics.jsonl").read_text().splitlines()]
    losses = [line["translation.loss"] for line in lines if "translation.loss" in line]
    assert losses[-1] < losses[0]
    model, texts = osbert.load(cove / "cove"), ["bada loki .", "mina ."]
    assert len(model.generate(texts, most=5)) == 2
    ends, parts = model.embed(texts, layers="concat-ends"), [model.embed(texts, layers=name) for name in ("0", "-1")]
    np.testing.assert_allclose(ends, np.concatenate(parts, 1), atol=1e-6)
    with refusal("invalid-setting", "translation"):
        read_plan("cove-small", {"objectives": ["mlm"]}, corpus=cove / "c", out=cove / "masked")


@pytest.mark.parametrize("task", ["multi30k", "tag"])
def test_tasks_stand_on_it(cove: Path, task: str) -> None:
    data, settings = cove / "multi30k", ()
    if task == "tag":
        rows = [["bada B-K", "loki O", ". O", ""], ["mina O", "bada B-K", ". O", ""]] * 4
        data, settings = cove / "tags.txt", ("--dev", cove / "tags.txt", "--features", "concat-ends")
        data.write_text("\n".join(line for row in rows for line in row) + "\n")
    chosen = ("--epochs", "1", "--batch", "8", *QUICK, *settings)
    assert run("finetune", task, "--model", cove / "cove", "--data", data, *chosen, "--out", cove / f"run-{task}") == 0
    assert len(osbert.load(cove / f"run-{task}").predict(["bada loki ."])) == 1


def test_documents_that_are_no_pairs_are_counted_or_refused(cove: Path, tmp_path: Path) -> None:
    """The refusals come before anything is written."""
    text = (cove / "pairs.txt").read_text()
    built = {"some": (text + "\nmina . loki .\nbada . fa .\n", {}), "none": ("mina . loki . bada .\n\nmina .", {})}
    built["fewer-lines"] = text, {"deduplicate": True}
    for name, (texts, settings) in built.items():
        (tmp_path / f"{name}.txt").write_text(texts)
        osbert.build_corpus(tmp_path / f"{name}.txt", tokenizer=cove / "vocabulary", out=tmp_path / name, **settings)
    (remark,) = read_plan("cove-small", {}, corpus=tmp_path / "some").remarks
    assert "144 of 145" in remark
    for name, code, *values in (("none", "too-little-data", "2"), ("fewer-lines", "invalid-setting", "--deduplicate")):
        with refusal(code, "translation", name, *values):
            osbert.pretrain("cove-small", corpus=tmp_path / name, out=tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()
    unfit = {"general": tmp_path / "none.txt", "objectives": ["translation"], "device": "cpu"}
    with refusal("too-little-data", "general", "translation"):
        osbert.adapt(cove / "cove", [tmp_path / "some.txt"], out=tmp_path / "run", **unfit)
    assert not (tmp_path / "run" / "run.json").exists()


def write_vectors(path: Path, words: list[str], width: int) -> dict[str, list[float]]:
    """Write a file of word vectors in GloVe's form; return them."""
    rng = np.random.default_rng(0)
    vectors = {word: [round(float(number), 4) for number in rng.normal(size=width)] for word in words}
    path.write_text("".join(f"{word} {' '.join(map(str, vector))}\n" for word, vector in vectors.items()))
    return vectors


def test_the_source_has_and_keeps_given_vectors(cove: Path, tmp_path: Path) -> None:
    """McCann et al. 2017, section 3: the encoder reads GloVe's vectors, and words without one have 0."""
    words = [f"{one}{two}" for one in ("ba", "lo") for two in ("da", "fa", "ki", "na")]
    given = write_vectors(tmp_path / "glove.txt", [*words, "elsewhere"], 8)
    assert run("convert", tmp_path / "glove.txt", tmp_path / "glove", "--to", "osbert") == 0
    settings = ("--translation.vectors", tmp_path / "glove", "--model.own-tables", "true")
    arguments = ("pretrain", "cove-small", *SMALL, *QUICK, *settings, "--corpus", cove / "c", "--out", tmp_path / "run")
    assert run(*arguments) == 0
    model = osbert.load(tmp_path / "run")
    table, tokenizer = model.learner.backbone, model.tokenizer
    rows = {word: table.words.weight[index].tolist() for index, word in enumerate(tokenizer.vocabulary)}
    assert {word: rows[word] for word in words} == {word: pytest.approx(given[word]) for word in words}
    assert not any(rows["mida"]) and not any(rows["xmida"]) and table.target_words.weight.any(dim=1).all()
    # [GloVe; CoVe]: the lowest layer is the vector, the last one the LSTM's states.
    pooled = model.embed(["bada lofa"], layers="0", pooling="mean")
    assert len(pooled[0]) == 16
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    losses = [line["translation.loss"] for line in lines if "translation.loss" in line]
    assert losses[-1] < losses[0]
    assert len(model.generate(["bada loki ."], most=5)) == 1
    with refusal("invalid-setting", "own_tables"):
        read_plan("cove-small", {"translation.vectors": str(tmp_path / "glove"), "model.width": 16}, corpus=cove / "c")
    wide = {"translation.vectors": str(tmp_path / "glove"), "model.width": 32, "model.own_tables": True}
    with refusal("invalid-setting", "model.width = 16"):
        read_plan("cove-small", wide, corpus=cove / "c")
