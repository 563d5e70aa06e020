"""Who may ask: checks of Host and Origin against DNS rebinding, and API keys.

DNS rebinding: a site points its own name to 127.0.0.1, so that the browser treats this server as part of the site. The
browser still sends the site's name in Host, and in Origin if the request is cross-origin.

API keys come from a file and are compared in constant time.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import Response

from osbert.errors import UserError
from osbert.server.calls.schemas import Refusal

LOCAL = ("localhost", "127.0.0.1", "::1")
HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\s\[\]:/@?#\\]+))(?::(\d*))?")
ORIGIN = re.compile(r"(https?)://(.*)")
PORTS = {"http": "80", "https": "443"}
SHORTEST = 16
"""Fewest characters of a key: shorter ones can be guessed."""


@dataclass(frozen=True, kw_only=True)
class Hosts:
    """The names that requests may use for this server, and the origins whose pages may send requests to it.

    `names`: "*" allows every name in Host, and none in Origin. An IP address in Host is always allowed, since rebinding
    needs a name.
    """

    names: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()

    def check_names(self) -> None:
        """Raise UserError if a name cannot occur in a Host header."""
        for name in self.names:
            host, port = _split(name)
            if name != "*" and not _is_address(_bare(name)) and (port or not host):
                raise UserError(
                    f"--host-names {name}: give a host name such as models.example.org, without scheme and port.",
                    code="invalid-value",
                )

    def check(self, host: str | None, origin: str | None) -> None:
        """Raise Refusal: 421 if Host names another server, 403 if Origin is the page of another site.

        A missing Host is allowed: HTTP/1.0 clients may leave it out, browsers never do.
        """
        name = "" if host is None else _split(host)[0]
        if host is not None and not (self._is_known(name) or _is_address(name) or (name and "*" in self.names)):
            raise Refusal(
                421, f"This server does not answer to the host name {host[:100]!r}. Add it with --host-names.",
                field="Host",
            )  # fmt: skip
        if origin is not None and not self._may_ask(origin, host or ""):
            raise Refusal(
                403, f"Pages of {origin[:100]!r} may not use this server. Allow the origin with osbert serve --cors.",
                field="Origin",
            )  # fmt: skip

    def _may_ask(self, origin: str, host: str) -> bool:
        if origin in self.origins or "*" in self.origins:
            return True
        parts = ORIGIN.fullmatch(origin.lower())
        if parts is None:
            return False
        # Same origin: the page came from this server, by the name and the port of the request's own Host.
        scheme, authority = parts.groups()
        name, port = _split(authority)
        same = (name, port or PORTS[scheme]) in ((host_name, at or PORTS[scheme]) for host_name, at in [_split(host)])
        return bool(name) and (same or self._is_known(name))

    def _is_known(self, name: str) -> bool:
        """Return whether a name is local or configured. "*" does not count: it allows names in Host, not origins."""
        return bool(name) and name != "*" and (name in LOCAL or name in map(_bare, self.names))


class HostCheck:
    """Middleware that passes on the requests that `hosts` allows and answers the others with `refuse`."""

    def __init__(self, app: Any, *, hosts: Hosts, refuse: Callable[[Refusal, str], Response]) -> None:
        self.app = app
        self.hosts = hosts
        self.refuse = refuse

    async def __call__(self, scope: Any, receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
        answer = self.app
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            try:
                self.hosts.check(headers.get("host"), headers.get("origin"))
            except Refusal as refusal:
                answer = self.refuse(refusal, scope["path"])
        await answer(scope, receive, send)


def _split(authority: str) -> tuple[str, str]:
    """Return the name or address and the port of a Host header; empty strings if it is malformed.

    >>> [_split(place) for place in ("Localhost.:80", "[::1]:8000", "a@b", "")]
    [('localhost', '80'), ('::1', '8000'), ('', ''), ('', '')]
    """
    parts = HOST.fullmatch(authority.strip().lower())
    return (parts[1] or _bare(parts[2]), parts[3] or "") if parts else ("", "")


def _bare(name: str) -> str:
    return name.lower().removesuffix(".").strip("[]")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


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
        raise UserError(
            f"{path} contains no key. Write one key per line, each of at least {SHORTEST} characters.", code="no-data"
        )
    short = [str(number) for number, key in keys.items() if len(key) < SHORTEST]
    if short:
        raise UserError(
            f"{path}, line {', '.join(short)}: a key must have at least {SHORTEST} characters.", code="invalid-key"
        )
    foreign = [str(number) for number, key in keys.items() if not (key.isascii() and key.isprintable())]
    if foreign:  # clients disagree on the bytes that they send for such characters, so that it would never open
        raise UserError(
            f"{path}, line {', '.join(foreign)}: a key must consist of ASCII characters.", code="invalid-key"
        )
    return Keys(keys.values())


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
