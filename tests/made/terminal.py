"""The command line, run in the process of a test."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from osbert import cli


def run(*words: object) -> int:
    """Return the exit status of `osbert` with these words, whichever way it ends."""
    try:
        return cli.main([*map(str, words)]) or 0
    except SystemExit as ending:
        return int(ending.code or 0)


def told(capsys: pytest.CaptureFixture[str], *words: object, **more: Any) -> SimpleNamespace:
    """Return the `status`, the `output` and the `error` of a command, and what else is to be known of it."""
    status = run(*words)
    captured = capsys.readouterr()
    return SimpleNamespace(status=status, output=captured.out, error=captured.err, **more)
