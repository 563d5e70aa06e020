"""The page's files as the server gives them: with their types, and with headers that keep others out of the page."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
"""What is given out. Types are not left to the machine, whose own table may have others: a browser runs no others."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The page loads its own files and asks its own server, and no other page may frame it."""


def page_routes(folder: Path) -> list[Route]:
    """Return a route for each file of a folder that a browser reads; index.html is at /.

    They are few and small, so they are read once, and no request can reach any other file.
    """
    routes = []
    for path in sorted(folder.rglob("*")):
        if path.suffix in TYPES:
            name = path.relative_to(folder).as_posix()
            content = path.read_bytes()
            routes.append(Route("/" if name == "index.html" else f"/{name}", _giver(content, TYPES[path.suffix])))
    return routes


def _giver(content: bytes, kind: str) -> Callable[[Request], Awaitable[Response]]:
    """Return what answers with a file, or says that the browser has it already."""
    headers = {
        "etag": f'"{hashlib.sha256(content).hexdigest()[:32]}"',
        "cache-control": "no-cache",  # kept, and asked for each time: what has not changed costs a 304
        "content-security-policy": POLICY,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
    }

    async def give(request: Request) -> Response:
        if headers["etag"] in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=f"{kind}; charset=utf-8")

    return give
