"""Routes for the files of the browser page, with content types and security headers."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
"""Served suffixes and their types. The system's own table may differ, and browsers run no scripts of other types."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Content-Security-Policy: the page loads only its own files, calls only its own server, and cannot be framed."""


def page_routes(folder: Path) -> list[Route]:
    """Return a route for each file of a folder with a suffix in TYPES; index.html is at /.

    The few small files are read once, here. No request touches the file system, so none can reach another file.
    """
    routes = []
    for path in sorted(folder.rglob("*")):
        if path.suffix in TYPES:
            name = path.relative_to(folder).as_posix()
            content = path.read_bytes()
            routes.append(Route("/" if name == "index.html" else f"/{name}", _giver(content, TYPES[path.suffix])))
    return routes


def _giver(content: bytes, kind: str) -> Callable[[Request], Awaitable[Response]]:
    """Return a handler that sends `content`, or 304 if the browser has it already (same ETag)."""
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
