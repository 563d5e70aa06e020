"""osbert reproduce table2, table3, table4: questions and choices, from official files to figures beside the paper's."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path
from typing import Any

import pytest

import terminal
from osbert.inference.engine import load
from osbert.tasks import load as load_records
from osbert_lab.papers.children import ChildCommands
from osbert_lab.papers.data import sample_parts
from osbert_lab.papers.tables import read_table
from osbert_lab.study.runner import StudyTrial
from refusals import refusal

SETTINGS = {"epochs": "1", "batch": "4", "learning-rate": "1e-2", "precision": "fp32"}
QUICK = [word for name, value in SETTINGS.items() for word in (f"--finetuning.{name}", value)]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a folder with squad, both releases in small under the names of a selection, and swag."""
    rng = random.Random(0)
    (tmp_path / "data" / "squad").mkdir(parents=True)
    (tmp_path / "data" / "swag").mkdir()
    for release in ("1.1", "2.0"):
        for split, count in (("train", 12), ("dev", 6)):
            content = {"version": release, "data": [{"title": "x", "paragraphs": paragraphs(rng, count, release)}]}
            path = tmp_path / "data" / "squad" / f"{split}-v{release}-mini.json"
            path.write_text(json.dumps(content), "utf-8")
    for name, count in (("train", 12), ("val", 6)):
        with (tmp_path / "data" / "swag" / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["", "sent1", "sent2", "ending0", "ending1", "ending2", "ending3", "label"])
            for number in range(count):
                writer.writerow([number, "the actor\nplays", "a", "good film", "bad", "poor", "fine", number % 4])
    return tmp_path / "data"


