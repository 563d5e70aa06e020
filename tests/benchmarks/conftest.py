"""The scripts in benchmarks/ and tools/ as modules, in an environment that they may change."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Return a function that imports a script by its name; paths are afterwards as they were."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT / "benchmarks"), str(ROOT / "tools")])
    monkeypatch.setenv("PYTHONPATH", "")
    return importlib.import_module
