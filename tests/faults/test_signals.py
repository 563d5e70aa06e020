"""SIGTERM saves and ends with status 143 within a step, whatever the process is doing; no step is lost."""

from __future__ import annotations

import signal

import pytest
from harness import Site, sample, some, steps_taken


@pytest.mark.parametrize(
    ("signals", "statuses"), [([15], {143}), ([15, 15], {143}), ([2], {130}), ([2, 15], {130, 143})], ids=str
)
def test_a_signal_at_each_change_to_the_disk(site: Site, signals: list[int], statuses: set[int]) -> None:
    names = " and ".join(signal.Signals(number).name for number in signals)
    few, many = (2, 10**9) if signals == [15] else (1, 20)
    for number in sample(len(site.moments), few, many=many):
        out = site.fresh()
        ended = site.run(out, kind="send", folder=str(out), number=number, signals=signals)
        assert "Traceback" not in ended.output, ended
        taken = steps_taken(out)
        before = sum(" open " in f" {line}" and line.endswith("/metrics.jsonl") for line in site.moments[: number - 1])
        before -= sum(step <= before for step in (7, 14))  # the lines of the two looks aside
        if (out / "model.safetensors").exists():
            assert ended.status == 0, ended
            site.complete(names, out)
        else:
            assert ended.status in statuses, ended
            assert taken <= before + 1, f"{taken} steps, {before} at the signal"
            done = site.complete(names, out)
            assert done.resumed == taken, done


@pytest.mark.parametrize(("number", "status"), some((15, 143), (2, 130)))
def test_a_look_at_the_held_out_text_is_broken_off_and_made_up_for(site: Site, number: int, status: int) -> None:
    out = site.fresh()
    ended = site.run(out, kind="stop_look", signals=[number])
    assert ended.status == status, ended
    assert "held out" not in ended.output, ended
    assert "Stopped after step 6 of 12. The same command goes on from step 6." in ended.output, ended
    done = site.complete(f"{signal.Signals(number).name} while it evaluates", out)
    assert done.resumed == 6


@pytest.mark.parametrize(("number", "status"), some((15, 143), (2, 130)))
def test_before_anything_is_begun(site: Site, number: int, status: int) -> None:
    out = site.fresh()
    ended = site.run(out, kind="stop_start", signals=[number])
    assert ended.status == status, ended
    assert "Stopped before the first step." in ended.output, ended
    assert not out.exists()
    site.complete(f"{signal.Signals(number).name} while it starts", out)
