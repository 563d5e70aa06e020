"""Fixtures for every test: research data, tiny models of every kind, a time limit; the tally of the faults."""

from __future__ import annotations

import atexit
import functools
import gc
import importlib.util
import os
import signal
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from osbert.extensions import extensions

ROOT = Path(__file__).resolve().parent.parent

# No test depends on the network: what is no folder is no model of a hub either. Tests of the hub run one on localhost.
os.environ["HF_HUB_OFFLINE"] = "1"

# Threads sleep while they wait, as in commands: else fits warn on a busy machine.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# No test cuts the power, so none has to wait for the disk.
os.fsync = lambda handle: None

# Tests make many objects and little garbage: a search for it after each 700 of them is a fifth of collecting them.
gc.set_threshold(20_000, 20, 20)

# A busy machine is no failure.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


@pytest.fixture(scope="session")
def data() -> Path:
    """Return the folder of research data; without it the test is skipped, but on CI its absence is a failure."""
    folder = Path(os.environ.get("OSBERT_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        if os.environ.get("CI") == "true":
            pytest.fail(f"the research data is missing: {folder}")
        pytest.skip(f"needs the research data (../shared/data or $OSBERT_DATA); {folder} is not there")
    return folder


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a folder for each kind of model, by name."""
    import tiny_runs  # which imports torch

    return tiny_runs.write_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def within() -> Iterator[None]:
    """End a test that waits for ever, as one that opens a pipe would."""

    def stop(*_: object) -> None:
        raise TimeoutError("the test waits for what never comes")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(120)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def pytest_collection_finish() -> None:
    """Let the search for garbage pass over what collecting has made, which stays to the end: each takes a second."""
    gc.freeze()
    atexit.register(gc.freeze)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT interrupts, also where a shell has started the tests in the background, with SIGINT ignored."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, former)


def pytest_sessionstart() -> None:
    """Stop if the entry points of pyproject.toml have changed since the installation: what they add is not found."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for group, points in project["entry-points"].items():
        found = {name: point.value for name, point in extensions(group).items()}
        if not points.items() <= found.items():
            command = "python -c 'import setuptools; setuptools.setup()' -q egg_info"
            pytest.exit(f"the entry points of {group} are out of date here; to write them anew: {command}", 4)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark of tests that need the lab."""
    config.addinivalue_line("markers", "lab: needs osbert_lab; skipped where the package is taken away")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip the tests of the lab's verbs and functions where osbert stands alone."""
    if item.get_closest_marker("lab") and importlib.util.find_spec("osbert_lab") is None:
        pytest.skip("needs osbert_lab, which is not installed")
    keep_operators()


def keep_operators() -> None:
    """Once torch's exporter is there, let it read onnxscript's operators only once: a tenth of each export to ONNX."""
    exporter = sys.modules.get("torch.onnx._internal.exporter._registration")
    registry = getattr(exporter, "ONNXRegistry", None)
    if registry is not None and not hasattr(registry.from_torchlib, "cache_info"):
        registry.from_torchlib = staticmethod(functools.cache(registry.from_torchlib))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Freeze what a file of tests leaves behind, modules and shared models: each search for garbage would read it."""
    yield
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what the tests in faults/ have tried and what it cost; OSBERT_FAULTS_REPORT names a file for it."""
    rows: dict[str, list[int]] = {}
    for report in [report for reports in terminalreporter.stats.values() for report in reports]:
        for name, tally in getattr(report, "user_properties", []):
            if name == "faults" and report.when == "teardown":
                for kind, found in tally.items():
                    row = rows.setdefault(kind, [0, 0, 0, 0])
                    tried, lost, most, wrong = (found[name] for name in ("tried", "lost", "most", "wrong"))
                    row[:] = [row[0] + tried, row[1] + lost, max(row[2], most), row[3] + wrong]
    if not rows:
        return
    rows["all"] = [sum(row[place] for row in rows.values()) for place in range(4)]
    rows["all"][2] = max(row[2] for kind, row in rows.items() if kind != "all")
    lines = ["| fault | tried | steps lost | most at once | wrong results |", "|---|---|---|---|---|"]
    lines += [f"| {kind} | {' | '.join(f'{value:,}' for value in row)} |" for kind, row in sorted(rows.items())]
    lines.append(lines.pop(next(place for place, line in enumerate(lines) if line.startswith("| all |"))))
    terminalreporter.section("faults")
    terminalreporter.write("\n".join(lines) + "\n")
    if path := os.environ.get("OSBERT_FAULTS_REPORT"):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")
