"""The log says the same once a minute, and forgets lines before they fill the memory."""

from __future__ import annotations

import pytest

from osbert.server import log as module
from osbert.server.log import Log


def test_an_equal_line_is_written_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 5.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    log = Log()
    for now in (5.0, 6.0, 64.0, 65.0, 66.0):
        log.write("a")
        log.write("b" if now == 6.0 else "a")
    assert capsys.readouterr().err.split() == ["a", "b", "a"]


def test_lines_without_end_are_forgotten(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(module, "MOST", 3)
    log = Log()
    for line in ("a", "b", "c", "d", "d", "a"):
        log.write(line)
    assert capsys.readouterr().err.split() == ["a", "b", "c", "d", "a"] and len(log._written) == 3
