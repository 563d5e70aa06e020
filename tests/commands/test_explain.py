"""osbert explain: the words of a text's prediction, and those that drive each label of a file."""

from __future__ import annotations

import csv
import itertools
import json
import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import osbert
from osbert.inference.explain import explain_records
from osbert.runs.rows import explain as explained_rows
from refusals import refusal, refused
from terminal import end_with, told


def test_the_words_of_a_text(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = told(capsys, "explain", run, "the film a good actor")
    assert done.status == 0, done.error
    head, strongest, *_, trust = done.output.splitlines()
    assert head.startswith("pos: +") and "good" in strongest and "(11-15 of text 1)" in strongest
    assert "completeness error 0." in trust and " points; rank correlation with occlusion " in trust
    done = told(capsys, "explain", run, "the film a good actor", "--label", "neg", "--method", "occlusion", "--json")
    [one] = json.loads(done.output.splitlines()[-1])["explanations"]
    assert one["label"] == "neg" and one["error"] is None and one["score"] < 0
    good = next(word for word in one["words"] if word["word"] == "good")
    assert good["weight"] == good["occlusion"] < 0 and (good["start"], good["end"], good["text"]) == (11, 15, 0)


def test_the_words_of_a_file(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = tmp_path / "rows.csv", tmp_path / "why"
    words = {"pos": ["good", "fine"], "neg": ["bad", "poor"]}
    rows = [(f"a {word} film, {other}", label) for label in words for word in words[label] for other in ("é😀", "the")]
    lines = [f'"{text}",{label}' for text, label in rows * 2] + ['"",pos']
    file.write_text("\n".join(["text,score", *lines]) + "\n", encoding="utf-8")
    done = told(capsys, "explain", run, "--file", file, "--out", out, "--no-check")
    assert done.status == 0 and "16 explanations of 17 rows" in done.output, done.error
    with (out / "rows.csv").open(encoding="utf-8") as stream:
        table = list(csv.DictReader(stream))
    assert [row["text"] for row in table] == [text for text, _ in rows * 2] + [""]
    for row, (text, label) in zip(table, rows * 2):
        assert row["prediction"] == row["explained"] == label == row["score"]  # the column of the file itself
        assert row["word 1"] in words[label] and row["word 1"] in text and float(row["weight 1"]) > 0
        assert float(row["completeness error"]) <= 0.02
    assert table[-1]["prediction"] == table[-1]["word 1"] == ""
    said = json.loads((out / "words.json").read_text(encoding="utf-8"))
    for label, own in words.items():
        found = {one["word"]: one for one in said["labels"][label]["for"]}
        assert {*own} <= {*found} and all(found[word]["count"] == 4 and found[word]["low"] > 0 for word in own)
        assert all(word in found[word]["example"] for word in own)
    page = (out / "report.html").read_text(encoding="utf-8")
    assert 'class="for4"' in page and "<script" not in page and "😀" in page and "95% interval" in page
    (out / ".rows.csv.kept.part").write_text("")  # of a call that was killed
    again = osbert.explain(run, file, out=out, check=False)
    assert (again.rows, again.empty, again.explanations) == (17, 1, 16)
    assert json.loads((out / "words.json").read_text(encoding="utf-8")) == said


def test_entities_are_written_as_predict_writes_them(runs: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("text\nthe good actor plays a film .\n")
    osbert.explain(runs["tagger"], tmp_path / "in.csv", out=tmp_path / "why", check=False)
    osbert.predict(runs["tagger"], tmp_path / "in.csv", out=tmp_path / "out.csv")
    cells = []
    for path in (tmp_path / "why" / "rows.csv", tmp_path / "out.csv"):
        with path.open(encoding="utf-8", newline="") as stream:
            cells.append(next(csv.DictReader(stream))["prediction"])
    explained, predicted = ([(one["start"], one["end"], one["text"]) for one in json.loads(cell)] for cell in cells)
    assert explained == predicted != []


def test_what_was_not_read_is_counted(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, long = osbert.load(run), "good " * 600
    [found], [predicted] = model.explain(long, check=False), model.predict([long])
    assert found.truncated == predicted.truncated > 0
    assert f"{found.truncated:,} pieces" in [*found.lines()][-1]
    (tmp_path / "rows.csv").write_text(f"text\n{long}\ngood\n")
    done = told(capsys, "explain", run, "--file", tmp_path / "rows.csv", "--out", tmp_path / "why", "--no-check")
    assert done.status == 0
    with (tmp_path / "why" / "rows.csv").open(encoding="utf-8") as stream:
        assert [row["truncated"] for row in csv.DictReader(stream)] == [str(found.truncated), "0"]
    assert (
        "1:" in json.loads((tmp_path / "why" / "words.json").read_text())["trust"]["of texts that were not read whole"]
    )


def test_what_cannot_be_explained(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("text\ngood\n")
    refused(told(capsys, "explain", run), "missing-option")
    refused(told(capsys, "explain", run, "--file", file), "missing-option")
    refused(told(capsys, "explain", run, file), "missing-option", "--file")
    refused(told(capsys, "explain", run, "good", "--label", "poss"), "unknown-label", "poss", "pos")
    refused(told(capsys, "explain", run, "good", "--points", 0), "invalid-value", "points")
    assert told(capsys, "explain", run, "good", "--baseline", "nothing").status == 2
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "thesis.txt").write_text("")
    with refusal("output-holds-something-else", "kept"):
        osbert.explain(run, file, out=tmp_path / "kept")
    with refusal("unknown-setting", "points"):
        osbert.explain(run, file, out=tmp_path / "why", point=3)
    file.write_text("text\n")
    with refusal("no-data", "rows.csv"):
        osbert.explain(run, file, out=tmp_path / "why")
    assert not (tmp_path / "why").exists()


def test_a_file_goes_on_after_a_kill(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(explained_rows, "WINDOW", 4)
    file, out, unfinished = tmp_path / "rows.csv", tmp_path / "why", tmp_path / "why.unfinished"
    file.write_text("id,text\n" + "".join(f"{n},a {['good', 'bad', 'fine', 'poor'][n % 4]} film\n" for n in range(15)))
    words = ("explain", run, "--file", file, "--no-check", "--json")
    assert told(capsys, *words, "--out", tmp_path / "whole").status == 0
    osbert.load(run)  # so that the child forks with what it needs

    def signalled(number: int, windows: int) -> Callable[..., Any]:
        """Return `explain_records`, which sends its process a signal before window number `windows`."""
        calls = itertools.count(1)

        def explained(*given: Any, **how: Any) -> Any:
            if next(calls) == windows:
                os.kill(os.getpid(), number)
            return explain_records(*given, **how)

        return explained

    def child() -> None:
        monkeypatch.setattr("osbert.inference.explain.explain_records", signalled(signal.SIGKILL, 3))
        end_with([*map(str, words), "--out", str(out)])

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL and not out.exists()
    before = (unfinished / "rows.bin").read_bytes()
    assert before.count(b"\n") == 8
    with refusal("begun-with-other-settings", "why.unfinished"):
        osbert.explain(run, file, out=out, check=False, points=8)
    with monkeypatch.context() as patched:
        patched.setattr("osbert.inference.explain.explain_records", signalled(signal.SIGTERM, 2))
        done = told(capsys, *words, "--out", out)
    events = [json.loads(line) for line in done.output.splitlines()]
    assert done.status == 143
    assert [one["done"] for one in events if one["event"] == "explanation-progress"] == [8, 12]
    [stopped] = [one["text"] for one in events if one.get("warning")]
    assert "12 of 15 rows" in stopped and str(unfinished) in stopped
    assert (unfinished / "rows.bin").read_bytes().startswith(before)
    assert told(capsys, *words, "--out", out).status == 0 and not unfinished.exists()
    for path in (tmp_path / "whole").iterdir():
        assert (out / path.name).read_bytes() == path.read_bytes(), path.name
