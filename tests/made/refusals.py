"""A UserError that a test expects: its code, and the values that its text must name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from osbert.errors import UserError


@contextlib.contextmanager
def refusal(code: str, *values: object) -> Iterator[pytest.ExceptionInfo[UserError]]:
    """Expect a UserError of a code, or one that lists such a problem, whose text names all values.

    Values are what a user has given or looks for: a file, a line, an option, a number. The wording is free.
    """
    with pytest.raises(UserError) as raised:
        yield raised
    said = str(raised.value)
    assert code in raised.value.codes, f"{raised.value.codes} instead of {code}: {said}"
    missing = [str(value) for value in values if str(value) not in said]
    assert not missing, f"{missing} not named in: {said}"
