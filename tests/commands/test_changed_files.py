"""A file that another program rewrites while predict or embed reads it: an error, never rows that are missing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from osbert.commands.embed import embed
from osbert.commands.predict import predict
from osbert.reading import data_file
from osbert.runs.rows import embed as embed_run
from osbert.runs.rows import predict as predict_rows
from osbert.runs.rows import vector_parts as windows
from osbert.runs.rows.texts import TextRows
from refusals import refusal

CSV = "text,n\ngood film,1\nbad film,2\nfine,3\nplay,4\n"
CHANGES = {
    "malformed": CSV.replace("bad film,2", "bad film"),
    "emptied": "",
    "cut": CSV[: CSV.index("fine")],
    "longer": CSV + "more,5\n",
    "other columns": "n,text\n" + CSV.partition("\n")[2],
    "other text": CSV.replace("fine", "poor"),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "in.csv"
    path.write_text(CSV)
    return path


def after(first: Callable[..., object], path: Path, content: str) -> Callable[..., object]:
    """Return the first pass, after which another program writes the file."""

    def passed(*given: object, **named: object) -> object:
        found = first(*given, **named)
        path.write_text(content)
        return found

    return passed


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_predict_refuses_a_file_that_changed_after_its_check(
    run: Path, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, kept: bool
) -> None:
    if not kept:  # as of a large file, which each pass reads again
        monkeypatch.setattr(data_file, "SMALL", 0)
    job = predict_rows.PredictionJob
    monkeypatch.setattr(job, "check", after(job.check, path, CHANGES[change]))
    with refusal("file-changed", "in.csv") as error:
        predict(run, file=path, out=tmp_path / "out.csv")
    assert ("unusable-row" in error.value.codes and "in.csv, line 3" in str(error.value)) == (
        change == "malformed" and not kept
    )
    assert list(tmp_path.glob("*out*")) == []


@pytest.mark.parametrize("change", CHANGES)
def test_embed_refuses_a_file_that_changed_after_its_check(
    encoder: Path, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    job = embed_run.EmbeddingJob
    with monkeypatch.context() as patched, refusal("file-changed", "in.csv"):
        patched.setattr(job, "check", after(job.check, path, CHANGES[change]))
        embed(encoder, path, out=tmp_path / "x.npz")
    assert list(tmp_path.glob("*x.npz*")) == []
    path.write_text(CSV)
    embed(encoder, path, out=tmp_path / "x.npz")
    assert (tmp_path / "x.npz").exists()


def test_windows_before_the_change_are_kept_and_of_the_first_content(
    encoder: Path, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(windows, "ROWS", 2)
    embed(encoder, path, out=tmp_path / "whole.npz")
    with monkeypatch.context() as patched, refusal("file-changed"):
        patched.setattr(windows.RowBatches, "compute", after(windows.RowBatches.compute, path, CHANGES["other text"]))
        embed(encoder, path, out=tmp_path / "x.npz")
    path.write_text(CSV)
    embed(encoder, path, out=tmp_path / "x.npz")
    assert "going on after 2 of 4 texts" in capsys.readouterr().out
    assert (tmp_path / "x.npz").read_bytes() == (tmp_path / "whole.npz").read_bytes()


def test_a_file_whose_times_alone_changed_is_the_same(
    run: Path, encoder: Path, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def touched(first: Callable[..., object]) -> Callable[..., object]:
        def passed(*given: object, **named: object) -> object:
            found = first(*given, **named)
            os.utime(path, (1, 1))
            return found

        return passed

    monkeypatch.setattr(predict_rows.PredictionJob, "check", touched(predict_rows.PredictionJob.check))
    monkeypatch.setattr(TextRows, "check", touched(TextRows.check))
    predict(run, file=path, out=tmp_path / "out.csv")
    embed(encoder, path, out=tmp_path / "x.npz")
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 5 and (tmp_path / "x.npz").exists()
