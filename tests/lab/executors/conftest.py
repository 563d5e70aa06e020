"""A small tokenizer that knows every ASCII letter, and text to encode with it; tasks whose processes start quickly."""

import pytest

from forked import forked
from prose import prose, tokenizer

__all__ = ["forked", "prose", "tokenizer"]


@pytest.fixture(autouse=True)
def tasks_fork(forked: None) -> None:
    """Fork the processes of tasks; those of the tests that start a command are spawned as ever."""
