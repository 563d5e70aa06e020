"""UniLM from text to both uses: pretrained in four modes, killed, then one checkpoint that reads and writes."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

import corpora
import osbert
from refusals import refusal
from terminal import run
from vocabularies import train

WORDS = ["good", "bad", "film", "play", "actor", "the", "a", "was", "and"]
SMALL = ("--layers", "2", "--width", "16", "--heads", "4", "--model.length", "32", "--data.length", "24")
STEPS = ("--batch", "16", "--steps", "12", "--log-every", "4", "--checkpoint-every", "6", "--device", "cpu")
SETTINGS = (*SMALL, *STEPS, "--precision", "fp32", "--dropout", "0.1", "--micro-tokens", "200")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = random.Random(0)
    lines = [". ".join(" ".join(rng.choices(WORDS, k=5)) for _ in range(6)) + "." for _ in range(60)]
    return corpora.build_corpus(tmp_path_factory.mktemp("texts"), lines, train(lines, vocabulary=60))


@pytest.fixture(scope="module", params=["masked", "shifted"])
def unilm(request: pytest.FixtureRequest, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("encoders") / request.param
    more = ("--prediction", request.param, "--models-every", "12")
    assert run("pretrain", "unilm-small", *SETTINGS, *more, "--corpus", corpus, "--out", out) == 0
    return out


def test_it_writes_as_it_was_pretrained_and_fills_masks(unilm: Path, tmp_path: Path) -> None:
    """The same from the run, from the model that it kept on the way, and from what `convert` makes of it."""
    converted = tmp_path / "converted"
    assert run("convert", unilm, converted, "--to", "osbert") == 0
    given = ["the film was good", "a", "a bad actor . " * 10]
    found = [osbert.load(folder) for folder in (unilm, unilm / "models" / "step-12", converted)]
    for model in found:
        assert model.pieces is not None and model.pieces.writes == unilm.name
        assert model.generate(given, most=9) == found[0].generate(given, most=9)
    together = found[0].generate(given, most=9)
    assert [found[0].generate([text], most=9)[0].text for text in given] == [one.text for one in together]
    assert all(one.pieces <= 9 and "[" not in one.text for one in together)
    assert [one.truncated for one in together] == [0, 0, len(found[0].tokenizer.encode(given[2])) - (32 - 9 - 2)]
    assert "".join(found[0].stream(given[0], most=9)) == together[0].text
    assert len(found[0].fill("the [MASK] was good")[0]) == 5
    with refusal("empty-text", "texts[1]"):
        found[0].generate(["good", " "])


def test_the_command_prints_what_is_written_alone(unilm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "a bad actor . " * 10
    assert run("generate", unilm, text, "--most", "9") == 0
    printed = capsys.readouterr()
    [expected] = osbert.load(unilm).generate([text], most=9)
    assert printed.out == expected.text + "\n" and f"{expected.truncated} pieces of the end" in printed.err


def test_a_head_that_writes_otherwise_is_refused(unilm: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(unilm, tmp_path / "other")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"osbert_writes": "backwards"}))
    with refusal("unsupported-model", "backwards"):
        osbert.load(folder, verify=False)


def test_it_is_fine_tuned_as_a_reader(unilm: Path, tmp_path: Path) -> None:
    rows = [("good film" if place % 2 else "bad film", "pos" if place % 2 else "neg") for place in range(24)]
    settings = {"epochs": 6, "batch": 8, "learning_rate": 1e-2, "device": "cpu", "precision": "fp32"}
    tuned = osbert.finetune("classify", model=unilm, data=rows, out=tmp_path / "tuned", **settings)
    assert [one.value for one in tuned.predict(["good play", "bad play"])] == ["pos", "neg"]
    with refusal("unsupported-model"):
        osbert.load(tmp_path / "tuned").generate(["good play"])


def test_killed_halfway_it_ends_in_the_same_bits(unilm: Path, corpus: Path, tmp_path: Path) -> None:
    """With dropout and several passes a step; kills by a signal are test_resume.py's."""
    cut = shutil.copytree(unilm, tmp_path / "cut")
    shutil.rmtree(cut / "checkpoints" / "step-12")
    for name in ("model.safetensors", "config.json", "held_out.npz", "report.html"):
        (cut / name).unlink()
    facts = json.loads((cut / "run.json").read_text())
    facts.pop("finished")
    (cut / "run.json").write_text(json.dumps(facts))
    more = ("--prediction", unilm.name, "--models-every", "12")
    assert run("pretrain", "unilm-small", *SETTINGS, *more, "--corpus", corpus, "--out", cut) == 0
    assert (unilm / "model.safetensors").read_bytes() == (cut / "model.safetensors").read_bytes()
