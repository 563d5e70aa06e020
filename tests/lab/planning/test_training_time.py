"""How long a fine-tuning takes is said before its linear layer and after its first steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import osbert
from osbert.runs.contract import Notice
from osbert.runs.events import Epoch
from osbert.training.progress import Progress
from osbert_lab.planning import training_time

ROWS = [{"text": f"a {word} film {number}", "label": word} for number in range(20) for word in ("good", "bad", "fine")]


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock by which ten seconds pass each time that it is read."""
    seconds = iter(range(0, 1_000_000, 10))
    monkeypatch.setattr(training_time, "time", type("Clock", (), {"monotonic": lambda: next(seconds)}))


def events(runs: dict[str, Path], out: Path, few_shot: str) -> list[Any]:
    noted: list[Any] = []
    osbert.finetune(
        "classify", model=runs["encoder"], data=ROWS, out=out, few_shot=few_shot, epochs=2, batch=8, watch=noted.append
    )
    return noted


def position(noted: list[Any], word: str) -> list[int]:
    return [
        index for index, event in enumerate(noted)
        if isinstance(event, Notice) and event.text.startswith("time: ") and word in event.text
    ]  # fmt: skip


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("few_shot", ["linear-first", "contrastive"])
def test_the_time_is_said_before_the_layer_and_after_a_few_steps(
    runs: dict[str, Path], tmp_path: Path, few_shot: str
) -> None:
    noted = events(runs, tmp_path / "run", few_shot)
    [layer], [steps] = position(noted, "to read"), position(noted, "more steps")
    first = next(index for index, event in enumerate(noted) if isinstance(event, Epoch))
    taken = [index for index, event in enumerate(noted) if isinstance(event, Progress)]
    assert layer < first < taken[2] < steps < taken[3]


@pytest.mark.usefixtures("slow")
def test_a_new_layer_needs_no_fit(runs: dict[str, Path], tmp_path: Path) -> None:
    noted = events(runs, tmp_path / "run", "none")
    assert len(position(noted, "more steps")) == 1 and not position(noted, "to read")


def test_of_short_runs_nothing_is_said(runs: dict[str, Path], tmp_path: Path) -> None:
    assert not position(events(runs, tmp_path / "run", "linear-first"), "")
