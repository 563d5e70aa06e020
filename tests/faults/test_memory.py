"""Memory that runs out in a real run: halved passes, the same mathematics, and in the end a clear word."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest
from harness import LONG, STEPS, Site, compare, some, steps_taken

LARGE = (*("--width", "128", "--layers", "2", "--batch", "400", "--micro-tokens", "0", "--long-share", "0"),
         *("--steps", "2", "--dropout", "0", "--attention-dropout", "0"))  # fmt: skip


def losses(out: Path) -> list[float]:
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [line[name] for line in lines for name in ("loss", "gradient_norm", "held_out.loss") if name in line]


@pytest.mark.parametrize("tokens", some(50, 70))
def test_halving_changes_nothing_but_the_last_bits(site: Site, tokens: int) -> None:
    still = ("--dropout", "0", "--attention-dropout", "0")
    whole, narrow = site.fresh(), site.fresh()
    assert site.run(whole, *still).status == 0
    done = site.run(narrow, *still, kind="narrow", tokens=tokens)
    assert done.status == 0, done
    assert "Memory ran out at step 1 (CUDA out of memory" in done.output
    found, wanted = losses(narrow), losses(whole)
    wrong = found != pytest.approx(wanted, rel=1e-4) or len(found) != STEPS * 2 + 2
    site.tally.count("memory that runs out", wrong=wrong)
    assert not wrong


def test_a_kill_after_halving_changes_nothing_at_all(site: Site) -> None:
    whole, cut = site.fresh(), site.fresh()
    assert site.run(whole, kind="narrow", tokens=50).status == 0
    child = site.start(cut, kind="narrow", tokens=50)
    while steps_taken(cut) < 5 and child.wait(0.002) is None:
        pass
    if steps_taken(cut) < STEPS:
        child.signal(signal.SIGKILL)
        child.wait()
    assert site.run(cut, kind="narrow", tokens=50).status == 0
    differences = compare(whole, cut)
    site.tally.count("memory that runs out, then kill -9", wrong=bool(differences))
    assert not differences


def test_when_halving_does_not_help_the_run_says_so_and_can_go_on(site: Site) -> None:
    out = site.fresh()
    ended = site.run(out, kind="narrow", tokens=1)
    assert ended.status == 1, ended
    assert "Memory does not suffice for a single sequence" in ended.output
    assert "Traceback" not in ended.output, ended
    site.tally.count("memory that never suffices")


@pytest.mark.skipif(not LONG, reason="takes a minute: make faults")
@pytest.mark.skipif(sys.platform != "linux", reason="the limit of the address space is Linux's")
def test_memory_that_really_runs_out(site: Site) -> None:
    """The system refuses what a pass over the whole step needs; where that is depends on the machine."""
    out = site.fresh()
    assert site.run(out, *LARGE).status == 0
    whole = losses(out)
    halved = 0
    for megabytes in range(60, 320, 20):
        out = site.fresh()
        done = site.run(out, *LARGE, kind="address_space", megabytes=megabytes)
        assert "Traceback" not in done.output, done
        assert done.status == 0 or "emory" in done.output, done
        wrong = done.status == 0 and losses(out) != pytest.approx(whole, rel=1e-4)
        halved += done.status == 0 and "Memory ran out at step 1 (" in done.output
        site.tally.count("memory that really runs out", wrong=wrong)
        assert not wrong
    assert halved
