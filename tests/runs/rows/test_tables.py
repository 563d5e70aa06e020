"""The output forms for reading by people: Markdown tables and Excel workbooks, of every verb that writes a table."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import openpyxl
import pytest

import tiny_runs
from osbert.errors import Problems
from osbert.reading.table import TableReading, open_table
from osbert.runs.contract import Notice
from osbert.runs.rows.forms import xlsx
from osbert.runs.rows.output import RowOutput
from osbert.runs.rows.predict import predict_file
from osbert.runs.rows.prediction_settings import PredictionOptions
from osbert.runs.rows.table import write_values
from refusals import refusal

TEXTS = ["good", "=1+1", 'a|b "c"\nd', "x\x08y", "", "_x0041_", "+1", "*bold* <b>"]


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_runs.write_run(tmp_path_factory.mktemp("runs") / "classifier", tiny_runs.TASKS["classifier"])


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps({"text": text, "n": index}) + "\n" for index, text in enumerate(TEXTS)))
    return path


def test_a_workbook_holds_what_json_lines_hold(classifier: Path, table: Path, tmp_path: Path) -> None:
    predict_file(classifier, table, output=RowOutput(path=tmp_path / "out.jsonl"))
    predict_file(classifier, table, output=RowOutput(path=tmp_path / "out.xlsx"))
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    header, *rows = openpyxl.load_workbook(tmp_path / "out.xlsx").active.iter_rows()
    names = [cell.value for cell in header]
    assert names[:3] == ["text", "n", "prediction"]
    assert all(cell.data_type in ("s", "n", "inlineStr") for row in rows for cell in row), "a formula"
    for line, row in zip(lines, rows, strict=True):
        cells = dict(zip(names, (cell.value for cell in row), strict=True))
        text = {"x\x08y": "x_x0008_y", "_x0041_": "_x005F_x0041_", "": None}.get(line["text"], line["text"])
        assert (cells["text"], cells["n"], cells["prediction"]) == (text, line["n"], line["prediction"])
    again = open_table(tmp_path / "out.xlsx", TableReading())
    assert [row.values.get("text") or "" for row in again.rows(Problems(heading=""))] == TEXTS


def test_a_full_sheet_is_followed_by_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xlsx, "ROWS", 2)
    assert write_values(tmp_path / "out.xlsx", ["n"], [[number] for number in range(5)]) == 5
    sheets = openpyxl.load_workbook(tmp_path / "out.xlsx").worksheets
    assert [[row[0] for row in sheet.iter_rows(values_only=True)] for sheet in sheets] == [
        ["n", 0, 1],
        ["n", 2, 3],
        ["n", 4],
    ]


def test_a_cell_that_is_too_long_is_cut_with_a_warning(classifier: Path, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text(f"text,more\ngood,{'a' * 40_000}\n")
    notices: list[Notice] = []
    output = RowOutput(path=tmp_path / "out.xlsx")
    predict_file(classifier, tmp_path / "in.csv", output=output, watch=lambda event: notices.append(event))
    assert [notice for notice in notices if isinstance(notice, Notice) and notice.warning and "32,767" in notice.text]
    cell = openpyxl.load_workbook(tmp_path / "out.xlsx").active["B2"].value
    assert len(cell) == xlsx.LONGEST and cell.endswith("…")


def test_a_markdown_table_has_a_line_for_each_row(classifier: Path, table: Path, tmp_path: Path) -> None:
    predict_file(classifier, table, output=RowOutput(path=tmp_path / "out.md"))
    predict_file(classifier, table, output=RowOutput(path=tmp_path / "out.csv"))
    header, rule, *lines = (tmp_path / "out.md").read_text().splitlines()
    with (tmp_path / "out.csv").open(newline="") as file:
        names, *rows = csv.reader(file)
    assert [name.strip() for name in header.strip("|").split("|")] == names
    assert rule == "|" + " --- |" * len(names) and len(lines) == len(rows) == len(TEXTS)
    assert lines[2].startswith(r'| a\|b "c"<br>d | 2 |') and lines[7].startswith(r"| \*bold\* \<b\> | 7 |")


def test_spreadsheet_safe_is_refused_where_no_cell_can_be_a_formula(
    classifier: Path, table: Path, tmp_path: Path
) -> None:
    with refusal("options-exclude-each-other"):
        options = PredictionOptions(spreadsheet_safe=True)
        predict_file(classifier, table, output=RowOutput(path=tmp_path / "out.md"), written=options)
