"""API keys from a file, compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from pathlib import Path

from osbert.errors import UserError

SHORTEST = 16
"""Fewest characters of a key: shorter ones can be guessed."""


class Keys:
    """The API keys of the server. Without keys it answers every client."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        """Keep the SHA-256 digests of the keys. They have equal lengths, which hides the keys' lengths."""
        self.digests = [_digest(key) for key in keys]

    def admits(self, authorization: str | None, key: str | None) -> bool:
        """Return whether the header `Authorization: Bearer KEY` or `X-API-Key: KEY` contains one of the keys."""
        if not self.digests:
            return True
        scheme, _, bearer = (authorization or "").partition(" ")
        given = _digest(bearer.strip() if scheme.lower() == "bearer" else key or "")
        # A sum, not any(): all keys are compared, each in constant time, so that timing does not tell which one fits.
        return sum(hmac.compare_digest(given, digest) for digest in self.digests) > 0


def read_keys(path: Path | None) -> Keys:
    """Return the keys of a file, one in each line; lines that begin with # are ignored. No keys for None.

    Raises UserError if the file has no key, a key below SHORTEST characters, or one that is not printable ASCII.
    """
    if path is None:
        return Keys()
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: the keys cannot be read: {error}.", code="not-readable") from error
    keys = {number: line for number, line in enumerate(lines, 1) if line and not line.startswith("#")}
    if not keys:
        raise UserError(f"{path} holds no key: write one a line, of {SHORTEST} characters or more.", code="no-data")
    short = [str(number) for number, key in keys.items() if len(key) < SHORTEST]
    if short:
        raise UserError(
            f"{path}, line {', '.join(short)}: a key has at least {SHORTEST} characters.", code="invalid-key"
        )
    foreign = [str(number) for number, key in keys.items() if not (key.isascii() and key.isprintable())]
    if foreign:  # clients disagree on the bytes that they send for such characters, so that it would never open
        raise UserError(
            f"{path}, line {', '.join(foreign)}: a key has the characters of ASCII alone.", code="invalid-key"
        )
    return Keys(keys.values())


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
