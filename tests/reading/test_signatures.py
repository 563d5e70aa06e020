"""Files that are no text, named for what they are by their first bytes, whatever they are called."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest
import zstandard

from osbert.errors import Problems
from osbert.reading.documents import read_chunks
from osbert.reading.table import TableReading, open_table
from osbert.reading.tagged.files import TagReading, read_tagged
from osbert.tasks.kinds.span.files import read_json
from refusals import refusal


def package(*names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            archive.writestr(name, "<xml/>")
    return buffer.getvalue()


WORKBOOK = package("[Content_Types].xml", "xl/workbook.xml")


FOREIGN = [
    (WORKBOOK, "Excel"),
    (WORKBOOK[:50], "ZIP"),
    (package("word/document.xml"), "Word"),
    (package("mimetype", "content.xml"), "OpenDocument"),
    (package("a.csv"), "ZIP"),
    (bytes.fromhex("d0cf11e0a1b11ae1") + bytes(500), ".xls"),
    (b"%PDF-1.7\n%\xe2\xe3", "PDF"),
    (b"PAR1\x15\x04", "Parquet"),
    (b"SQLite format 3\0" + bytes(80), "SQLite"),
    (b"<stata_dta><header>", "Stata"),
    (b"r\x02\x01\0" + bytes(80), "Stata"),
    (b"$FL2@(#) SPSS DATA FILE", "SPSS"),
    (pickle.dumps({"text": ["a"]}, protocol=4), "pickle"),
    (pickle.dumps({"text": ["a"]}, protocol=5), "pickle"),
    (gzip.compress(b"text,label\n"), "gzip"),
    (bz2.compress(b"text,label\n"), "bzip2"),
    (lzma.compress(b"text,label\n"), "xz"),
    (zstandard.compress(b"text,label\n"), "Zstandard"),
]
"""The beginnings of files that are no text, and what they are called."""


# Packed content holds the time: ids made of it would differ between processes that collect the tests.
@pytest.mark.parametrize(("content", "named"), FOREIGN, ids=[f"{name}-{row}" for row, (_, name) in enumerate(FOREIGN)])
@pytest.mark.parametrize("name", ["a.csv", "a.xlsx", "a.txt", "a.jsonl", "a"])
def test_a_file_of_another_kind_is_named_for_what_it_is(tmp_path: Path, content: bytes, named: str, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    if path.suffix == ".xlsx" and content == WORKBOOK:  # which is read as one, and has no sheet
        with refusal("damaged-file" if find_spec("openpyxl") else "missing-library", str(path)):
            open_table(path)
        return
    with refusal("wrong-encoding", str(path), named):
        open_table(path)
    with refusal("wrong-encoding", str(path), named):
        open_table(path, TableReading(encoding="utf-16"))
    with refusal("wrong-encoding", str(path), named):
        read_tagged(path, TagReading(), Problems(heading=""), labelled=True)


def test_texts_that_begin_like_other_files_are_texts(tmp_path: Path) -> None:
    for text in ("BZh1 is no archive", "PKs and other words", "{really}", "%PDF is a format"):
        (tmp_path / "a.txt").write_text(f"{text}\n")
        assert [row.values["text"] for row in open_table(tmp_path / "a.txt").rows(Problems(heading=""))] == [text]
        assert [chunk.text for chunk in read_chunks([tmp_path / "a.txt"])] == [text]


def test_questions_and_corpora_name_them_too(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(WORKBOOK)
    with refusal("wrong-encoding", "a.json"):
        read_json(tmp_path / "a.json")
    (tmp_path / "a.txt").write_bytes(WORKBOOK)
    with refusal("wrong-encoding", "a.txt"):
        list(read_chunks([tmp_path / "a.txt"]))
