"""The benchmarks of the server in short: fuzzed requests, a storm with dying workers, and the comparison itself."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.lab  # the benchmarks serve its models too
BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    yield importlib.import_module("serving_faults")
    for name in ("serving", "serving_faults", "serving_load", "serving_models"):
        sys.modules.pop(name, None)


@pytest.mark.filterwarnings("default")
def test_fuzzed_requests_meet_no_server_error(faults: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert faults.fuzz(tmp_path, 200, 0) == 0
    assert "server errors and the like: none" in capsys.readouterr().out


@pytest.mark.parametrize(("step", "status"), [(3_000, 0), (5_000, 1)])
def test_memory_that_grows_over_the_second_half_fails(
    faults: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, status: int
) -> None:
    async def broken(*given: object, **more: object) -> Counter[str]:
        return Counter({"400": 20})

    held = itertools.count(400_000, step)
    server = SimpleNamespace(url="", kilobytes=lambda: next(held), stop=lambda: 0)
    monkeypatch.setattr(faults, "make_kinds", lambda folder: [])
    monkeypatch.setattr(faults, "serving", lambda *given: contextlib.nullcontext(server))
    monkeypatch.setattr(faults, "drawn", lambda *given, **more: Counter({"200": 20}))
    monkeypatch.setattr(faults, "broken", broken)
    assert faults.fuzz(tmp_path, 400, 0) == status


def test_in_a_storm_every_request_is_answered_or_refused(
    faults: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert faults.storm(tmp_path, Namespace(recipe="bert-tiny", seconds=5.0, times=3.0)) == 0
    told = capsys.readouterr().out
    assert "neither answered nor refused clearly: none" in told and "the server ended with status 0" in told
    assert told.count("kill -9") == 2 and '"429"' in told


@pytest.mark.filterwarnings("default")
def test_the_comparison_runs(faults: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--recipe", "bert-tiny", "--clients", "4", "--seconds", "0.3", "--warmup", "0.1"]
    monkeypatch.setattr(sys, "argv", ["serving.py", *options])
    importlib.import_module("serving").main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines[2:5]] == ["plain, threads", "plain, loop", "osbert serve"]
    assert lines[-1].endswith("times the requests/s of the better plain one")
