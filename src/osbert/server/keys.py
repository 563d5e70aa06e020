"""API keys from a file, compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from pathlib import Path

from osbert.errors import UserError

SHORTEST = 16
"""Characters that a key has at least: a shorter one can be guessed."""


class Keys:
    """The keys that open the server; without any it is open to all who reach it."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        """Keep the keys' digests, which are of one length."""
        self.digests = [_digest(key) for key in keys]

    def admits(self, authorization: str | None, key: str | None) -> bool:
        """Return whether a request's header `Authorization: Bearer KEY`, or `X-API-Key: KEY`, holds one of the keys.

        All of them are compared, each in constant time.
        """
        if not self.digests:
            return True
        scheme, _, bearer = (authorization or "").partition(" ")
        given = _digest(bearer.strip() if scheme.lower() == "bearer" else key or "")
        return sum(hmac.compare_digest(given, digest) for digest in self.digests) > 0


def read_keys(path: Path | None) -> Keys:
    """Return the keys in a file, one a line, lines that begin with # aside; no keys for None.

    Raises UserError when there is none in it, or a short one, or one that a header cannot hold.
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
