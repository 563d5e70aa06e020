"""Files of data that small files make costly: a name -> what writes one and reads it to its end."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import tarfile
import zipfile
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import openpyxl
import pyarrow
import zstandard
from pyarrow import parquet

from osbert.errors import Problems
from osbert.reading.documents import read_chunks
from osbert.reading.table import open_table
from osbert.reading.tagged.files import TagReading, read_tagged
from osbert.tasks.kinds.span.files import read_json

Opening = Callable[[], object]
Attack = Callable[[Path], Opening]
ATTACKS: dict[str, Attack] = {}
HEAVY = {"corpus_of_long_zstandard_windows", "corpus_of_packed_zeros", "cell_of_100_megabytes", "json_line_of_lists"}
"""Those that take seconds to write or to read."""
BOUNDED = {
    "corpus_of_long_zstandard_windows",
    "corpus_of_packed_zeros",
    "corpus_of_xz_zeros",
    "workbook_with_a_far_cell",
}
"""Those that may be read, within bounds."""


def attack(function: Attack) -> Attack:
    """Add a function to ATTACKS by its name."""
    ATTACKS[function.__name__] = function
    return function


def _drained(values: Iterable[object]) -> None:
    deque(values, maxlen=0)


def _write_packed(path: Path, begin: bytes, filling: bytes, end: bytes = b"") -> None:
    """Write 300 MB as gzip, of parts one after another: a megabyte is packed once."""
    first, megabyte, last = (gzip.compress(part, 1) for part in (begin, filling * 1_000_000, end))
    path.write_bytes(first + megabyte * 300 + last)


def _write_workbook(path: Path, rows: Sequence[Sequence[str]], cell: tuple[int, int]) -> None:
    """Write a workbook of rows, and of one further cell by its row and column."""
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    book.active.cell(*cell, "end")
    book.save(path)


def _rows(path: Path) -> None:
    problems = Problems(heading=f"{path} cannot be used")
    _drained(open_table(path).rows(problems))
    problems.stop_if_any()


def _chunks(paths: Sequence[Path]) -> None:
    _drained(read_chunks(paths))


@attack
def cell_of_100_megabytes(folder: Path) -> Opening:
    path = folder / "in.csv"
    path.write_text("text,label\n" + "a " * 50_000_000 + ",x\n")
    return partial(_rows, path)


@attack
def cell_of_packed_gigabytes(folder: Path) -> Opening:
    path = folder / "in.csv.gz"
    _write_packed(path, b"text,label\n", b"a")
    return partial(_rows, path)


@attack
def json_line_of_lists(folder: Path) -> Opening:
    path = folder / "in.jsonl"
    path.write_text('{"text": "a", "label": "b"}\n{"text": [' + "[]," * 5_000_000 + "[]]}\n")
    return partial(_rows, path)


@attack
def json_line_of_deep_lists(folder: Path) -> Opening:
    path = folder / "in.jsonl"
    path.write_text('{"text": "a", "label": "b"}\n{"text": ' + "[" * 200_000 + "]" * 200_000 + "}\n")
    return partial(_rows, path)


@attack
def tagged_line_of_deep_lists(folder: Path) -> Opening:
    path = folder / "in.jsonl"
    path.write_text('{"tokens": ' + "[" * 200_000 + "]" * 200_000 + "}\n")

    def opening() -> None:
        problems = Problems(heading=f"{path} cannot be used")
        read_tagged(path, TagReading(), problems, labelled=True)
        problems.stop_if_any()

    return opening


@attack
def array_of_packed_gigabytes(folder: Path) -> Opening:
    path = folder / "in.json.gz"
    _write_packed(path, b'["', b"a", b'"]')
    return partial(_rows, path)


@attack
def array_of_lists(folder: Path) -> Opening:
    path = folder / "in.json"
    path.write_text("[" + "[]," * 5_000_000 + "[]]")
    return partial(_rows, path)


@attack
def workbook_of_packed_gigabytes(folder: Path) -> Opening:
    path = folder / "in.xlsx"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("xl/worksheets/sheet1.xml", b" " * 300_000_000)
    return partial(_rows, path)


@attack
def workbook_with_a_far_cell(folder: Path) -> Opening:
    path = folder / "in.xlsx"
    _write_workbook(path, [["text", "label"], ["good", "a"]], (1 << 20, 1))
    return partial(_rows, path)


@attack
def workbook_with_a_cell_too_far(folder: Path) -> Opening:
    path, near = folder / "in.xlsx", folder.parent / "near.xlsx"
    _write_workbook(near, [["text", "label"], ["good", "a"]], (1 << 20, 1))
    with zipfile.ZipFile(near) as before, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in before.namelist():  # openpyxl writes no such row
            archive.writestr(name, before.read(name).replace(b"1048576", b"1048576000"))
    return partial(_rows, path)


@attack
def workbook_with_a_wide_row(folder: Path) -> Opening:
    path = folder / "in.xlsx"
    _write_workbook(path, [["text", "label"], *[["good"]] * 10_000], (20_000, 16_384))
    return partial(_rows, path)


@attack
def table_of_packed_empty_rows(folder: Path) -> Opening:
    path = folder / "in.csv.gz"
    path.write_bytes(gzip.compress(b"text\n" + b"\n" * 20_000_000, 9))
    return partial(_rows, path)


@attack
def parquet_of_nulls(folder: Path) -> Opening:
    path = folder / "in.parquet"
    parquet.write_table(pyarrow.table({"text": pyarrow.nulls(10**7, pyarrow.string())}), path)
    return partial(_rows, path)


@attack
def parquet_of_a_list_of_nulls(folder: Path) -> Opening:
    path = folder / "in.parquet"
    lists = pyarrow.ListArray.from_arrays([0, 10**7], pyarrow.nulls(10**7, pyarrow.int8()))
    parquet.write_table(pyarrow.table({"text": ["good"], "labels": lists}), path)
    return partial(_rows, path)


@attack
def corpus_of_xz_newlines(folder: Path) -> Opening:
    path = folder / "a.txt.xz"
    packer = lzma.LZMACompressor(preset=0)
    path.write_bytes(b"".join([*(packer.compress(b"\n" * 1_000_000) for _ in range(200)), packer.flush()]))
    return partial(_chunks, [path])


@attack
def corpus_of_packed_members(folder: Path) -> Opening:
    """Write an archive of many files that each unpack to a little."""
    member = lzma.compress(b"a b\n" * 20_000)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=9) as archive:
        for number in range(3000):
            header = tarfile.TarInfo(f"{number}.txt.xz")
            header.size = len(member)
            archive.addfile(header, io.BytesIO(member))
    (folder / "a.tar.gz").write_bytes(packed.getvalue())
    return partial(_chunks, [folder / "a.tar.gz"])


@attack
def corpus_of_a_hole(folder: Path) -> Opening:
    """Write an archive with a sparse file that takes no bytes and holds a terabyte of zeros."""
    header = tarfile.TarInfo("a.txt")
    header.pax_headers = {"GNU.sparse.map": "0,0", "GNU.sparse.size": str(10**12)}
    (folder / "a.tar").write_bytes(header.tobuf(tarfile.PAX_FORMAT) + bytes(1024))
    return partial(_chunks, [folder / "a.tar"])


@attack
def corpus_line_of_deep_lists(folder: Path) -> Opening:
    path = folder / "in.jsonl"
    path.write_text('{"text": ' + "[" * 200_000 + "]" * 200_000 + "}\n")
    return partial(_chunks, [path])


@attack
def questions_that_are_packed(folder: Path) -> Opening:
    path = folder / "in.json.gz"
    _write_packed(path, b'{"data": [', b" ")
    return partial(read_json, path)


@attack
def questions_that_are_deep(folder: Path) -> Opening:
    path = folder / "in.json"
    path.write_text('{"data": [{"paragraphs":' + "[" * 200_000)
    return partial(read_json, path)


@attack
def archive_in_archives(folder: Path) -> Opening:
    content, name = b"a text", "a.txt"
    for _ in range(350):
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        content, name = packed.getvalue(), "a.tar"
    (folder / "a.tar").write_bytes(content)
    return partial(_chunks, [folder / "a.tar"])


@attack
def corpus_of_many_compressions(folder: Path) -> Opening:
    content = b"a text"
    for _ in range(30):
        content = gzip.compress(content)
    path = folder / f"a.txt{'.gz' * 30}"
    path.write_bytes(content)
    return partial(_chunks, [path])


@attack
def corpus_of_packed_zeros(folder: Path) -> Opening:
    path = folder / "a.txt.gz"
    path.write_bytes(gzip.compress(b"a" * 100_000_000, compresslevel=1))
    return partial(_chunks, [path])


@attack
def corpus_of_xz_zeros(folder: Path) -> Opening:
    path = folder / "a.txt.xz"
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 26, "mode": lzma.MODE_FAST, "mf": lzma.MF_HC3}]
    path.write_bytes(lzma.compress(b"a b\n" * 2_000_000, filters=filters))
    return partial(_chunks, [path])


@attack
def corpus_of_long_zstandard_windows(folder: Path) -> Opening:
    path = folder / "a.txt.zst"
    settings = zstandard.ZstdCompressionParameters.from_level(1, window_log=30)
    packer = zstandard.ZstdCompressor(compression_params=settings).compressobj()
    parts = [packer.compress(b"a b\n" * 250_000) for _ in range(600)]
    path.write_bytes(b"".join([*parts, packer.flush()]))
    return partial(_chunks, [path])


@attack
def dump_that_grows_by_entities(folder: Path) -> Opening:
    path = folder / "a.xml"
    lines = ['<!ENTITY a0 "lol">', *(f'<!ENTITY a{n + 1} "{f"&a{n};" * 10}">' for n in range(12))]
    page = "<page><title>x</title><ns>0</ns><revision><text>&a12;</text></revision></page>"
    path.write_text(f"<!DOCTYPE mediawiki [{''.join(lines)}]>\n<mediawiki>{page}</mediawiki>")
    return partial(_chunks, [path])


@attack
def dump_that_is_deep(folder: Path) -> Opening:
    path = folder / "a.xml"
    path.write_text("<mediawiki><page>" + "<a>" * 1_000_000)
    return partial(_chunks, [path])


@attack
def json_of_a_long_number(folder: Path) -> Opening:
    path = folder / "in.jsonl"
    path.write_text(json.dumps({"text": "a", "label": "b"}) + '\n{"text": ' + "1" * 1_000_000 + "}\n")
    return partial(_rows, path)
