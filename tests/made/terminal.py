"""The command line, run in the process of a test."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any, NoReturn
from unittest import mock

import cyclopts
import pytest

from osbert import cli
from osbert.errors import UserError


def run(*words: object) -> int:
    """Return the exit status of `osbert` with these words, whichever way it ends."""
    try:
        return cli.main([*map(str, words)]) or 0
    except SystemExit as ending:
        return int(ending.code or 0)


def end_with(words: list[str]) -> NoReturn:
    """End this process with the status of `osbert` with these words."""
    sys.exit(run(*words))


def told(capsys: pytest.CaptureFixture[str], *words: object, **more: Any) -> SimpleNamespace:
    """Return the `status`, the `output` and the `error` of a command, and what else is to be known of it.

    `codes`: those of the UserError that it ended with.
    """
    codes: list[str] = []
    call = cyclopts.App.__call__

    def noting(app: cyclopts.App, *given: Any, **how: Any) -> Any:
        try:
            return call(app, *given, **how)
        except UserError as error:
            codes.extend(error.codes)
            raise

    with mock.patch.object(cyclopts.App, "__call__", noting):
        status = run(*words)
    captured = capsys.readouterr()
    return SimpleNamespace(status=status, output=captured.out, error=captured.err, codes=codes, **more)
