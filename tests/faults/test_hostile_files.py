"""Small files that would take all memory or time, or end the process, are refused with a message, cheaply."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from harness import LONG

HERE = Path(__file__).parent
MEMORY = 300_000_000
"""Bytes above ten times the files' own that opening them may take."""
SECONDS = 10.0
"""Processor time that opening them may take, which is the same on a loaded machine."""

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")


@pytest.mark.parametrize(
    "module",
    [
        "hostile_folders",
        "hostile_tokenizers",
        "hostile_data",
        pytest.param("hostile_checkpoints", marks=pytest.mark.lab),
    ],
)
def test_hostile_files_cost_a_message(module: str) -> None:
    attacks = importlib.import_module(module)
    names = [name for name in attacks.ATTACKS if LONG or name not in attacks.HEAVY]
    command = [sys.executable, str(HERE / "attacked.py"), module, *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=540)
    found: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["name"] for one in found] == names, done.stderr[-2000:]
    assert not done.returncode
    assert not [one for one in found if "fault" in one]
    assert not [one["name"] for one in found if not one["error"] and one["name"] not in attacks.BOUNDED]
    assert not [one for one in found if one["memory"] > 10 * one["size"] + MEMORY]
    assert not [one for one in found if one["seconds"] > SECONDS]
