from __future__ import annotations

import bz2
import errno
import gzip
import io
import json
import lzma
import os
import tarfile
from pathlib import Path

import pytest
import zstandard

from osbert.reading.data_file import DataFile
from osbert.reading.documents import read_chunks
from osbert.reading.inputs import OpenInput, Repairs, find_inputs
from osbert.reading.parquet import read_rows
from refusals import refusal

PACK = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


def tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def texts(*files: Path, **settings) -> list[str]:
    return [chunk.text for chunk in read_chunks(files, **settings)]


@pytest.mark.parametrize("ending", PACK)
def test_text_and_json_are_read_in_every_compression(tmp_path, ending):
    (tmp_path / f"a.txt{ending}").write_bytes(PACK[ending](b"One.\n\nTwo."))
    (tmp_path / f"b.jsonl{ending}").write_bytes(PACK[ending](b'{"text": "Three."}\n{"text": "Four."}\n'))
    assert texts(tmp_path / f"a.txt{ending}", tmp_path / f"b.jsonl{ending}") == ["One.", "Two.", "Three.", "Four."]


@pytest.mark.parametrize("ending", [".tar" + pack for pack in PACK] + [".tgz", ".txz"])
def test_archives_give_their_known_files_in_order(tmp_path, ending):
    inner = {
        "b/z.txt": b"One.",
        "b/a.jsonl.gz": gzip.compress(b'{"text": "Two."}'),
        ".hidden/x.txt": b"No.",
        "c.pdf": b"%",
    }
    pack = PACK.get(ending.removeprefix(".tar"), PACK[".gz"] if ending == ".tgz" else PACK[".xz"])
    (tmp_path / f"all{ending}").write_bytes(pack(tar(inner)))
    repairs = Repairs()
    chunks = list(read_chunks([tmp_path / f"all{ending}"], repairs=repairs))
    assert [chunk.text for chunk in chunks] == ["One.", "Two."]
    assert chunks[0].source.endswith(f"all{ending}:b/z.txt")
    assert (repairs.skipped, repairs.empty) == (1, 0)


def test_zstandard_files_of_several_frames_are_read_whole(tmp_path):
    compress = zstandard.ZstdCompressor().compress
    (tmp_path / "a.txt.zst").write_bytes(compress(b"One. ") + compress(b"Two."))
    assert texts(tmp_path / "a.txt.zst") == ["One. Two."]


@pytest.mark.parametrize("ending", [".gz", ".xz", ".bz2", ".zst"])
def test_a_damaged_or_short_file_is_told_by_name(tmp_path, ending):
    packed = PACK[ending](bytes(range(32, 127)) * 2000)
    path = tmp_path / f"a.txt{ending}"
    for data in (packed[: len(packed) // 2], b"not compressed at all"):
        path.write_bytes(data)
        with refusal("damaged-file", "a.txt", ending):
            texts(path)


def test_an_archive_cut_short_is_told_by_name(tmp_path):
    (tmp_path / "a.tar").write_bytes(tar({"x.txt": b"word " * 1000})[:3000])
    with refusal("damaged-file", "a.tar"):
        texts(tmp_path / "a.tar")


def test_folders_are_walked_in_order_and_hidden_or_unknown_files_left_out(tmp_path):
    for name in ("b/1.txt", "a/2.txt", "a/.3.txt", ".git/4.txt", "a/5.png", "6.jsonl"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"text": name}) if name.endswith("jsonl") else name)
    assert texts(tmp_path) == ["6.jsonl", "a/2.txt", "b/1.txt"]


def test_a_folder_is_visited_once_however_links_lead_to_it(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "1.txt").write_text("One.")
    (tmp_path / "2.txt").write_text("Two.")
    for link, target in (("b/up", tmp_path), ("b/self", tmp_path / "b"), ("c", tmp_path / "b")):
        (tmp_path / link).symlink_to(target, target_is_directory=True)
    assert texts(tmp_path) == ["Two.", "One."]


