"""The simulation of failing nodes agrees with arithmetic: Young's interval, and the expected goodput."""

from __future__ import annotations

import doctest
from collections.abc import Callable
from types import ModuleType

import pytest


@pytest.fixture
def failures(script: Callable[[str], ModuleType]) -> ModuleType:
    return script("failures")


@pytest.mark.parametrize("interval", [200.0, 900.0, 4000.0])
@pytest.mark.parametrize("restart", [0.0, 300.0])
def test_simulated_goodput_is_the_computed(failures: ModuleType, interval: float, restart: float) -> None:
    cluster = failures.Cluster(between=20_000, pause=20, restart=restart)
    found = failures.mean_goodput(cluster, interval, days=300, runs=4, seed=1)
    assert found == pytest.approx(failures.computed_goodput(cluster, interval), abs=0.004)


def test_the_best_interval_is_near_young_s(failures: ModuleType) -> None:
    cluster = failures.Cluster(between=20_000, pause=20, restart=300)
    best = max((failures.computed_goodput(cluster, one), one) for one in range(300, 2000, 5))[1]
    assert best == pytest.approx(failures.daly(cluster), abs=10)
    assert best == pytest.approx(failures.young(cluster), rel=0.05)


def test_a_failure_during_a_write_falls_back_to_the_checkpoint_before(failures: ModuleType) -> None:
    """It costs as if every start lost the steps of the time for which a write lasts."""
    behind = failures.Cluster(between=20_000, pause=1, restart=0, write=30)
    at_once = failures.Cluster(between=20_000, pause=1, restart=0)
    slow, quick = (failures.mean_goodput(one, 300, days=300, runs=4, seed=1) for one in (behind, at_once))
    assert 0.0010 < quick - slow < 0.0020  # 30 / 20,000 = 0.0015


def test_examples_of_the_script_run(failures: ModuleType) -> None:
    assert doctest.testmod(failures).failed == 0
