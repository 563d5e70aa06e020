"""The command line has its threads sleep while they wait, unless the user says otherwise."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import os, sys
from osbert.cli import main
sys.argv = ["osbert", "--version"]
main()
assert "torch" not in sys.modules, "torch read the variable before it was set"
print(os.environ["OMP_WAIT_POLICY"])
"""


@pytest.mark.parametrize("given, expected", [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_threads_sleep_while_they_wait(monkeypatch: pytest.MonkeyPatch, given: str | None, expected: str) -> None:
    """Processes that the command starts inherit it."""
    if given is None:
        monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    else:
        monkeypatch.setenv("OMP_WAIT_POLICY", given)
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == expected


LIBRARY = "import os, sys; {first}import osbert; print('torch' in sys.modules, os.environ.get('OMP_WAIT_POLICY'))"


@pytest.mark.parametrize("given, expected", [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_the_python_library_sets_the_variable_before_torch_reads_it(
    monkeypatch: pytest.MonkeyPatch, given: str | None, expected: str
) -> None:
    if given is None:
        monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    else:
        monkeypatch.setenv("OMP_WAIT_POLICY", given)
    script = LIBRARY.format(first="")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", expected]


def test_the_variable_stays_as_torch_has_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    script = LIBRARY.format(first="sys.modules['torch'] = os; ")  # as if torch were loaded, which takes seconds
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "None"]
