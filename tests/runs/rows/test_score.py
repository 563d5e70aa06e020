"""osbert score: a file's rows with their scores, stopped and gone on with; one text on the command line."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import pytest

import osbert
from osbert.runs.contract import Notice
from osbert.runs.rows import score as scoring
from osbert.runs.rows import texts as row_texts
from refusals import refusal
from terminal import told

TEXTS = ["the good film", "", "a bad play .", "actors", "a fine film"]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "texts.csv"
    path.write_text("id,text,tokens\n" + "".join(f"{place},{text},x\n" for place, text in enumerate(TEXTS)))
    return path


def test_each_row_has_its_score_and_the_file_its_perplexity(runs: dict[str, Path], table: Path, tmp_path: Path) -> None:
    tally = osbert.score(runs["pretrained"], table, out=tmp_path / "out.csv", device="cpu")
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
    assert [row["id"] for row in rows] == list("01234") and rows[0]["tokens"] == "x"
    expected = osbert.load(runs["pretrained"]).score([text for text in TEXTS if text])
    found = [row for row in rows if row["log_likelihood"]]
    assert [float(row["log_likelihood"]) for row in found] == pytest.approx(
        [one.log_likelihood for one in expected], abs=1e-4
    )
    assert [int(row["tokens 2"]) for row in found] == [one.tokens for one in expected]
    total = math.fsum(one.log_likelihood for one in expected)
    assert (tally.rows, tally.empty, tally.tokens) == (5, 1, sum(one.tokens for one in expected))
    assert tally.perplexity == pytest.approx(math.exp(-total / tally.tokens), rel=1e-4)
    assert tally.word_perplexity == pytest.approx(math.exp(-total / tally.words), rel=1e-4)


def test_a_stopped_call_goes_on_to_the_same_file(
    runs: dict[str, Path], table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = osbert.score(runs["pretrained"], table, out=tmp_path / "whole.jsonl", device="cpu")
    monkeypatch.setattr(row_texts, "WINDOW", 2)
    real, calls = scoring.score_texts, []

    def stopping(*given: object) -> object:
        calls.append(given[2])
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(scoring, "score_texts", stopping)
    with pytest.raises(KeyboardInterrupt):
        osbert.score(runs["pretrained"], table, out=tmp_path / "out.jsonl", device="cpu")
    with refusal("begun-with-other-settings", "masking"):
        osbert.score(runs["pretrained"], table, out=tmp_path / "out.jsonl", device="cpu", masking="word")
    again = osbert.score(runs["pretrained"], table, out=tmp_path / "out.jsonl", device="cpu")
    assert calls[0] == ["the good film"] and calls[2:] == [["a bad play .", "actors"], ["a fine film"]]
    assert again == whole and (tmp_path / "out.jsonl").read_text() == (tmp_path / "whole.jsonl").read_text()
    assert not (tmp_path / "out.jsonl.unfinished").exists()


def test_numbers_that_json_has_not_are_null_and_named(runs: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "a film", "n": 1}\n{"text": "a play", "n": 1e400}\n')
    events: list[object] = []
    osbert.score(runs["pretrained"], tmp_path / "in.jsonl", out=tmp_path / "out.jsonl", watch=events.append)
    rows = [json.loads(line, parse_constant=pytest.fail) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["n"] for row in rows] == [1, None]
    assert [
        event
        for event in events
        if isinstance(event, Notice) and event.warning and "'n' (first in line 2)" in str(event)
    ]


def test_texts_that_cannot_be_scored_are_all_named_before_anything_is_written(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("a film\n" + "a film " * 12 + "\n\n" + "a play " * 12 + "\n")
    with refusal("text-too-long", "line 2", "line 4"):
        osbert.score(runs["pretrained"], path, out=tmp_path / "out.csv")
    with refusal("unknown-output-format", "out.txt"):
        osbert.score(runs["pretrained"], path, out=tmp_path / "out.txt")
    with refusal("unsupported-model", "classifier"):
        osbert.score(runs["classifier"], path, out=tmp_path / "out.csv")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["texts.txt"]


def test_the_command_line_prints_pieces_and_streams_rows(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = told(capsys, "score", runs["pretrained"], "the good film", "a play", "--device", "cpu")
    assert done.status == 0 and done.output.count("log-likelihood") == 2 and "  good" in done.output
    done = told(capsys, "score", runs["pretrained"], "actors", "--masking", "word", "--json")
    (one,) = json.loads(done.output.splitlines()[-1])["scores"]
    assert [piece["piece"] for piece in one["pieces"]] == ["actor", "##s"] and one["words"] == 1
    path = tmp_path / "texts.txt"
    path.write_text("a film\n\na play\n")
    done = told(capsys, "score", runs["pretrained"], "--file", path)
    rows = [json.loads(line) for line in done.output.splitlines()]
    assert [row["tokens"] for row in rows] == [2, None, 2] and "perplexity" in done.error
    assert told(capsys, "score", runs["pretrained"]).codes == ["missing-option"]


@pytest.mark.parametrize("form", ["tsv", "jsonl", "parquet"])
def test_every_form_holds_the_scores(runs: dict[str, Path], table: Path, tmp_path: Path, form: str) -> None:
    if form == "parquet":
        pytest.importorskip("pyarrow", reason="needs the extra parquet")
    osbert.score(runs["pretrained"], table, out=tmp_path / "out.csv")
    osbert.score(runs["pretrained"], table, out=tmp_path / f"out.{form}")
    tables = [read_rows(tmp_path / name) for name in ("out.csv", f"out.{form}")]
    for column in ("log_likelihood", "tokens 2", "perplexity"):
        expected, values = ([float(row[column]) if row[column] else None for row in rows] for rows in tables)
        assert values == pytest.approx(expected) and values[1] is None


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of an output by their columns."""
    if path.suffix == ".parquet":
        from pyarrow import parquet

        rows: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
        return rows
    lines = path.read_text().splitlines()
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in lines]
    return [*csv.DictReader(lines, delimiter="\t" if path.suffix == ".tsv" else ",")]
