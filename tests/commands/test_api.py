"""osbert.evaluate and osbert.export: they print nothing, and check their keywords."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import osbert
from refusals import refusal


@pytest.fixture
def place(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints"))
    (tmp_path / "more.csv").write_text("text,label\ngood film,pos\na bad play,neg\nfine,pos\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_nothing_is_printed_and_events_are_watched(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events: list[Any] = []
    (place / "b.csv").write_text("a,b\ngood film,pos\nbad,neg\n")
    scores = osbert.evaluate("run", data="b.csv", text="a", label="b", watch=events.append)
    messages = [str(event) for event in events]
    assert scores["accuracy"] == 1 and messages[0] == "rows of b.csv"
    assert len(messages) == 2 and "train" in messages[1], "both texts are among the training rows"
    assert capsys.readouterr() == ("", "")


def test_misspelt_keywords_name_the_nearest(place: Path) -> None:
    with refusal("unknown-setting", "label"):
        osbert.evaluate("run", data="more.csv", lable="b")
    with refusal("unknown-setting", "tolerance"):
        osbert.export("run", tolerence=0.1)
