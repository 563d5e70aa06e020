"""The wall clock jumps a day forward or back: nothing depends on it."""

from __future__ import annotations

import json

import pytest
from harness import Site, some

DAY = 86_400.0


@pytest.mark.parametrize("seconds", some(-DAY, DAY, -50 * 365 * DAY))
def test_a_clock_that_jumps(site: Site, seconds: float) -> None:
    out = site.fresh()
    done = site.run(
        out, kind="clock", folder=str(out), number=site.moment("open", "/metrics.jsonl", nth=4), seconds=seconds
    )
    assert done.status == 0, done
    assert "Traceback" not in done.output
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert all(0 <= line["seconds"] < 60 for line in lines if "seconds" in line)
    site.complete("clock jump", out)
