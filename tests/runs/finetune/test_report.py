"""The report of a fine-tuning: curves of runs of any length, the data, what is right and wrong; a learning curve."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import osbert
from osbert.errors import UserError
from osbert.runs.contract import Notice
from osbert.runs.events import Epoch
from osbert.runs.finetune import finetune as steps
from refusals import refusal
from tiny_runs import write_run

QUICK: dict[str, Any] = {
    "few_shot": "none",
    "batch": 8,
    "learning_rate": 1e-2,
    "precision": "fp32",
    "device": "cpu",
}
ROWS = [
    (f"the {word} film {'a ' * (number % 9)}", label)
    for number in range(16)
    for word, label in (("good", "pos"), ("bad", "neg"), ("fine", "pos"), ("poor", "neg"))
]
DEV = [*ROWS[:4], ("THE good  film", "neg"), *((f"{one} play", label) for one, label in ROWS[4:60])]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("encoder"), None)


@pytest.fixture(scope="module")
def run(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run of 8 steps, of which metrics.jsonl has one line."""
    out = tmp_path_factory.mktemp("runs") / "run"
    osbert.finetune("classify", model=encoder, data={"train": ROWS, "dev": DEV}, out=out, epochs=1, **QUICK)
    return out


def test_a_short_run_has_a_loss_curve(run: Path) -> None:
    page = (run / "report.html").read_text()
    loss = page[page.index("<b>Loss</b>") :]
    (points,) = re.findall(r'<polyline class="c0 line" points="([^"]*)"', loss)[:1]
    assert len(points.split()) == 8


def test_the_page_says_what_is_in_the_data_and_what_came_of_it(run: Path) -> None:
    page = (run / "report.html").read_text()
    sections = "Scores of the best epoch|Data|By label|By length|Probabilities|Wrong|Curves|Epochs|Settings"
    for heading in sections.split("|"):
        assert f"<h2>{heading}</h2>" in page
    assert "5 of 61 development rows have the texts of a training row" in page and "1 of them with another" in page
    assert len(page) < 200_000


@pytest.mark.lab
def test_a_learning_curve_is_added_to_the_finished_run_once(run: Path, encoder: Path) -> None:
    said: list[str] = []

    def watch(event: Any) -> None:
        if isinstance(event, Notice):
            said.append(event.text)

    call: dict[str, Any] = {"model": encoder, "data": {"train": ROWS, "dev": DEV}, "out": run, "epochs": 1, **QUICK}
    for _ in range(2):
        osbert.finetune("classify", **call, learning_curve=True, watch=watch)
    page = (run / "report.html").read_text()
    assert page.count("<h2>Learning curve</h2>") == 1 and "<h2>Settings</h2>" in page
    curve = page[page.index("<h2>Learning curve</h2>") :]
    for rows in (8, 16, 32, 64):
        assert f"<td>{rows}</td>" in curve and any(line.startswith(f"{rows} rows: dev accuracy") for line in said)
    assert sum("before training" in line or line.startswith("best:") for line in said) == 2


@pytest.mark.lab
def test_a_part_that_fails_is_named_and_the_others_are_shown(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[Any] = []
    train = steps.train

    def diverge(plan: Any, rows: Any, model: Any, out: Path, *more: Any) -> Epoch:
        if out.name == "1-8":
            raise UserError("The losses became infinite.", code="training-diverged")
        return train(plan, rows, model, out, *more)

    monkeypatch.setattr(steps, "train", diverge)
    call: dict[str, Any] = {"data": {"train": ROWS, "dev": DEV}, "out": tmp_path / "run", "epochs": 1, **QUICK}
    run = osbert.finetune("classify", model=encoder, learning_curve=True, watch=said.append, **call)
    [warning] = [one.text for one in said if isinstance(one, Notice) and one.warning and "1/8" in one.text]
    assert "infinite" in warning
    curve = (run.folder / "report.html").read_text().partition("<h2>Learning curve</h2>")[2]
    assert "<td>16</td>" in curve and "<td>8</td>" not in curve and "1/8 of the training rows (8)" in curve


@pytest.mark.lab
def test_a_learning_curve_needs_one_task_one_run_and_some_rows(encoder: Path, tmp_path: Path) -> None:
    call: dict[str, Any] = {"model": encoder, "out": tmp_path / "run", "learning_curve": True, **QUICK}
    with refusal("options-exclude-each-other"):
        osbert.finetune("classify", data={"train": ROWS, "dev": DEV}, seeds=2, **call)
    with refusal("too-little-data", "32"):
        osbert.finetune("classify", data={"train": ROWS[:16], "dev": DEV}, epochs=1, **call)


def test_the_summary_of_numbers_and_of_one_row(encoder: Path, tmp_path: Path) -> None:
    rows = [(f"the {'good ' * number} film", float(number)) for number in range(1, 10)]
    data = {"train": rows, "dev": rows[:1]}
    osbert.finetune("regress", model=encoder, data=data, out=tmp_path / "run", epochs=1, **QUICK)
    page = (tmp_path / "run" / "report.html").read_text()
    assert ">1 to 9</td>" in page and "1 of 1 development rows have the texts" in page
