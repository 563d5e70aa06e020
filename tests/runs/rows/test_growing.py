"""Files that grow: cut back to the last whole part, and refused when a bit has changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from osbert.runs.rows.machine import PROGRESS, GrowingFiles
from refusals import refusal


def grown(folder: Path) -> GrowingFiles:
    growing = GrowingFiles(folder)
    growing.append({"vectors": b"12345678", "lines": b"1"}, {"rows": 1})
    growing.append({"vectors": b"abcdefgh", "lines": b"2"}, {"rows": 2})
    return growing


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 4
    path.write_bytes(content)


def test_they_go_on_after_the_last_whole_part(tmp_path: Path) -> None:
    grown(tmp_path)
    with (tmp_path / "vectors.bin").open("ab") as file:
        file.write(b"half")
    again = GrowingFiles(tmp_path)
    again.append({"vectors": b"!", "lines": b"3"}, {"rows": 3})
    again.check()
    assert again.path("vectors").read_bytes() == b"12345678abcdefgh!" and GrowingFiles(tmp_path).tally == {"rows": 3}


@pytest.mark.parametrize("name", ["vectors.bin", "lines.bin", PROGRESS])
def test_a_bit_that_changed_is_found_when_they_go_on(tmp_path: Path, name: str) -> None:
    grown(tmp_path)
    for place in range((tmp_path / name).stat().st_size):
        flip(tmp_path / name, place)
        with refusal("damaged-file", name, tmp_path):
            GrowingFiles(tmp_path)
        flip(tmp_path / name, place)
    GrowingFiles(tmp_path).check()


def test_a_bit_that_changed_is_found_at_the_end(tmp_path: Path) -> None:
    growing = grown(tmp_path)
    flip(tmp_path / "vectors.bin", 3)
    with refusal("damaged-file", "vectors.bin"):
        growing.check()
