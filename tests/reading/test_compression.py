"""Compressed files of every kind, whole, in several members, cut anywhere and with bits flipped."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
from pathlib import Path

import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st

from osbert.errors import Problems, UserError
from osbert.reading.compression import open_packed
from osbert.reading.documents import read_chunks
from osbert.reading.table import open_table
from refusals import refusal

ROWS = 300
TABLE = b"text,label\n" + b"".join(b"text %d is here,%d\n" % (n * n, n % 3) for n in range(ROWS))
LINES = [f"text {n * n} is here" for n in range(ROWS)]
PACK = {
    ".gz": lambda data: gzip.compress(data, mtime=0),
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}
cuts = st.floats(0, 1, exclude_max=True)


def tar(name: str, data: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for number in range(2):
            member = tarfile.TarInfo(f"{number}-{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def rows(path: Path) -> int:
    problems = Problems(heading="")
    found = sum(1 for _ in open_table(path).rows(problems))
    problems.stop_if_any()
    return found


def lines(path: Path) -> list[str]:
    return [chunk.text for chunk in read_chunks([path], documents="line")]


@pytest.mark.parametrize("ending", PACK)
def test_members_one_after_the_other_are_read_whole(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.csv{ending}"
    half = TABLE.index(b"\n", 2000) + 1
    path.write_bytes(PACK[ending](TABLE[:half]) + PACK[ending](b"") + PACK[ending](TABLE[half:]))
    assert rows(path) == ROWS
    with open_packed(path) as file:
        assert file.read() == TABLE


@pytest.mark.parametrize("ending", PACK)
def test_what_follows_the_last_member_is_damage_unless_it_is_padding(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.csv{ending}"
    path.write_bytes(PACK[ending](TABLE) + b"something else")
    with refusal("damaged-file", "a.csv", ending, f"{len(TABLE):,}"):
        rows(path)
    path.write_bytes(PACK[ending](TABLE) + b"\0" * 5000)
    if ending in (".gz", ".xz"):
        assert rows(path) == ROWS
    else:
        with refusal("damaged-file"):
            rows(path)


@pytest.mark.parametrize("ending", PACK)
def test_a_second_member_that_is_damaged_is_not_passed_over(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.csv{ending}"
    second = bytearray(PACK[ending](TABLE))
    second[1] ^= 4
    path.write_bytes(PACK[ending](TABLE) + second)
    with refusal("damaged-file", "a.csv", ending, f"{len(TABLE):,}"):
        rows(path)


@pytest.mark.parametrize("ending", PACK)
@given(cut=cuts)
@example(cut=0.0)
def test_a_table_cut_anywhere_is_an_error_that_names_it(tmp_path_factory, ending: str, cut: float) -> None:
    packed = PACK[ending](TABLE)
    path = tmp_path_factory.getbasetemp() / f"cut.csv{ending}"
    path.write_bytes(packed[: int(len(packed) * cut)])
    with refusal("damaged-file", "cut.csv", ending):
        rows(path)


@pytest.mark.parametrize("ending", PACK)
@given(cut=cuts)
@example(cut=0.0)
def test_a_corpus_file_cut_anywhere_is_an_error_that_names_it(tmp_path_factory, ending: str, cut: float) -> None:
    packed = PACK[ending]("\n".join(LINES).encode())
    path = tmp_path_factory.getbasetemp() / f"cut.txt{ending}"
    path.write_bytes(packed[: int(len(packed) * cut)])
    with refusal("damaged-file", "cut.txt", ending):
        lines(path)


@pytest.mark.parametrize("ending", ["", *PACK])
@given(cut=cuts)
@example(cut=0.0)
def test_an_archive_cut_anywhere_is_an_error_or_nothing_is_missing(tmp_path_factory, ending: str, cut: float) -> None:
    archive = tar("a.txt", "\n".join(LINES).encode())
    packed = PACK[ending](archive) if ending else archive
    path = tmp_path_factory.getbasetemp() / f"cut.tar{ending}"
    path.write_bytes(packed[: int(len(packed) * cut)])
    try:
        found = lines(path)
    except UserError as error:
        assert f"cut.tar{ending}" in str(error)
    else:
        assert not ending and found == LINES * 2  # cut in the empty blocks behind its end


@pytest.mark.parametrize("ending", PACK)
@given(place=cuts, bit=st.integers(0, 7))
def test_a_flipped_bit_is_an_error_or_changes_nothing(tmp_path_factory, ending: str, place: float, bit: int) -> None:
    packed = bytearray(PACK[ending](TABLE))
    packed[int(len(packed) * place)] ^= 1 << bit
    path = tmp_path_factory.getbasetemp() / f"flip.csv{ending}"
    path.write_bytes(packed)
    try:
        with open_packed(path) as file:
            assert file.read() == TABLE  # a flip in a header's time or name
    except UserError as error:
        assert str(path) in str(error)
        with pytest.raises(UserError):
            rows(path)


@given(place=cuts, bit=st.integers(0, 7))
def test_a_flipped_bit_in_an_archive_hides_no_file(tmp_path_factory, place: float, bit: int) -> None:
    archive = bytearray(tar("a.txt", b"One.\n"))
    archive[int(len(archive) * place)] ^= 1 << bit
    path = tmp_path_factory.getbasetemp() / "flip.tar"
    path.write_bytes(archive)
    try:
        found = lines(path)
    except UserError as error:
        assert "flip.tar" in str(error)
    else:
        assert len(found) == 2


def test_damage_says_how_much_could_be_read(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(PACK[".gz"](TABLE)[:-1])
    with refusal("damaged-file", "a.csv.gz", f"{len(TABLE):,}"):
        rows(path)
    (tmp_path / "b.csv.xz").write_bytes(b"plain")
    with refusal("damaged-file", "b.csv.xz", "0"):
        rows(tmp_path / "b.csv.xz")


@pytest.mark.parametrize("ending", PACK)
def test_a_file_that_unpacks_to_a_thousand_times_its_size_is_refused(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.csv{ending}"
    path.write_bytes(PACK[ending](b"text,label\n" + b",\n" * 1_000_000))
    with refusal("too-large", "a.csv", ending):
        rows(path)


def test_an_archive_and_what_it_contains_have_one_limit(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    content = gzip.compress(b"good\n" * 70_000)
    path.write_bytes(tar("a.txt.gz", content))
    assert len(lines(path)) == 140_000
    with tarfile.open(path, mode="a") as archive:
        member = tarfile.TarInfo("2-a.txt.gz")
        member.size = len(content)
        for _ in range(20):
            archive.addfile(member, io.BytesIO(content))
    with refusal("too-large", "a.tar"):
        lines(path)


def sparse(headers: dict[str, str], content: bytes = b"") -> bytes:
    member = tarfile.TarInfo("a.txt")
    member.size, member.pax_headers = len(content), headers
    return member.tobuf(tarfile.PAX_FORMAT) + content.ljust(512, b"\0") + bytes(1024)


def test_a_sparse_file_in_an_archive_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(sparse({"GNU.sparse.map": "0,4", "GNU.sparse.size": "4"}, b"good"))
    assert lines(path) == ["good"]


@pytest.mark.parametrize(
    "headers",
    [
        {"GNU.sparse.map": "0,x", "GNU.sparse.size": "4"},
        {"GNU.sparse.map": "0,4,9", "GNU.sparse.size": "4"},
        {"GNU.sparse.map": "0,4", "GNU.sparse.size": "x"},
        {"GNU.sparse.map": "0,-4", "GNU.sparse.size": "4"},
        {"GNU.sparse.map": "-9,4", "GNU.sparse.size": "4"},
        {"GNU.sparse.map": "0,400000", "GNU.sparse.size": "400000"},
        {"GNU.sparse.map": "0,4", "GNU.sparse.size": "-4"},
        {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"},
        {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "4"},
        {"GNU.sparse.major": "x", "GNU.sparse.minor": "0"},
    ],
)
def test_a_sparse_map_that_is_none_is_an_error_or_changes_nothing(tmp_path: Path, headers: dict[str, str]) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(sparse(headers, b"good"))
    try:
        assert set(lines(path)) <= {"good"}
    except UserError as error:
        assert error.code in ("damaged-file", "wrong-encoding") and "a.tar" in str(error)
