"""A verb opens the file of its rows once, of whatever form: for the form, the hash, the check and the rows."""

from __future__ import annotations

import builtins
import io
import json
from pathlib import Path
from typing import Any

import pytest

from osbert import cli

ROWS = [{"text": f"a good film of the year {number}", "label": ("neg", "pos")[number % 2]} for number in range(12)]
FORMS = ["csv", "tsv", "jsonl", "json", "txt", "xlsx", "parquet"]
VERBS = {
    "predict": "predict {classifier} --file {file} --out {out}/rows.csv",
    "embed": "embed {pretrained} --file {file} --out {out}/rows.npy",
    "score": "score {pretrained} --file {file} --out {out}/rows.csv",
    "explain": "explain {classifier} --file {file} --out {out}/rows.jsonl",
    "evaluate": "evaluate {classifier} --data {file}",
    "finetune": "finetune classify --model {pretrained} --data {file} --out {out}/run --epochs 1",
}


def write(path: Path) -> Path:
    """Write the rows in the form of the path's ending."""
    separator = {".csv": ",", ".tsv": "\t"}.get(path.suffix)
    if separator:
        path.write_text(
            "".join(f"{a}{separator}{b}\n" for a, b in [("text", "label"), *(row.values() for row in ROWS)])
        )
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    elif path.suffix == ".json":
        path.write_text(json.dumps(ROWS))
    elif path.suffix == ".txt":
        path.write_text("".join(row["text"] + "\n" for row in ROWS))
    elif path.suffix == ".xlsx":
        book = pytest.importorskip("openpyxl").Workbook()
        for cells in [("text", "label"), *(tuple(row.values()) for row in ROWS)]:
            book.active.append(cells)
        book.save(path)
    else:
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
    return path


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_opens_its_file_once(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, form: str
) -> None:
    if form == "txt" and verb in ("evaluate", "finetune"):
        pytest.skip("lines of text have no labels")
    file = write(tmp_path / f"in.{form}")
    opened: list[str] = []
    real = io.open

    def count(path: Any, *arguments: Any, **options: Any) -> Any:
        opened.append(str(path))
        return real(path, *arguments, **options)

    for module in (io, builtins):
        monkeypatch.setattr(module, "open", count)
    (tmp_path / "out").mkdir()
    words = VERBS[verb].format(**runs, file=file, out=tmp_path / "out").split()
    assert cli.main(words) == 0
    assert opened.count(str(file)) == 1
