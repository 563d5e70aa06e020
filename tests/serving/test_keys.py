"""API keys: read from a file, asked for in either header."""

from __future__ import annotations

from pathlib import Path

import pytest

from osbert.errors import UserError
from osbert.serving.keys import Keys, read_keys


def test_either_header_opens(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("\ufeff0123456789abcdef\n# for us\n\nsecret key of others\n", encoding="utf-8")
    keys = read_keys(tmp_path / "keys")
    assert keys.admits("Bearer 0123456789abcdef", None) and keys.admits("bearer  secret key of others", None)
    assert keys.admits(None, "0123456789abcdef")
    for wrong in ("0123456789abcde", "0123456789abcdef0", "", "# for us"):
        assert not keys.admits(f"Bearer {wrong}", None) and not keys.admits(None, wrong)
    assert not keys.admits(None, None) and not keys.admits("Basic 0123456789abcdef", None)
    assert Keys().admits(None, None) and read_keys(None).admits("Bearer any", None)


def test_files_that_hold_no_good_key(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("# nothing\n")
    (tmp_path / "short").write_text("0123456789abcdef\nsecret\n")
    (tmp_path / "foreign").write_text("0123456789abcdef\nßecret key of others\n", encoding="utf-8")
    for name, message in (
        ("none", "cannot be read"),
        ("empty", "holds no key"),
        ("short", "line 2: a key has at least"),
        ("foreign", "line 2: a key has the characters of ASCII alone"),
    ):
        with pytest.raises(UserError, match=message):
            read_keys(tmp_path / name)
