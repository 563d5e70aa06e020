"""A label that holds a line feed prints as part of one line, in what every command prints."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from osbert.commands.evaluate import evaluate
from osbert.commands.finetune import finetune
from osbert.commands.predict import predict
from osbert.runs.rows.output import RowOutput
from osbert.runs.rows.predict import predict_file
from osbert.runs.rows.prediction_settings import PredictionOptions
from refusals import refusal

FORGED = "pos\nerror: x"


def own_line(text: str) -> bool:
    """Return whether a text has the label's second line as a line."""
    return any(line.strip().startswith("error: x") for line in text.splitlines())


def test_a_label_forges_no_line(
    encoder: Path, settings: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, run = tmp_path / "table.csv", tmp_path / "run"
    table.write_text("text,label\n" + f'good film,"{FORGED}"\nbad film,"{FORGED},neg"\npoor,neg\n' * 10)
    finetune("classify", *settings, model=encoder, data=table, out=run)
    said = capsys.readouterr().out
    assert r"pos\nerror: x" in said and "look like several in one cell" in said and not own_line(said)
    evaluate(run, data=table)
    said = capsys.readouterr().out
    assert r"f1/pos\nerror: x" in said and not own_line(said)
    predict(run, "a good film")
    said = capsys.readouterr().out
    assert r"pos\nerror: x" in said and not own_line(said)
    table.write_text('text,label\ngood film,"good\nerror: x"\n')
    with refusal("unknown-label") as error:
        evaluate(run, data=table)
    assert not own_line(str(error.value))


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl"])
def test_a_cell_forges_no_row_on_a_terminal(run: Path, tmp_path: Path, ending: str) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    table = tmp_path / "in.csv"
    table.write_text(f'text,"a\nname"\ngood film,"{FORGED}"\n')
    for stream, safe in ((Terminal(), True), (io.StringIO(), ending == "jsonl")):
        predict_file(run, table, output=RowOutput(stream=stream), written=PredictionOptions(out_form=ending))
        assert own_line(stream.getvalue()) is not safe
        assert (len(stream.getvalue().splitlines()) == (1 if ending == "jsonl" else 2)) is safe


def test_a_collapse_is_one_line(
    encoder: Path, settings: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "table.csv"
    table.write_text("text,label\n" + f'good film,"{FORGED}"\n' * 90 + "good film,neg\n" * 30)
    finetune("classify", *settings, model=encoder, data=table, out=tmp_path / "run")
    said = capsys.readouterr().out
    assert r"it predicts 'pos\nerror: x' for every development row" in said and not own_line(said)