def test_a_folder_that_cannot_be_read_is_told(tmp_path, monkeypatch):
    (tmp_path / "1.txt").write_text("One.")
    (tmp_path / "shut").mkdir()
    original = os.scandir

    def scandir(path):
        if str(path).endswith("shut"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return original(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with refusal("not-readable"):
        find_inputs([tmp_path])


def test_the_folder_that_is_written_is_no_input(tmp_path):
    (tmp_path / "1.txt").write_text("One.")
    (tmp_path / "corpus" / "inner").mkdir(parents=True)
    (tmp_path / "corpus" / "inner" / "2.txt").write_text("Two.")
    names = [source.path.name for source in find_inputs([tmp_path], without=tmp_path / "corpus")]
    assert names == ["1.txt"]
    assert len(find_inputs([tmp_path], without=tmp_path / "none")) == 2
    assert len(find_inputs([tmp_path / "corpus"], without=tmp_path / "corpus")) == 1  # asked for by name


def test_all_unusable_inputs_are_told_at_once_and_before_anything_is_read(tmp_path):
    (tmp_path / "good.txt").write_text("Fine.")
    (tmp_path / "table.csv").write_text("a,b")
    (tmp_path / "bare").mkdir()
    files = [tmp_path / name for name in ("none.txt", "good.txt", "table.csv", "bare", "gone.jsonl")]
    with refusal("missing-file", "none.txt: ", "table.csv: ", "bare: ", "gone.jsonl: ") as caught:
        read_chunks(files)  # the call itself, not the first chunk
    assert "wrong-format" in caught.value.codes and "good.txt" not in str(caught.value)


def test_nothing_given_is_an_error():
    with refusal("missing-option"):
        find_inputs([])


def test_position_counts_bytes_on_the_disk(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"x" * 3_000_000)
    (source,) = find_inputs([path])
    opened = OpenInput(source, repairs=Repairs())
    assert opened.position() == 0
    for part in opened.parts():
        part.stream.read(1_000_000)
        assert 1_000_000 <= opened.position() <= source.size == 3_000_000


def test_parquet_rows_are_documents(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": ["One.", None, "Two."], "n": [1, 2, 3]}), path)
    with refusal("empty-text", "2"):
        texts(path)
    repairs = Repairs()
    assert texts(path, errors="replace", repairs=repairs) == ["One.", "Two."]
    assert repairs.records == 1
    with refusal("unknown-column", "txt", "text"):
        texts(path, field="txt")
    with refusal("wrong-column-type"):
        texts(path, field="n")
    path.write_bytes(b"PAR1 nonsense")
    with refusal("wrong-format"):
        texts(path)


def test_parquet_reads_a_piece_of_a_row_group_at_a_time(tmp_path, monkeypatch):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    given = {}

    class File(parquet.ParquetFile):
        def __init__(self, source, **settings):
            given.update(settings)
            super().__init__(source, **settings)

    monkeypatch.setattr(parquet, "ParquetFile", File)
    written = [f"Number {number} of many." for number in range(200_000)]
    parquet.write_table(pyarrow.table({"text": written}), tmp_path / "a.parquet", compression="none")
    assert texts(tmp_path / "a.parquet") == written
    assert given["buffer_size"] <= 1 << 20 and not given["pre_buffer"]


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with refusal("missing-library"):
        texts(tmp_path / "a.parquet")


def test_texts_in_parquet_that_are_not_utf_8_are_named_or_replaced(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    cells = [b"one", b"two", None, b"caf\xe9", b"five"]
    binary = pyarrow.array(cells, pyarrow.binary())
    column = pyarrow.StringArray.from_buffers(len(cells), binary.buffers()[1], binary.buffers()[2], binary.buffers()[0])
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"id": pyarrow.array(range(5)), "text": column}), path)
    with refusal("wrong-encoding", "a.parquet", "4", "text"):
        list(read_rows(DataFile(path)))
    with refusal("wrong-encoding", "a.parquet", "4"):
        list(read_chunks([path]))
    repairs = Repairs()
    found = [chunk.text for chunk in read_chunks([path], errors="replace", repairs=repairs)]
    assert found == ["one", "two", "caf\ufffd", "five"] and (repairs.replaced, repairs.records) == (1, 1)
