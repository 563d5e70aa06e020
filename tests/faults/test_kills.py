"""kill -9 at any moment: the same command ends in the bits of a run that was left in peace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from harness import CHANCE, EVERY, LONG, SECONDS, STEPS, Site, compare, sample

KILL = [signal.SIGKILL]


def test_a_kill_at_each_change_to_the_disk(site: Site) -> None:
    for number in sample(len(site.moments), 4):
        out = site.fresh()
        ended = site.run(out, kind="send", folder=str(out), number=number, signals=KILL, torn=True)
        assert ended.status == -signal.SIGKILL, f"moment {number}: {ended}"
        site.complete("kill -9 at a change to the disk", out)


def test_one_run_killed_again_and_again(site: Site) -> None:
    """Every process makes some way before it dies."""
    out = site.fresh()
    first = site.moment("rename", "step-4")
    for _ in range(STEPS // EVERY):
        number = first + CHANCE.randint(6, 20)
        ended = site.run(out, kind="send", folder=str(out), number=number, signals=KILL, torn=True)
        assert ended.status in (0, -signal.SIGKILL), ended
    site.complete("kill -9, the same run again and again", out)


@pytest.mark.parametrize("part", range(5 if LONG else 1))
def test_a_kill_at_a_random_time(site: Site, part: int) -> None:
    began = time.monotonic()
    site.complete("none", site.fresh())
    whole = time.monotonic() - began
    for _ in range(10 if LONG else 1):
        out = site.fresh()
        child = site.start(out)
        time.sleep(pause := CHANCE.uniform(0, whole))
        print(f"killed after {pause:.4f} s")
        child.signal(signal.SIGKILL)
        ended = child.ended()
        assert ended.status in (-signal.SIGKILL, 0), ended
        site.complete("kill -9 at a random time", out)


@pytest.mark.skipif(not LONG, reason="starts Python anew: make faults")
def test_a_run_from_the_command_line_is_the_same(site: Site) -> None:
    """What the other tests start by forking is what a user starts."""
    out = site.fresh()
    command = [sys.executable, "-m", "osbert", *site.words(out)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not compare(site.undisturbed, out)
