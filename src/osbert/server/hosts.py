"""Checks of Host and Origin: a web page of another site must not reach the server through DNS rebinding.

DNS rebinding: a site points its own name to 127.0.0.1, so that the browser treats this server as part of the site. The
browser still sends the site's name in Host, and in Origin if the request is cross-origin.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import Response

from osbert.errors import UserError
from osbert.server.schemas import Refusal

LOCAL = ("localhost", "127.0.0.1", "::1")
HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\s\[\]:/@?#\\]+))(?::(\d*))?")
ORIGIN = re.compile(r"(https?)://(.*)")
PORTS = {"http": "80", "https": "443"}


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
                    f"--host-names {name}: give a name such as models.example.org, without http and port.",
                    code="invalid-value",
                )

    def check(self, host: str | None, origin: str | None) -> None:
        """Raise Refusal: 421 if Host names another server, 403 if Origin is the page of another site.

        A missing Host is allowed: HTTP/1.0 clients may leave it out, browsers never do.
        """
        if host is not None and not self._answers_to(_split(host)[0]):
            raise Refusal(
                421, f"This server does not go by the name {host[:100]!r}; osbert serve --host-names adds names.",
                field="Host",
            )  # fmt: skip
        if origin is not None and not self._may_ask(origin, host or ""):
            raise Refusal(
                403, f"Pages of {origin[:100]!r} may not use this server; osbert serve --cors adds origins.",
                field="Origin",
            )  # fmt: skip

    def _answers_to(self, name: str) -> bool:
        return self._is_known(name) or _is_address(name) or (bool(name) and "*" in self.names)

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

    def __init__(self, app: Any, *, hosts: Hosts, refuse: Callable[[Refusal], Response]) -> None:
        """Wrap `app`."""
        self.app = app
        self.hosts = hosts
        self.refuse = refuse

    async def __call__(self, scope: Any, receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
        """Pass a request on to the application, or refuse it."""
        answer = self.app
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            try:
                self.hosts.check(headers.get("host"), headers.get("origin"))
            except Refusal as refusal:
                answer = self.refuse(refusal)
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
