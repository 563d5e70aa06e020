"""API keys: read from a file, asked for in either header."""

from __future__ import annotations

import hmac
from pathlib import Path

import pytest

from osbert.server.access import Keys, read_keys
from refusals import refusal


def test_either_header_opens(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("\ufeff0123456789abcdef\n# for us\n\nsecret key of others\n", encoding="utf-8")
    keys = read_keys(tmp_path / "keys")
    assert keys.admits("Bearer 0123456789abcdef", None) and keys.admits("bearer  secret key of others", None)
    assert keys.admits(None, "0123456789abcdef")
    for wrong in ("0123456789abcde", "0123456789abcdef0", "", "# for us"):
        assert not keys.admits(f"Bearer {wrong}", None) and not keys.admits(None, wrong)
    assert not keys.admits(None, None) and not keys.admits("Basic 0123456789abcdef", None)
    assert Keys().admits(None, None) and read_keys(None).admits("Bearer any", None)


def test_every_key_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def noting(given: bytes, digest: bytes) -> bool:
        compared.append((given, digest))
        return compare(given, digest)

    compare = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", noting)
    keys = Keys(["the first of the keys", "another key", "0123456789abcdef"])
    for given, opens in (("the first of the keys", True), ("", False), ("0123456789abcdeF", False)):
        compared.clear()
        assert keys.admits(f"Bearer {given}", None) == opens
        assert len(compared) == 3  # none is left out once one fits, and all are as long as each other
        assert {len(one) for pair in compared for one in pair} == {32}


def test_files_that_hold_no_good_key(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("# nothing\n")
    (tmp_path / "short").write_text("0123456789abcdef\nsecret\n")
    (tmp_path / "foreign").write_text("0123456789abcdef\nßecret key of others\n", encoding="utf-8")
    for name, refused in (
        ("none", ("not-readable", "none")),
        ("empty", ("no-data", "empty")),
        ("short", ("invalid-key", "short", "line 2", "16")),
        ("foreign", ("invalid-key", "foreign", "line 2", "ASCII")),
    ):
        with refusal(*refused):
            read_keys(tmp_path / name)
