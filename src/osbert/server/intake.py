"""Request bodies on their way in: bounded in bytes, seconds and values before they are parsed, and parsed off the loop.

Parsing and validation hold the interpreter's lock, so a thread alone does not keep the server responsive. What bounds
them is the count of values: a megabyte of `1,` is half a million values and seconds of validation.
"""

from __future__ import annotations

import asyncio
import re
import time
from concurrent.futures import ThreadPoolExecutor

from starlette.requests import Request as HttpRequest

from osbert.server import schemas
from osbert.server.limits import Limits
from osbert.server.schemas import Refused

LARGE = 1 << 14
"""Bytes above which a body is parsed in a thread."""
TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[{,]', re.DOTALL)
"""A string of JSON, or what begins a value. Possessive, so that no body makes it go back: it reads each byte once."""


class Intake:
    """Reads and parses bodies, and knows how many bytes are on their way."""

    def __init__(self, limits: Limits) -> None:
        """Bound bodies by `limits`."""
        self.limits = limits
        self.coming = 0
        self._thread = ThreadPoolExecutor(1, "parser")  # one: parsers side by side would only contend for the lock

    async def read(self, schema: type[schemas.Request], request: HttpRequest, deadline: float) -> schemas.Request:
        """Return a request's body, parsed and valid.

        Raises Refused: 413 as soon as it is known to be too large, 429 when all bodies on their way take more memory
        than a full queue, 422 when it does not fit the schema, 504 at `deadline` (time.monotonic).
        """
        body = bytearray()
        try:
            async with asyncio.timeout(max(deadline - time.monotonic(), 0)):
                await self._receive(request, body)
                if len(body) <= LARGE:
                    return self._parsed(schema, body)
                return await asyncio.get_running_loop().run_in_executor(self._thread, self._parsed, schema, body)
        except TimeoutError:
            raise Refused(504, "The request did not come in its time.") from None
        finally:
            self.coming -= len(body)

    async def _receive(self, request: HttpRequest, body: bytearray) -> None:
        too_large = Refused(413, f"A request has at most {self.limits.body:,} bytes.", field="body")
        length = request.headers.get("content-length", "")
        if length.isdecimal() and int(length) > self.limits.body:
            raise too_large
        async for part in request.stream():
            body += part
            self.coming += len(part)
            if len(body) > self.limits.body:
                raise too_large
            if self.coming > self.limits.queue * self.limits.body:
                raise Refused(429, "Too many requests are coming in; try again later.", retry_after=1)

    def _parsed(self, schema: type[schemas.Request], body: bytearray) -> schemas.Request:
        if exceeds(body, self.limits.values):
            raise Refused(413, f"A request has at most {self.limits.values:,} values.", field="body")
        return schemas.parse(schema, body)


def exceeds(body: bytes | bytearray, most: int) -> bool:
    """Return whether JSON has more than about `most` values, in the time that it takes to read so many.

    No JSON has more than three tokens a value, with a key and a comma or bracket; what has is not worth a look.

    >>> [exceeds(b'{"a": [1, 2, 3], "b": "[,,,"}', most) for most in (4, 5)]
    [True, False]
    """
    count = 0
    for seen, token in enumerate(TOKEN.finditer(body)):
        count += body[token.start()] != ord('"')
        if count > most or seen > 3 * most:
            return True
    return False
