"""The data map of a fine-tuning: wrong labels come first, also after a stop; rows that can have none are refused."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

import osbert
from osbert.runs.events import Epoch
from osbert.tasks.kinds.regress import Regress
from refusals import refusal
from tiny_runs import write_run

QUICK: dict[str, Any] = {
    "epochs": 3, "batch": 8, "learning_rate": 3e-3, "dropout": 0.0, "precision": "fp32", "device": "cpu",
}  # fmt: skip
WRONG = (11, 40, 73)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "reviews.csv"
    words = [("good", "pos"), ("bad", "neg")] * 60
    rows = [(f"the {word} film{' a' * (number % 3)}", label) for number, (word, label) in enumerate(words)]
    rows = [
        (text, {"pos": "neg", "neg": "pos"}[label] if place in WRONG else label)
        for place, (text, label) in enumerate(rows)
    ]
    path.write_text("".join(f"{text},{label}\n" for text, label in [("text", "label"), *rows]))
    (tmp_path / "dev.csv").write_text("text,label\nthe good film,pos\nthe bad film,neg\n")
    return path


def test_wrong_labels_come_first_also_after_a_stop(table: Path, tmp_path: Path) -> None:
    encoder = write_run(tmp_path / "encoder", None, deviation=0.3)

    def run(name: str, **more: Any) -> list[dict[str, str]]:
        done = osbert.finetune(
            "classify",
            model=encoder,
            data=table,
            dev=str(tmp_path / "dev.csv"),
            out=tmp_path / name,
            data_map=True,
            **QUICK,
            **more,
        )
        with (done.folder / "data_map.csv").open(newline="") as stream:
            return list(csv.DictReader(stream))

    def stop(event: object) -> None:
        if isinstance(event, Epoch) and event.epoch == 2:
            raise KeyboardInterrupt

    rows = run("whole")
    assert len(rows) == 120 and {int(row["line"]) for row in rows[:3]} == {place + 2 for place in WRONG}
    assert {row["correctness"] for row in rows[:3]} == {"0.0000"} and rows[3]["correctness"] == "1.0000"
    assert rows[0]["file"] == str(table) and len([name for name in rows[0] if name.startswith("score ")]) == 3
    with pytest.raises(KeyboardInterrupt):
        run("stopped", watch=stop)
    assert [path.name for path in (tmp_path / "stopped").glob("map-epoch-*.npy")]
    assert run("stopped") == rows and not [*(tmp_path / "stopped").glob("map-epoch-*.npy")]
    page = (tmp_path / "whole" / "report.html").read_text()
    assert "Data map" in page and f"reviews.csv, line {WRONG[0] + 2}" in page


def test_rows_without_a_label_that_has_a_probability_have_no_map(tmp_path: Path) -> None:
    (tmp_path / "numbers.csv").write_text("text,label\n" + "the film,1.5\na good film,2.5\n" * 9)
    encoder = write_run(tmp_path / "encoder", None)
    with refusal("options-exclude-each-other", "--data-map"):
        osbert.finetune(
            Regress(), model=encoder, data=tmp_path / "numbers.csv", out=tmp_path / "run", data_map=True, **QUICK
        )
    assert not (tmp_path / "run").exists()
