"""Reading of request bodies: their bytes, seconds and values are limited before parsing, which runs off the event loop.

Parsing and validation hold the interpreter's lock, so a thread alone does not keep the server responsive. Their time
depends on the number of values: a megabyte of `1,` is half a million values and takes seconds to validate.
"""

from __future__ import annotations

import asyncio
import re
import time
from concurrent.futures import ThreadPoolExecutor

from starlette.requests import Request as HttpRequest

from osbert.server.calls import schemas
from osbert.server.calls.schemas import Refusal
from osbert.server.limits import ServerLimits

LARGE = 1 << 14
"""Bytes above which a body is parsed in a thread."""
TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[{,]', re.DOTALL)
"""A JSON string, or a character that starts a value. Possessive quantifiers prevent backtracking: time is linear."""


class Intake:
    """Reads and parses bodies, and counts the bytes of all bodies that are being received."""

    def __init__(self, limits: ServerLimits) -> None:
        self.limits = limits
        self.coming = 0
        self._thread = ThreadPoolExecutor(
            1, "parser"
        )  # one: parallel parsers would only contend for the interpreter's lock

    async def read(
        self, schema: type[schemas.RequestBody], request: HttpRequest, deadline: float
    ) -> schemas.RequestBody:
        """Return the parsed and validated body of a request.

        Raises Refusal: 413 as soon as the body is known to be too large, 429 if the bodies being received take more
        memory than a full queue, 422 if the body does not fit the schema, 504 at `deadline` (time.monotonic).
        """
        body = bytearray()
        try:
            async with asyncio.timeout(max(deadline - time.monotonic(), 0)):
                await self._receive(request, body)
                if len(body) <= LARGE:
                    return self._parse(schema, body)
                return await asyncio.get_running_loop().run_in_executor(self._thread, self._parse, schema, body)
        except TimeoutError:
            raise Refusal(504, "The request did not arrive in time.") from None
        finally:
            self.coming -= len(body)

    async def _receive(self, request: HttpRequest, body: bytearray) -> None:
        too_large = Refusal(413, f"A request may have at most {self.limits.body:,} bytes.", field="body")
        length = request.headers.get("content-length", "")
        # Content-Length may be missing (chunked), so the bytes are counted as well.
        if length.isdecimal() and int(length) > self.limits.body:
            raise too_large
        async for part in request.stream():
            body += part
            self.coming += len(part)
            if len(body) > self.limits.body:
                raise too_large
            if self.coming > self.limits.queue * self.limits.body:
                raise Refusal(429, "Too many requests are arriving; try again later.", retry_after=1)

    def _parse(self, schema: type[schemas.RequestBody], body: bytearray) -> schemas.RequestBody:
        if exceeds(body, self.limits.values):
            raise Refusal(413, f"A request may have at most {self.limits.values:,} values.", field="body")
        return schemas.parse(schema, body)


def exceeds(body: bytes | bytearray, most: int) -> bool:
    """Return whether a JSON text has more than about `most` values. The scan stops as soon as that is known.

    Valid JSON has at most three tokens per value (key, value, comma or bracket). A text with more exceeds the limit.

    >>> [exceeds(b'{"a": [1, 2, 3], "b": "[,,,"}', most) for most in (4, 5)]
    [True, False]
    """
    # `count`: the tokens [, { and the comma, about one for each value.
    count = 0
    for seen, token in enumerate(TOKEN.finditer(body)):
        count += body[token.start()] != ord('"')
        if count > most or seen > 3 * most:
            return True
    return False
