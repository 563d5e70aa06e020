"""Two processes and one folder: the second is told who the first is, and does no harm."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from harness import Site


def test_the_second_process_is_told_who_holds_the_folder(site: Site, tmp_path: Path) -> None:
    out, flag = site.fresh(), tmp_path / "standing still"
    first = site.start(out, kind="pause", folder=str(out), number=site.moment("fsync", "step-8"), flag=str(flag))
    while not flag.exists():
        time.sleep(0.005)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    second = site.run(out)
    assert second.status == 1, second
    assert f"{out} is in use: process {first.pid} on {os.uname().nodename}, since 20" in second.output, second
    assert "(osbert pretrain " in second.output, second
    assert before == {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    flag.unlink()
    assert first.ended().status == 0
    site.complete("two processes in one folder", out)


def test_a_dead_process_holds_nothing(site: Site, tmp_path: Path) -> None:
    out, flag = site.fresh(), tmp_path / "standing still"
    first = site.start(out, kind="pause", folder=str(out), number=site.moment("fsync", "step-8"), flag=str(flag))
    while not flag.exists():
        time.sleep(0.005)
    first.signal(signal.SIGSTOP)
    assert "is in use" in site.run(out).output
    first.signal(signal.SIGKILL)
    first.ended()
    site.complete("a lock whose holder is dead", out)
