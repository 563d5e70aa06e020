"""osbert duplicates: from texts or vectors to a table, and what it refuses."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest

import osbert
from refusals import refusal
from terminal import run as terminal_run

TEXTS = ["a good film", "bad", "the plays , the actor", "bad", "poor actor", "a good film", "bad"]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "texts.csv"
    path.write_text("n,text\n" + "".join(f'{n},"{text}"\n' for n, text in enumerate(TEXTS)))
    return path


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_duplicates_of_texts_and_of_their_vectors(
    encoder: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "found.csv"
    assert terminal_run("duplicates", table, "--model", encoder, "--above", "0.9999", "--out", out) == 0
    said = capsys.readouterr().out
    assert "7 texts: 3 repeat an earlier one, in 2 groups" in said and "line 3, again in 5, 8: bad" in said
    assert [(row["group"], row["line"], row["kept"], row["kept_line"], row["text"]) for row in read(out)] == [
        ("1", "2", "yes", "2", "a good film"),
        ("2", "3", "yes", "3", "bad"),
        ("2", "5", "no", "3", "bad"),
        ("1", "7", "no", "2", "a good film"),
        ("2", "8", "no", "3", "bad"),
    ]
    for form in ("npy", "npz", "parquet"):
        osbert.embed(encoder, table, out=tmp_path / f"x.{form}")
        found = osbert.find_duplicates(tmp_path / f"x.{form}", above=0.9999, out=tmp_path / "found.jsonl")
        assert found.kept_lines.tolist() == [2, 3, 4, 6]
        lines = [json.loads(line) for line in (tmp_path / "found.jsonl").read_text().splitlines()]
        assert [line["line"] for line in lines] == [2, 3, 5, 7, 8]


def test_texts_come_from_standard_input_too(
    encoder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(TEXTS).encode())))
    assert terminal_run("duplicates", "-", "--model", encoder, "--above", "0.9999") == 0
    assert "7 texts: 3 repeat an earlier one" in capsys.readouterr().out


def test_what_cannot_be_compared_is_said(encoder: Path, table: Path, tmp_path: Path) -> None:
    find = osbert.find_duplicates
    with refusal("missing-option", "--model"):
        find(table)
    with refusal("no-data"):
        find([], model=encoder)
    (tmp_path / "empty.txt").write_text("\n")
    with refusal("no-data", "empty.txt"):
        find(tmp_path / "empty.txt", model=encoder)
    with refusal("too-little-data"):
        find(["one text"], model=encoder)
    with refusal("invalid-value", "--above", "1.5"):
        find(table, model=encoder, above=1.5)
    with refusal("output-is-input", table):
        find(table, model=encoder, out=table)
    with refusal("wrong-column-type", "dict"):
        find({"text": TEXTS}, model=encoder)
    osbert.embed(encoder, table, out=tmp_path / "stacked.npz", layers="0,1")
    with refusal("wrong-format", "0,1"):
        find(tmp_path / "stacked.npz")
    osbert.embed(encoder, table, out=tmp_path / "x.npy")
    with refusal("options-exclude-each-other", "x.npy", "--model", "--text"):
        find(tmp_path / "x.npy", model=encoder, text="text")
    vectors = np.load(tmp_path / "x.npy")
    vectors[4, 2] = np.nan
    np.save(tmp_path / "x.npy", vectors)
    for ask in (lambda: find(tmp_path / "x.npy"), lambda: osbert.search(tmp_path / "x.npy", vectors[:1])):
        with refusal("not-finite", "4"):
            ask()
    assert not (tmp_path / "t").exists()
