"""A disk that is full at any write: told in plain words, nothing earlier is lost, and with room again it goes on."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import LONG, STEPS, Ended, Site, sample
from injection import GROWING


def told(ended: Ended) -> None:
    """A run that a full disk ended, or let pass, says so and shows no traceback."""
    assert ended.status in (0, 1), ended
    assert "Traceback" not in ended.output, ended
    if ended.status:
        assert "disk is full" in ended.output or "No space left" in ended.output, ended


@pytest.mark.parametrize("writes", [10**9, 1], ids=["from then on", "for one write"])
def test_full_at_each_change_to_the_disk(site: Site, writes: int) -> None:
    growing = [place for place, line in enumerate(site.moments, start=1) if line.partition(" ")[0] in GROWING]
    for place in sample(len(growing), 2):
        number, out = growing[place - 1], site.fresh()
        out.mkdir()
        told(site.run(out, kind="full", folder=str(out), number=number, until=number + writes))
        site.complete("disk full at a write", out)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, where the system lets us mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if shutil.which("mount") is None or resize(folder, 4, "mount"):
        pytest.skip("no right to mount a small file system")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def resize(folder: Path, kilobytes: int, *how: str) -> int:
    """Mount a file system of a size, or give the one that is mounted another; return the exit status."""
    options = f"{'' if how else 'remount,'}size={kilobytes}k"
    return subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True).returncode


def test_a_disk_that_is_really_full(disk: Path, site: Site) -> None:
    """From no room at all to nearly enough; the run's own files need some 450 kB."""
    sizes = range(4, 480, 12) if LONG else (60, 180)
    for kilobytes in sizes:
        assert not resize(disk, kilobytes)
        out = disk / "run"
        told(site.run(out))
        assert not resize(disk, 10_000)
        site.complete("disk really full", out, most=STEPS)  # all of them, where no checkpoint found room
