"""Fixtures for every test: where the research data lies, and quiet, single-threaded torch."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def data() -> Path:
    """Return the folder of research data; without it the test is skipped, but on CI its absence is a failure."""
    folder = Path(os.environ.get("OSBERT_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        if os.environ.get("CI") == "true":
            pytest.fail(f"the research data is missing: {folder}")
        pytest.skip(f"needs the research data (../shared/data or $OSBERT_DATA); {folder} is not there")
    return folder
