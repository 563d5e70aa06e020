"""osbert predict on many rows: stopped at any window, from and to standard streams, and the columns on request."""

from __future__ import annotations

import csv
import io
import json
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import osbert
from forked import start_script
from osbert.commands.predict import predict
from osbert.inference.engine import Engine, load
from osbert.runs.contract import WorkProgress
from osbert.runs.file_options import FileOptions
from osbert.runs.rows import predict as predict_run
from osbert.runs.rows.forms import parquet as forms_parquet
from osbert.runs.rows.output import RowOutput
from osbert.runs.rows.prediction_settings import PredictionOptions
from refusals import refusal

WORDS = ("good", "a bad play", "film . the actor", "", "poor films " * 20)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "in.csv"
    path.write_text("id,text\n" + "".join(f"{n},{WORDS[n % 5]} {'film ' * (n % 7)}\n" for n in range(60)))
    return path


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("osbert.runs.rows.predict.TEXTS", 8)


def stopped_once(run: Path, file: Path, out: Path, options: PredictionOptions) -> None:
    """Predict, and press Ctrl-C after the second window that this call has written."""
    begun: list[int] = []

    def stop(event: Any) -> None:
        if isinstance(event, WorkProgress):
            begun.append(event.done)
            if len(begun) == 3:
                raise KeyboardInterrupt

    predict_run.predict_file(run, file, output=RowOutput(path=out), written=options, watch=stop)


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
@pytest.mark.usefixtures("narrow")
def test_a_prediction_that_is_stopped_again_and_again_ends_in_the_same_bytes(
    runs: dict[str, Path], file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    run, out, options = runs["classifier"], tmp_path / f"stopped.{form}", PredictionOptions(top_k=2, abstain=0.6)
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            stopped_once(run, file, out, options)
        assert not out.exists()
        with (tmp_path / f"{out.name}.unfinished" / "rows.bin").open("ab") as part:
            part.write(b"half a window")  # which a kill may leave
    for one in (out, tmp_path / f"whole.{form}"):
        predict(run, file=file, out=one, written=options)
    said = capsys.readouterr().err
    assert said.count("going on after 48 of 60 rows") == 1 and said.count("60 rows") == 3
    assert out.read_bytes() == (tmp_path / f"whole.{form}").read_bytes()
    assert not list(tmp_path.glob("*.unfinished"))


def test_a_killed_prediction_goes_on(
    runs: dict[str, Path], file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], narrow: None
) -> None:
    out = tmp_path / "out.csv"
    program = (
        "import sys, time; from osbert.cli import main; from osbert.runs.rows.machine import GrowingFiles\n"
        "from osbert.runs.rows import predict; predict.TEXTS = 8\n"
        "append = GrowingFiles.append\n"
        "GrowingFiles.append = lambda *given: (append(*given), time.sleep(0.2))\n"
        "sys.exit(main())"
    )
    words = ["predict", runs["classifier"], "--file", file, "--out", out]
    (tmp_path / "killed.py").write_text(program)
    killed = start_script(tmp_path / "killed.py", [*map(str, words)], {}, tmp_path / "killed.log")
    progress = tmp_path / "out.csv.unfinished" / "progress.json"
    deadline = time.monotonic() + 120
    while not (progress.is_file() and json.loads(progress.read_text())["tally"]["read"] >= 16):
        assert killed.is_alive() and time.monotonic() < deadline
        time.sleep(0.02)
    killed.kill()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL and not out.exists()
    for one in (out, tmp_path / "whole.csv"):
        predict(runs["classifier"], file=file, out=one)
    assert "going on after " in capsys.readouterr().err
    assert out.read_bytes() == (tmp_path / "whole.csv").read_bytes()


