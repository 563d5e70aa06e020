"""A folder for each kind of model."""

from __future__ import annotations

from pathlib import Path

import pytest

import tiny_runs


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a folder for each kind of model, by name."""
    return tiny_runs.write_runs(tmp_path_factory.mktemp("runs"))
