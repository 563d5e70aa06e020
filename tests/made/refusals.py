"""A UserError that a test expects: its code, and the values that its text must name."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator
from types import SimpleNamespace

import pytest

from osbert.errors import UserError


@contextlib.contextmanager
def refusal(code: str, *values: object) -> Iterator[pytest.ExceptionInfo[UserError]]:
    """Expect a UserError of a code, or one that lists such a problem, whose text names all values.

    Values are what a user has given or looks for: a file, a line, an option, a number. The wording is free.
    """
    with pytest.raises(UserError) as raised:
        yield raised
    _compare(code, raised.value.codes, values, str(raised.value))


def refused(done: SimpleNamespace, code: str, *values: object) -> None:
    """Check that a command, as terminal.told returns it, ended with such a UserError and printed it."""
    assert done.status == 1, done.error
    _compare(code, done.codes, values, done.error)


def _compare(code: str, codes: Collection[str], values: Iterable[object], said: str) -> None:
    assert code in codes, f"{codes} instead of {code}: {said}"
    missing = [str(value) for value in values if str(value) not in said]
    assert not missing, f"{missing} not named in: {said}"
