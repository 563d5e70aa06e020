"""Files of one's own beside the packaged ones (toy families, objectives and kinds), and a run of seconds for them."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

SHORT = """
[data]
batch = 4
length = 24
held_out = 0.05
[training]
steps = 4
log_every = 1
precision = "fp32"
device = "cpu"
"""
"""How recipes of the tests train."""


def beside(monkeypatch: pytest.MonkeyPatch, package: ModuleType, folder: Path | None = None) -> None:
    """Let the files of a folder be found as those of `package`; by default of the folder here with its name."""
    here = folder or Path(__file__).parent / package.__name__.rpartition(".")[2]
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(here)])
