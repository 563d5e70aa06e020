"""Errors of the system that libraries tell of in words."""

from __future__ import annotations

import errno
from pathlib import Path

from osbert.files import disk_full, system_error


def test_the_number_in_the_words_is_the_error() -> None:
    found = system_error(ValueError("I/O error: No space left on device (os error 28)"), Path("a/b"))
    assert isinstance(found, OSError)
    assert (found.errno, found.filename) == (errno.ENOSPC, str(Path("a/b")))
    assert disk_full(found)


def test_other_errors_stay_what_they_are() -> None:
    error = ValueError("no such tensor (error 28)")
    assert system_error(error, Path("a")) is error
