"""The speed test trains with the real trainer, keeps to its time, and draws sane lines through what it saw."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osbert.data.step import Cursor
from osbert.training import probe as module
from osbert.training.probe import Speed, _line, peak_memory, probe, reset_memory, resident_memory
from osbert.training.processor import choose
from osbert.training.trainer import Trainer

SPEED = Speed(
    step_seconds=1.0,
    median_seconds=1.0,
    step_tokens=10.0,
    steps=3,
    layout_seconds=0.5,
    warming_seconds=0.25,
    loader_share=0.0,
    memory=1000,
)


def test_a_probe_counts_tokens_and_seconds_of_real_steps(toys, tmp_path) -> None:
    trainer = toys.trainer(tmp_path / "run", steps=10**6, checkpoint_every=0)
    seen: list[int] = []
    found = probe(lambda size: seen.append(size) or trainer, batch=1, seconds=0.3)
    assert seen == [1]
    assert found.steps >= 2
    assert trainer.step == found.steps + 1, "one step warms up"
    assert found.tokens_per_second == pytest.approx(found.step_tokens / found.step_seconds)
    assert 0 <= found.loader_share <= 1
    assert not found.extrapolated
    assert not trainer.folder.exists(), "nothing is written"


@pytest.fixture
def timed(toys, tmp_path, monkeypatch):
    """Probe steps of 64 sequences, which take 0.01 s each on a clock that nothing else moves, and 0.02 s a step."""
    now = [0.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def run(seconds: float) -> tuple[Speed, list[int]]:
        seen: list[int] = []

        def begin(size: int) -> Trainer:
            seen.append(size)
            trainer = toys.trainer(tmp_path, steps=10**6, checkpoint_every=0)
            advance = trainer._advance

            def slow(*arguments):
                now[0] += 0.02 + 0.01 * size
                return advance(*arguments)

            trainer._advance = slow
            return trainer

        return probe(begin, batch=64, seconds=seconds), seen

    return run


def test_whole_steps_are_taken_when_they_fit_the_time(timed) -> None:
    found, seen = timed(6.0)
    assert seen == [4, 64]
    assert found.step_seconds == pytest.approx(0.66)
    assert not found.extrapolated


@pytest.mark.parametrize(("seconds", "sizes"), [(1.5, [4, 16]), (0.5, [4, 8])])
def test_steps_that_do_not_fit_are_a_line_through_smaller_ones(timed, seconds, sizes) -> None:
    found, seen = timed(seconds)
    assert seen == sizes
    assert found.extrapolated
    assert found.step_seconds == pytest.approx(0.66)


@given(one=st.floats(0.001, 10), two=st.floats(0.001, 10))
def test_the_line_keeps_between_its_bounds(one: float, two: float) -> None:
    first, second = (replace(SPEED, step_seconds=value, median_seconds=value) for value in (one, two))
    found = _line(first, replace(second, step_tokens=20.0), sizes=(2, 4, 32))
    assert two * 4.5 <= found.step_seconds * (1 + 1e-9)
    assert found.step_seconds <= two * 8 * (1 + 1e-9)
    assert found.step_tokens == 160
    assert found.extrapolated


def test_a_line_through_true_values_is_exact() -> None:
    first, second = (replace(SPEED, median_seconds=1 + 0.5 * size, memory=100 + 7 * size) for size in (2, 4))
    found = _line(first, second, sizes=(2, 4, 32))
    assert found.step_seconds == pytest.approx(17)
    assert found.memory == 100 + 7 * 32


@pytest.mark.lab
def test_the_loader_alone_counts_its_layout(toys, tmp_path, monkeypatch) -> None:
    """On a clock that the loader alone moves: 0.2 s for the layout, 0.01 s for each step."""
    from osbert_lab.planning import speed

    now = [0.0]
    monkeypatch.setattr(speed, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    given: list[int] = []

    class Slow:
        def __init__(self, loader) -> None:
            self.loader = loader

        def steps(self, cursor: Cursor):
            now[0] += 0.2
            for step in self.loader.steps(cursor):
                now[0] += 0.01
                given.append(sum(batch.tokens for batch in step.batches))
                yield step

    found = speed.loader_speed(Slow(toys.trainer(tmp_path).loader), pool_tokens=1000, seconds=0.195)
    assert len(given) == 21
    assert 1 / found == pytest.approx(0.2 / sum(given[1:]) + 0.21 / 1000)


BLOCK = 100_000_000
ANEW = f"""
import mmap
from osbert.training.probe import peak_memory, reset_memory
from osbert.training.processor import choose
processor = choose("cpu", "fp32")
block = mmap.mmap(-1, {BLOCK}, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
block.write(bytes({BLOCK}))
high = peak_memory(processor)
block.close()
reset_memory(processor)
print(high, peak_memory(processor))
"""


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="this system cannot forget a peak")
def test_peak_memory_can_be_begun_anew() -> None:
    """In a process of its own, with pages asked of the system: the heap of this one may hold pages to use again.

    The program begins in a process that has held more than it ever will, as a test beside others does.
    """
    outgrown = f"import os, sys; bytes(6 * {BLOCK}); os.execv(sys.executable, [sys.executable, '-c', sys.argv[1]])"
    done = subprocess.run([sys.executable, "-c", outgrown, ANEW], capture_output=True, text=True, check=True)
    high, low = map(int, done.stdout.split())
    assert high - low >= 0.9 * BLOCK


def test_memory_is_what_the_system_tells_and_else_the_peak(tmp_path, monkeypatch) -> None:
    processor = choose("cpu", "fp32")
    (tmp_path / "status").write_text("VmHWM:\t    3000 kB\nVmRSS:\t    2000 kB\n")
    monkeypatch.setattr(module, "PROCESS", tmp_path)
    reset_memory(processor)
    assert (tmp_path / "clear_refs").read_text() == "5"
    assert (peak_memory(processor), resident_memory()) == (3000 * 1024, 2000 * 1024)
    monkeypatch.setattr(module, "PROCESS", tmp_path / "not there")
    reset_memory(processor)
    for platform, unit in (("linux", 1024), ("darwin", 1)):
        monkeypatch.setattr(module.sys, "platform", platform)
        monkeypatch.setattr(module.resource, "getrusage", lambda who: SimpleNamespace(ru_maxrss=1_000_000))
        assert peak_memory(processor) == resident_memory() == 1_000_000 * unit
