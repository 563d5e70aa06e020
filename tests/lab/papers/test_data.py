"""The rows of data sets that a table is measured on: drawn at random, from plain and compressed files alike."""

from __future__ import annotations

import lzma
from pathlib import Path

from osbert_lab.papers.data import TableColumn
from osbert_lab.papers.tables import read_table, table_names


def test_lines_that_belong_together_are_drawn_together_from_compressed_files(tmp_path: Path) -> None:
    data = tmp_path / "multi30k"
    data.mkdir()
    for language in ("en", "de"):
        lines = [f"{language} {number}\n" for number in range(50)]
        (data / f"train.{language}.xz").write_bytes(lzma.compress("".join(lines).encode()))
        (data / f"val.{language}").write_text("".join(lines[:9]), encoding="utf-8")
    [column] = [one for one in read_table("writing").columns if one.set == "multi30k"]
    column.prepare(tmp_path, tmp_path / "out", rows=20, dev_rows=4)
    kept = {path.name: path.read_text("utf-8").splitlines() for path in (tmp_path / "out").iterdir()}
    assert {name: len(lines) for name, lines in kept.items()} == {
        "train.en": 20, "train.de": 20, "val.en": 4, "val.de": 4,
    }  # fmt: skip
    for split in ("train", "val"):
        numbers = [[line.split()[1] for line in kept[f"{split}.{language}"]] for language in ("en", "de")]
        assert numbers[0] == numbers[1]


def test_all_rows_of_a_compressed_file_are_written_unpacked(tmp_path: Path) -> None:
    data = tmp_path / "scitldr"
    data.mkdir()
    for name in ("train", "dev"):
        (data / f"{name}.jsonl.xz").write_bytes(lzma.compress(b'{"source": ["A."], "target": ["B."]}\n' * 3))
    column = TableColumn(name="x", set="scitldr", files=("train.jsonl.xz", "dev.jsonl.xz"), header=False)
    column.prepare(tmp_path, tmp_path / "out", rows=0, dev_rows=2)
    assert (tmp_path / "out" / "train.jsonl").read_bytes().count(b"\n") == 3
    assert (tmp_path / "out" / "dev.jsonl").read_bytes().count(b"\n") == 2


def test_every_claim_of_a_table_is_of_two_of_its_rows() -> None:
    tables = [read_table(name) for name in table_names()]
    rows = {table.name: {row.name for row in table.rows} for table in tables}
    wrong = [claim for table in tables for claim in table.claims if not {claim.above, claim.below} <= rows[table.name]]
    assert sum(len(table.claims) for table in tables) > 5 and not wrong