@pytest.mark.usefixtures("narrow")
def test_unfinished_rows_are_gone_on_with_by_the_same_call_alone(
    runs: dict[str, Path], file: Path, tmp_path: Path
) -> None:
    run, out, options = runs["classifier"], tmp_path / "out.csv", PredictionOptions()
    with pytest.raises(KeyboardInterrupt):
        stopped_once(run, file, out, options)
    with refusal("begun-with-other-settings", "output.top_k", "out.csv.unfinished"):
        predict(run, file=file, out=out, written=PredictionOptions(top_k=2))
    with refusal("begun-with-other-settings", "task.text"):
        predict(run, file=file, out=out, options=FileOptions(text="id"))
    with refusal("begun-with-other-settings", "weights"):
        predict(runs["number"], file=file, out=out)
    content = file.read_text()
    file.write_text(content + "60,more\n")
    with refusal("begun-with-other-settings", "input"):
        predict(run, file=file, out=out)
    file.write_text(content)
    part = tmp_path / "out.csv.unfinished" / "rows.bin"
    kept = part.read_bytes()
    part.write_bytes(kept.replace(b"good", b"fine"))
    with refusal("damaged-file", "rows.bin"):
        predict(run, file=file, out=out)
    assert not out.exists()
    part.write_bytes(kept)
    predict(run, file=file, out=out)
    assert len(out.read_text().splitlines()) == 61


