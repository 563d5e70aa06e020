"""osbert reproduce families and figure5: from a corpus and data sets to curves, scores and what they say of them."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

import corpora
import terminal
from osbert.runs.pretrain import budget
from osbert_lab.papers.children import ChildCommands
from osbert_lab.papers.tables import read_table
from osbert_lab.static_vectors import clock as vectors_clock
from osbert_lab.study.runner import StudyTrial
from refusals import refusal
from vocabularies import train

SIZES = {"model.layers": 1, "width": 16, "heads": 2, "model.feedforward": 0, "model.length": 32, "data.length": 24}
TINY = {**SIZES, "data.batch": 4, "held-out": 0.05, "pretraining.training.precision": "fp32"}
TUNING = {"epochs": 1, "length": 24, "training.precision": "fp32", "training.batch": 16}
QUICK = [f"--{name}={value}" for name, value in TINY.items()]
QUICK += [f"--finetuning.{name}={value}" for name, value in TUNING.items()]


class Killed(BaseException):
    """Stands for a kill."""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a corpus, SST-2 and MNLI in the official layout, and reviews of one's own."""
    folder, documents = tmp_path_factory.mktemp("inputs"), corpora.invented()
    built = corpora.build_corpus(folder / "text", documents, train(documents, vocabulary=120))
    built.rename(folder / "corpus")
    texts = [document[:60].strip() for document in documents[:48]]
    sets = {
        "SST-2": ("sentence\tlabel", ("train.tsv", "dev.tsv"), "{text}\t{place}"),
        "MNLI": (
            "index\tsentence1\tsentence2\tgold_label",
            ("train.tsv", "dev_matched.tsv"),
            "0\t{text}\t{text}\t{word}",
        ),
        "mine": ("text\tlabel", ("train.tsv", "dev.tsv"), "{text}\t{word}"),
    }
    for name, (header, files, form) in sets.items():
        (folder / "data" / name).mkdir(parents=True)
        for file, rows in zip(files, (texts[:32], texts[32:])):
            places = [(text, place % 2, "xyz"[place % 3]) for place, text in enumerate(rows)]
            lines = [form.format(text=text, place=place, word=word) for text, place, word in places]
            (folder / "data" / name / file).write_text("\n".join([header, *lines]) + "\n", "utf-8")
    return folder


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Run a study's commands here, as if a step took half a second; return the names of the trials that were run."""
    ran: list[str] = []

    def work(self: ChildCommands, trial: StudyTrial) -> None:
        ran.append(trial.name)
        assert terminal.run(*trial.settings) == 0

    costs = budget.Costs(spent=1.0, start=0.5, step=0.5, look=0.05, checkpoint=0.05, end=0.5)
    monkeypatch.setattr(budget, "measure_costs", lambda *_: costs)
    monkeypatch.setattr(budget, "SLACK", math.inf)
    monkeypatch.setattr(ChildCommands, "work", work)
    return ran


