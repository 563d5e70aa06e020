"""General text: prose of the standard library, always the same, about as much as is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from osbert_lab.adaptation import general_text as module
from osbert_lab.adaptation.general_text import general_text, is_prose

SOURCE = '''"""A module about queues and what they hold."""
class Queue:
    """Hold items in the order in which they came.

    >>> Queue().get(x)

    put(item, block=True) -> None. Options = {}.
    """
def get():
    """Split at \\d, an escape of which Python warns."""
'''


def test_prose_is_left_and_code_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "queues.py").write_text(SOURCE)
    (tmp_path / "broken.py").write_text("def (")
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages" / "other.py").write_text('"""Another library is not read here."""')
    monkeypatch.setattr(module.sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    assert sorted(general_text(10**6)) == [
        "A module about queues and what they hold.",
        "Hold items in the order in which they came.",
    ]


def test_it_is_the_same_each_time_and_about_as_long_as_asked() -> None:
    texts = general_text(5_000)
    assert texts == general_text(5_000)
    assert 5_000 <= sum(map(len, texts)) < 60_000  # files are read to their ends
    assert all(is_prose(line) for text in texts for line in text.split("\n"))