@pytest.mark.usefixtures("narrow")
def test_what_goes_wrong_on_the_way_loses_no_finished_rows(
    runs: dict[str, Path], file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, calls = runs["classifier"], []
    first = Engine.predict_records

    def broken(self: Engine, *given: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            file.touch()
            file.write_text(content + "60,more\n")
        return first(self, *given, **named)

    content = file.read_text()
    with monkeypatch.context() as patched, refusal("file-changed", "24 of 60 rows", "out.csv.unfinished"):
        patched.setattr(Engine, "predict_records", broken)
        predict(run, file=file, out=tmp_path / "out.csv")
    file.write_text(content)
    for name in ("out.csv", "whole.csv"):
        predict(run, file=file, out=tmp_path / name)
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


@pytest.fixture
def piped(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    def give(content: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    return give


@pytest.mark.parametrize(
    ("name", "content", "form"),
    [
        ("in.csv", b"text;n\ngood film;1\nbad;2\n", ""),
        ("in.tsv", b"text\tn\ngood film\t1\nbad\t2\n", ""),
        ("in.jsonl", b'{"text": "good film", "n": 1}\n\n{"text": null}\n', ""),
        ("in.txt", b"good film\n\nbad play .\n", ""),
        ("in.txt", b"good, film\nbad, play\n", "txt"),
        ("in.csv", b"text\ngood film\n", "csv"),
    ],
)
def test_standard_input_is_read_as_a_file_is_and_rows_go_to_standard_output(
    runs: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    piped: Callable[[bytes], None],
    name: str,
    content: bytes,
    form: str,
) -> None:
    (tmp_path / name).write_bytes(content)
    predict(runs["classifier"], file=tmp_path / name)
    expected = capsys.readouterr()
    piped(content)
    predict(runs["classifier"], file=Path("-"), out=Path("-"), written=PredictionOptions(form=form))
    said = capsys.readouterr()
    assert said.out == expected.out and len(said.out) > len(content)
    assert said.err.startswith("standard input: ") and str(tmp_path) not in said.err
    piped(content)
    predict(
        runs["classifier"],
        file=Path("-"),
        out=tmp_path / "out.data",
        written=PredictionOptions(form=form, out_form="jsonl"),
    )
    assert {json.loads(line)["prediction"] for line in (tmp_path / "out.data").read_text().splitlines()} <= {
        "pos",
        "neg",
        None,
    }
    assert not list(tmp_path.glob("*.unfinished"))


def test_bad_standard_input_is_named_by_row_and_nothing_is_written(
    runs: dict[str, Path], capsys: pytest.CaptureFixture[str], piped: Callable[[bytes], None], tmp_path: Path
) -> None:
    run = runs["classifier"]
    for content, refused in (
        (b"text,id\ngood,1\nbad\nfine,2,3\n", ("unusable-row", "standard input, line 3", "line 4")),
        (b'{"text": "good"}\n{"text": \n', ("wrong-format", "standard input, line 2")),
        (b"", ("no-data", "standard input is empty")),
        (b"a,b\ngood,bad\n", ("unknown-column", "standard input")),
    ):
        piped(content)
        with refusal(*refused):
            predict(run, file=Path("-"))
        assert capsys.readouterr().out == ""
    for options, refused in (
        ({"form": "xlsx"}, ("invalid-value", "'xlsx'", "csv")),
        ({"out_form": "jsnl"}, ("unknown-output-format", "'jsnl'", "'jsonl'")),
        ({"top_k": -1}, ("invalid-value", "--top-k", "-1")),
        ({"abstain": 60}, ("invalid-value", "--abstain", "60")),
    ):
        piped(b"text\ngood\n")
        with refusal(*refused):
            predict(run, file=Path("-"), written=PredictionOptions(**options))
    (tmp_path / "in.csv").write_text("text\ngood\n")
    with refusal("options-exclude-each-other", "--form"):
        predict(run, file=tmp_path / "in.csv", written=PredictionOptions(form="csv"))
    with refusal("options-exclude-each-other", "--top-k"):
        predict(run, "good", written=PredictionOptions(top_k=2))


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_columns_on_request(runs: dict[str, Path], file: Path, tmp_path: Path) -> None:
    run, out = runs["classifier"], tmp_path / "out.csv"
    said = load(run).predict([row["text"] for row in rows_of(file) if row["text"].strip()])
    sure = sorted(max(one.probabilities.values()) for one in said)[len(said) // 2]
    options = PredictionOptions(top_k=3, abstain=sure, probabilities=True)
    tally = predict_run.predict_file(run, file, output=RowOutput(path=out), written=options)
    rows = rows_of(out)
    tops = [f"{name} {place}" for place in (1, 2, 3) for name in ("top", "probability")]
    of_labels = ["probability of neg", "probability of pos"]
    assert list(rows[0]) == ["id", "text", "prediction", *tops, *of_labels, "truncated", "abstained"]
    expected = iter(said)
    for row in rows:
        if not row["text"].strip():
            assert {row[name] for name in ("prediction", *tops, *of_labels, "abstained")} == {""}
            continue
        one = next(expected)
        likeliest = sorted(one.probabilities.items(), key=lambda item: -item[1])
        assert [row["top 1"], row["top 2"], row["top 3"]] == [*(name for name, _ in likeliest), ""]
        assert float(row["probability 1"]) == pytest.approx(likeliest[0][1], abs=1e-5) and row["probability 3"] == ""
        withheld = likeliest[0][1] < sure - 1e-6
        if abs(likeliest[0][1] - sure) > 1e-6:
            assert (row["prediction"], row["abstained"]) == ("" if withheld else one.value, str(int(withheld)))
    assert 0 < tally.withheld < len(said)
    out.unlink()
    tally = osbert.predict(run, file, out=tmp_path / "out.jsonl", abstain=1, top_k=1, text="text")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert list(lines[0]) == ["id", "text", "prediction", "truncated", "top", "abstained"]
    assert {line["prediction"] for line in lines} == {None} and tally.withheld == len(said) and tally.rows == 60
    assert [one["value"] for one in lines[0]["top"]] == [said[0].value]
    predict(run, file=file, out=out, written=PredictionOptions(probabilities=False))
    assert list(rows_of(out)[0]) == ["id", "text", "prediction", "truncated"]


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("labeller", "text\nthe good play . films\nbad film\n"),
        ("tagger", "text\nthe good play . films\nbad film a good actor\n"),
        pytest.param("chooser", "start,a,b\na good,film,bad play\nthe,actor,bad film .\n", marks=pytest.mark.lab),
        ("reader", "question,paragraph\ngood film,a good film . the play\nbad,the bad actor films\n"),
    ],
)
def test_every_kind_with_probabilities_abstains(runs: dict[str, Path], tmp_path: Path, kind: str, content: str) -> None:
    (tmp_path / "in.csv").write_text(content)
    for abstain, out in ((0.0, "all.jsonl"), (1.0, "none.jsonl"), (1.0, "none.csv")):
        predict(runs[kind], file=tmp_path / "in.csv", out=tmp_path / out, written=PredictionOptions(abstain=abstain))
    given, withheld = (
        [json.loads(line) for line in (tmp_path / f"{name}.jsonl").read_text().splitlines()] for name in ("all", "none")
    )
    assert any(one["prediction"] for one in given) and all("abstained" not in one for one in given)
    for before, one in zip(given, withheld, strict=True):
        several = isinstance(before["prediction"], list)
        assert one["prediction"] == ([] if several else None)
        assert one["abstained"] == (len(before["prediction"]) if several else 1)
        assert one.get("end", -1) == -1 and not one.get("choice")
    assert {row["prediction"] for row in rows_of(tmp_path / "none.csv")} <= {"", "[]"}
    assert [row["abstained"] for row in rows_of(tmp_path / "none.csv")] == [str(one["abstained"]) for one in withheld]


def test_what_has_no_probability_is_refused_before_anything_is_written(
    runs: dict[str, Path], file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for options in ({"abstain": 0.5}, {"top_k": 2}, {"probabilities": True}):
        with refusal("options-exclude-each-other"):
            predict(runs["number"], file=file, out=Path("-"), written=PredictionOptions(**options))
        assert capsys.readouterr().out == ""


def test_parquet_keeps_its_columns_types(
    runs: dict[str, Path], tmp_path: Path, capfdbinary: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="needs the extra parquet")
    from pyarrow import parquet

    monkeypatch.setattr(forms_parquet, "BLOCK", 128)
    count = 600
    columns = {
        "text": pyarrow.array(["good film", None] * (count // 2)),
        "when": pyarrow.array([n * 1000 for n in range(count)], pyarrow.timestamp("ms")),
        "prediction": pyarrow.array([[n % 3] for n in range(count)]),
        "few": pyarrow.array(["a", "b"] * (count // 2)).dictionary_encode(),
    }
    table = pyarrow.table(columns)
    parquet.write_table(table, tmp_path / "in.parquet", row_group_size=170)
    run = runs["classifier"]
    predict(run, file=tmp_path / "in.parquet", out=tmp_path / "out.parquet")
    found = parquet.read_table(tmp_path / "out.parquet")
    assert found.select(table.column_names).equals(table)
    assert found.column_names[4:] == ["prediction 2", "probability of neg", "probability of pos", "truncated"]
    assert [str(field.type) for field in found.schema][4:] == ["string", "double", "double", "int64"]
    [said] = load(run).predict(["good film"])
    assert found["prediction 2"].to_pylist()[:2] == [said.value, None]
    assert found["probability of pos"].to_pylist()[0] == pytest.approx(said.probabilities["pos"], abs=1e-6)
    predict(run, file=tmp_path / "in.parquet", written=PredictionOptions(out_form="parquet"))
    assert capfdbinary.readouterr().out == (tmp_path / "out.parquet").read_bytes()


def test_parquet_of_rows_of_any_kind(runs: dict[str, Path], tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="needs the extra parquet")
    from pyarrow import parquet

    rows = [
        {"text": "good film", "n": 1, "mixed": 1, "more": {"a": [1]}, "none": None, "big": 2**70, "nothing": {}},
        {"text": None, "n": 2.5, "mixed": "x", "more": None, "none": None, "big": 1, "half": "\ud83d"},
    ]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    (tmp_path / "in.csv").write_text("text,n\n")
    predict(runs["classifier"], file=tmp_path / "in.jsonl", out=tmp_path / "out.parquet")
    found = parquet.read_table(tmp_path / "out.parquet").to_pylist()
    assert [row["n"] for row in found] == [1.0, 2.5] and [row["mixed"] for row in found] == ["1", "x"]
    assert found[0]["more"] == {"a": [1]} and found[0]["none"] is None and found[0]["big"] == str(2**70)
    assert found[1]["prediction"] is None and found[0]["prediction"] in ("neg", "pos")
    predict(runs["classifier"], file=tmp_path / "in.csv", out=tmp_path / "none.parquet")
    assert parquet.read_table(tmp_path / "none.parquet").num_rows == 0
