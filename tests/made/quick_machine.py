"""A machine whose speed need not be measured, for tests of what `plan` says of it."""

from __future__ import annotations

import pytest

from osbert_lab.planning import plan_sizes, speed
from osbert_lab.planning.plan_sizes import BYTES, SizeSample


def use_quick_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the machine have 20 GFLOP/s, for every size, and a loader that is never waited for."""
    monkeypatch.setattr(speed, "loader_ceiling", lambda plan, length, seconds: 1e6)
    monkeypatch.setattr("osbert.training.probe.resident_memory", lambda: 0)
    monkeypatch.setattr(
        plan_sizes,
        "measure",
        lambda sizes, scratch, seconds: [
            SizeSample(size=size, flops_per_second=2e10, memory=BYTES * size.parameters + 1e8) for size in sizes
        ],
    )