def paragraphs(rng: random.Random, count: int, release: str) -> list[dict[str, Any]]:
    """Return paragraphs with two questions each; with 2.0 the second has no answer."""
    found = []
    for number in range(count):
        words = rng.choices(["film", "a", "the", "actor"], k=5) + ["good"]
        answer = {"text": "good", "answer_start": len(" ".join(words)) - 4}
        asked = [{"id": f"{number}-{place}", "question": "the film", "answers": [answer]} for place in range(2)]
        if release == "2.0":
            asked[1] |= {"answers": [], "is_impossible": True}
        found.append({"context": " ".join(words), "qas": asked})
    return found


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Run jobs here; return the names of those that were run."""
    ran: list[str] = []

    def work(self: ChildCommands, trial: StudyTrial) -> None:
        ran.append(trial.name)
        assert terminal.run(*trial.settings) == 0

    monkeypatch.setattr(ChildCommands, "work", work)
    return ran


def words(table: str, encoder: Path, data: Path, out: Path, *more: str) -> list[str]:
    given = ["--model", str(encoder), "--data", str(data), "--out", str(out), *QUICK]
    return ["reproduce", table, *given, *more]


def counted(folder: Path) -> Path:
    """Return the run that counts: models as small as these collapse now and then."""
    again = folder.with_name(f"{folder.name}-again")
    return again if again.exists() else folder


def best(folder: Path) -> dict[str, float]:
    folder = counted(folder)
    return json.loads((folder / "run.json").read_text())["finished"]["best"]["metrics"]


def test_table_2_has_its_seeds_and_their_ensemble(
    encoder: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], in_this_process: list[str]
) -> None:
    out = tmp_path / "out"
    again = words("table2", encoder, data, out, "--seeds", "2", "--rows", "9", "--dev-rows", "8")
    assert terminal.run(*again) == 0
    printed = capsys.readouterr().out
    scores = json.loads((out / "results.json").read_text())["scores"]
    runs = [out / "runs" / "ours" / f"seed-{seed}" / "SQuAD-1-1" for seed in range(2)]
    assert scores["ours"] == {
        "dev EM": [best(run)["exact"] for run in runs],
        "dev F1": [best(run)["f1"] for run in runs],
    }
    train = json.loads((out / "data" / "SQuAD-1-1" / "train-v1.1.json").read_text())["data"]
    assert len(train) == 4  # whole paragraphs with 8 questions
    assert "at most 9 training rows" in printed and "at most 8 development rows" in printed
    # By hand: of each question the text with the highest sum of both runs' probabilities.
    engines = [load(counted(run)) for run in runs]
    _, by_split = load_records(engines[0].fine_tuned, ("dev",), fit=False)
    assert len(by_split["dev"]) == 8
    hits = 0
    for record, *both in zip(by_split["dev"], *(engine.predict_records(by_split["dev"]) for engine in engines)):
        sums: dict[str, float] = {}
        for candidate in (one for answer in both for one in answer.candidates):  # type: ignore[attr-defined]
            sums[candidate.text] = sums.get(candidate.text, 0) + candidate.probability
        hits += max(sums, key=sums.__getitem__) == record.label[0].text
    assert scores["ours, ensemble"]["dev EM"] == [pytest.approx(hits / len(by_split["dev"]))]
    lines = [line.replace("!", "").split() for line in printed.splitlines()]
    assert ["BERT", "BASE", "(80.8)", "(88.5)", "-", "-"] in lines and "Ensemble: the runs of 2 seeds" in printed
    assert ["BERT", "LARGE,", "ensemble", "(85.8)", "(91.8)", "-", "-"] in lines
    (ours,) = [line for line in lines if line[:2] == ["ours,", "ensemble"]]
    assert ours[2] == f"{100 * hits / len(by_split['dev']):.1f}" and ours[4:] == ["-", "-"]
    assert "squad/train-v1.1-mini.json, squad/dev-v1.1-mini.json" in printed
    in_this_process.clear()
    assert terminal.run(*again) == 0 and not in_this_process and "ensemble: the answers" not in capsys.readouterr().out


def test_table_3_tells_the_scores_at_the_tuned_threshold(
    encoder: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert terminal.run(*words("table3", encoder, data, out, "--seeds", "1")) == 0
    found = best(out / "runs" / "ours" / "seed-0" / "SQuAD-2-0")
    assert found["f1"] == pytest.approx(found["best_f1"])
    line = next(
        line.replace("!", "").split() for line in capsys.readouterr().out.splitlines() if line.startswith("ours  ")
    )
    assert line == ["ours", f"{100 * found['exact']:.1f}", f"{100 * found['f1']:.1f}", "-", "-"]


def test_table_4_reads_swags_columns(
    encoder: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert terminal.run(*words("table4", encoder, data, out, "--seeds", "1", "--rows", "8")) == 0
    with (out / "data" / "SWAG" / "train.csv").open(newline="") as file:
        assert [row["sent1"] for row in csv.DictReader(file)] == ["the actor\nplays"] * 8
    found = best(out / "runs" / "ours" / "seed-0" / "SWAG")["accuracy"]
    lines = [line.replace("!", "").split() for line in capsys.readouterr().out.splitlines()]
    assert ["ours", f"{100 * found:.1f}", "-"] in lines and ["human,", "expert", "-", "(85.0)"] in lines


@pytest.mark.parametrize(
    ("table", "files"),
    [
        ("table2", ("squad/train-v1.1.json", "squad/dev-v1.1.json")),
        ("table3", ("squad/train-v2.0.json", "squad/dev-v2.0.json")),
        ("table4", ("swag/train.csv", "swag/val.csv")),
    ],
)
def test_absent_data_are_told(
    table: str, files: tuple[str, str], encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert terminal.run(*words(table, encoder, tmp_path, tmp_path / "out")) == 1
    told = capsys.readouterr().err
    assert all(str(tmp_path / name) in told for name in files)
    assert not (tmp_path / "out").exists()


def test_a_file_of_another_form_is_told(data: Path, tmp_path: Path) -> None:
    (data / "squad" / "train-v1.1-mini.json").write_text('{"data": [{"title": "x"}]}')
    (dataset,) = read_table("table2").columns
    with refusal("wrong-format", "train-v1.1", "-mini.json"):
        dataset.prepare(data, tmp_path / "out", rows=5)


def test_parts_are_drawn_until_there_are_enough_rows() -> None:
    assert (
        sample_parts([3, 3, 3], 0) == [0, 1, 2]
        and len(sample_parts([3, 3, 3], 6)) == len(sample_parts([3, 3, 3], 8)) == 2
    )
    assert len(sample_parts([3, 3, 3], 1)) == 1 and sample_parts([], 5) == []