def killed_at(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Have the study die when the trial of a name begins."""
    before = ChildCommands.work

    def killed(self: ChildCommands, trial: StudyTrial) -> None:
        if trial.name == name:
            raise Killed
        before(self, trial)

    monkeypatch.setattr(ChildCommands, "work", killed)


def again(names: list[str]) -> set[str]:
    """Return the trials that stood in for collapsed ones: models as small as these collapse now and then."""
    return {name for name in names if ", again with seed" in name}


def test_families_have_the_same_minutes_and_go_on_after_a_kill(
    inputs: Path, ran, tmp_path, monkeypatch, capsys
) -> None:
    out = tmp_path / "out"
    words = ["reproduce", "families", "--corpus", inputs / "corpus", "--data", inputs / "data", "--out", out]
    words += ["--recipes", "bert-fast,gpt-small", "--tasks", f"sst2,classify={inputs / 'data' / 'mine'}"]
    words += ["--seeds", "1", "--minutes", "0.1", *QUICK]
    with monkeypatch.context() as patched, pytest.raises(Killed):
        killed_at(patched, "gpt, seed 0, mine")
        terminal.run(*words)
    first = [*ran]
    ran.clear()
    assert terminal.run(*words) == 0
    printed = capsys.readouterr().out
    assert not {*first} & {*ran} and "gpt, seed 0, mine" in ran
    assert {*first, *ran} - again([*first, *ran]) == {
        f"{row}, seed 0{column}" for row in ("bert-fast", "gpt") for column in ("", ", SST-2", ", mine")
    }
    results = json.loads((out / "results.json").read_text("utf-8"))
    assert {row: {*found} for row, found in results["scores"].items()} == {
        row: {"SST-2", "mine (accuracy)"} for row in ("bert-fast", "gpt")
    }
    for row, objectives in (("bert-fast", ("mlm", "nsp")), ("gpt", ("left_to_right",))):
        [seen] = results["pretraining"][row]
        assert (seen["step"] > 1, seen["parameters"] > 0, seen["tokens"] > 0) == (True, True, True)
        assert all(f"held_out.{name}.loss" in seen for name in objectives)
        assert results["protocol"]["pretraining"][row]["minutes"] == 0.1
    page = (out / "report.html").read_text("utf-8")
    assert page.count("<svg") == 2 and "--seeds 3" in page and "Claims" not in page
    assert (out / "table.txt").read_text("utf-8") in printed
    ran.clear()
    assert terminal.run(*words) == 0 and not ran


def test_recipes_of_ones_own_come_as_they_stand(inputs: Path, ran, tmp_path, capsys) -> None:
    own = tmp_path / "mine.toml"
    own.write_text('objectives = ["mlm"]\n[model]\nlayers = 2\nwidth = 16\nheads = 2\n[data]\nlength = 16\n', "utf-8")
    words = ["reproduce", "families", "--corpus", inputs / "corpus", "--data", inputs / "data", "--out", tmp_path / "o"]
    words += [
        "--recipes",
        own,
        "--tasks",
        "sst2",
        "--seeds",
        "1",
        "--minutes",
        "0.1",
        "--data.batch",
        "4",
        "--rows",
        "8",
    ]
    assert terminal.run(*words, *QUICK[-4:]) == 0
    settings = json.loads((tmp_path / "o" / "protocol.json").read_text("utf-8"))["pretraining"]["mine"]
    assert (settings["model"]["layers"], settings["data"]["length"], settings["data"]["batch"]) == (2, 16, 4)
    assert [name for name in ran if name not in again(ran)] == ["mine, seed 0", "mine, seed 0, SST-2"]


def test_all_that_is_wrong_is_said_before_any_training(inputs: Path, ran, tmp_path, capsys) -> None:
    given = ["--corpus", inputs / "corpus", "--data", inputs / "data", "--out", tmp_path / "out"]
    for words, values in (
        ("--recipes bert-fast,nonsense --tasks sst3,tag --jobs 2", ("nonsense", "sst3", "tag=FOLDER", "--jobs")),
        ("--tasks rte,classify=/no/where,sst2 --mlm.rate 0.3", ("RTE/train.tsv", "/no/where", "gpt", "mlm.rate")),
        ("--tasks sst2,sst2", ("'SST-2' twice",)),
        ("--recipe cpu-like --points 3", ("--recipe cpu-like", "--recipes cpu-like", "--points 3")),
        ("--steps 5", ("--steps 5", "bert-fast", "modernbert", "minutes")),
    ):
        assert terminal.run("reproduce", "families", *given, *words.split()) == 1
        error = capsys.readouterr().err
        assert all(value in error for value in values), error
    for words, values in (
        (["--minutes", "1"], ("--steps", "--minutes")),
        (["--points", "9", "--steps", "8"], ("--points 9", "8 steps")),
        (["--recipes", "cpu"], ("--recipes", "--recipe ")),
        (["--tasks", "rte"], ("RTE/dev.tsv",)),
    ):
        assert terminal.run("reproduce", "figure5", *given, *words) == 1
        error = capsys.readouterr().err
        assert all(value in error for value in values), error
    assert not ran and not (tmp_path / "out" / "runs").exists()


def test_figure_5_is_made_of_checkpoints_of_two_runs_and_goes_on_after_a_kill(
    inputs: Path, ran, tmp_path, monkeypatch, capsys
) -> None:
    out = tmp_path / "out"
    words = ["reproduce", "figure5", "--corpus", inputs / "corpus", "--data", inputs / "data", "--out", out]
    words += ["--seeds", "2", "--steps", "6", "--points", "2", *QUICK]
    with monkeypatch.context() as patched, pytest.raises(Killed):
        killed_at(patched, "masked LM, step 3, seed 0, MNLI-m")
        terminal.run(*words)
    first = [*ran]
    ran.clear()
    assert terminal.run(*words) == 0
    printed = capsys.readouterr().out
    assert first[:2] == ["masked LM, seed 0", "left to right, seed 0"] and not {*first} & {*ran}
    tuned = [name for name in (*first[2:], *ran) if name not in again([*first, *ran])]
    assert {*tuned} == {
        f"{curve}{step}, seed {seed}, MNLI-m"
        for curve in ("masked LM", "left to right")
        for step in ("", ", step 3")
        for seed in range(2)
    }
    scores = json.loads((out / "results.json").read_text("utf-8"))["scores"]["MNLI-m"]
    for curve in ("masked LM", "left to right"):
        assert [*scores[curve]] == ["3", "6"] and all(len(found) == 2 for found in scores[curve].values())
    runs = out / "runs"
    early = json.loads((runs / "masked-LM--step-3" / "seed-0" / "MNLI-m" / "run.json").read_text())
    assert early["settings"]["model"] == str(runs / "masked-LM" / "seed-0" / "encoder" / "models" / "step-3")
    page = (out / "report.html").read_text("utf-8")
    assert page.count("<svg") == 1 and "almost 1.0%" in page and "almost 1.0%" in printed
    assert re.search(r"^3 +\d+\.\d +\d+\.\d$", printed, re.MULTILINE)


def test_generations_have_vectors_of_words_beside_an_encoder(
    inputs: Path, ran: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(vectors_clock, "ENDING", 60.0)
    (inputs / "data" / "words").mkdir()
    (inputs / "data" / "words" / "wordsim353.csv").write_text("a,b,score\nthe,a,9\nof,the,5\n")
    words = ["reproduce", "generations", "--corpus", inputs / "corpus", "--data", inputs / "data", "--tasks", "sst2"]
    words += ["--out", tmp_path / "out", "--recipes", "word2vec,gpt-small", "--seeds", "1", "--minutes", "0.1", *QUICK]
    assert terminal.run(*words) == 0
    printed = capsys.readouterr().out
    assert {*ran} - again(ran) == {
        f"{row}, seed 0{column}"
        for row in ("word2vec", "GPT")
        for column in ("", ", SST-2, features", ", SST-2, fine-tuned")
    }
    results = json.loads((tmp_path / "out" / "results.json").read_text("utf-8"))
    for row in ("word2vec", "GPT"):
        assert {"SST-2, features", "SST-2, fine-tuned"} <= {*results["scores"][row]}
        assert results["pretraining"][row][0]["tokens"] > 0
    assert results["protocol"]["pretraining"]["word2vec"]["width"] == 16
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "SST-2, by year" in page and "What fine-tuning adds" in page and "So far" not in printed


def test_encoders_of_other_masks_are_compared_on_the_same_masked_words(
    inputs: Path, ran: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    documents = corpora.invented()
    tokenizer = train(documents, vocabulary=120)
    phrases = tuple(" ".join(document.lower().split()[:2]) for document in documents)
    for name, own in (("text", documents), ("other", corpora.invented(seed=1))):
        for ending, texts, units in (("", documents, ()), ("-phrases", own, phrases)):
            built = corpora.build_corpus(tmp_path / "built", texts, tokenizer, phrases=units)
            built.rename(tmp_path / f"{name}{ending}")
    words = ["reproduce", "masking", "--data", inputs / "data", "--out", tmp_path / "out", "--tasks", "sst2"]
    words += ["--seeds", "1", "--minutes", "0", "--pretraining.steps", "3", *QUICK]
    with refusal("invalid-setting", tmp_path / "other-phrases"):
        read_table("masking").with_corpora(tmp_path / "other")
    assert terminal.run(*words, "--corpus", tmp_path / "text") == 0
    printed, results = capsys.readouterr().out, json.loads((tmp_path / "out" / "results.json").read_text("utf-8"))
    masked = {row: score for row, [score] in results["same masks"].items()}
    assert [*masked] == ["pieces", "whole words", "n-grams", "phrases"] and "loss on the same masks" in printed
    assert len({score["pieces"] for score in masked.values()}) == 1
    assert len({score["loss"] for score in masked.values()}) == 4
    # The row whose masks they are was scored on them at the end of its pretraining, too; the others on their own.
    trained = {row: run for row, [run] in results["pretraining"].items()}
    for row, same in {"whole words": True, "pieces": False, "phrases": False}.items():
        own_figure = trained[row]["held_out.mlm.loss"]
        assert same is (own_figure == pytest.approx(masked[row]["loss"], abs=1e-5))
    assert results["scores"]["n-grams"]["same masks"] == [masked["n-grams"]["accuracy"]]
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "the number of steps in its settings" in page and "minutes on the clock" not in page
