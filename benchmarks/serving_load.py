"""Load for a server, from a process of its own: clients that ask again when answered, or requests at a steady rate.

python benchmarks/serving_load.py URL BODIES [--clients 64] [--rate 0] [--seconds 60]

BODIES is a file with a JSON body a line. The last line printed is JSON: how many requests had which end, and seconds.
The clients are plain sockets under asyncio, a fifth of a millisecond a request, since they share the server's cores.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

PATIENCE = 90.0
"""Seconds after which a request that was sent counts as unanswered."""
CONNECTIONS = 900
"""Most connections at a time; a request that finds none free is not sent."""


class Load:
    """What is sent, and what came of it.

    The ends of a request: its HTTP status; "refused", no connection; "broken", a connection that ended without an
    answer; "unanswered"; "unsent", for want of a connection.
    """

    def __init__(self, url: str, bodies: Sequence[bytes], path: str = "/v1/predict") -> None:
        parts = urlsplit(url)
        self.host, self.port = parts.hostname or "127.0.0.1", parts.port or 80
        self.requests = [_request(path, body) for body in bodies]
        self.rng = random.Random(0)
        self.ends: Counter[str] = Counter()
        self.seconds: list[float] = []
        self.free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self.open = 0

    async def ask(self) -> tuple[str, float]:
        """Send one request on a free connection or a new one; return its end, and for how long one is told to wait."""
        if not self.free and self.open >= CONNECTIONS:
            return "unsent", 0.0
        begin = time.perf_counter()
        kept = self._kept()
        if kept is None:
            self.open += 1  # before it is open: others connect meanwhile
            try:
                kept = await asyncio.open_connection(self.host, self.port)
            except OSError:
                self.open -= 1
                return "refused", 0.2
        reader, writer = kept
        try:
            writer.write(self.rng.choice(self.requests))
            async with asyncio.timeout(PATIENCE):
                status, wait, closing = await _answer(reader)
        except TimeoutError:
            status, wait, closing = "unanswered", 0.0, True
        except (OSError, EOFError):
            status, wait, closing = "broken", 0.0, True
        if closing:
            writer.close()
            self.open -= 1
        else:
            self.free.append(kept)
        if status == "200":
            self.seconds.append(time.perf_counter() - begin)
        return status, wait

    def _kept(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """Return a free connection that the server has not closed meanwhile."""
        while self.free:
            reader, writer = self.free.pop()
            if not reader.at_eof():
                return reader, writer
            writer.close()
            self.open -= 1
        return None

    async def closed(self, clients: int, end: float) -> None:
        """Have so many clients ask one request after the other until `end`, heeding Retry-After."""

        async def client() -> None:
            while time.perf_counter() < end:
                status, wait = await self.ask()
                self.ends[status] += 1
                if wait:
                    await asyncio.sleep(min(wait, max(end - time.perf_counter(), 0)))

        await asyncio.gather(*(client() for _ in range(clients)))

    async def steady(self, rate: float, end: float) -> None:
        """Send `rate` requests a second until `end`, whatever becomes of them, and wait for the last answers."""

        async def one() -> None:
            self.ends[(await self.ask())[0]] += 1

        tasks: set[asyncio.Task[None]] = set()
        begin, sent = time.perf_counter(), 0
        while (now := time.perf_counter()) < end:
            while sent < (now - begin) * rate:
                task = asyncio.ensure_future(one())
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                sent += 1
            await asyncio.sleep(0.005)
        await asyncio.gather(*tasks)

    async def run(self, *, clients: int, rate: float, seconds: float) -> dict[str, Any]:
        """Send for so many seconds, and return what came of it."""
        begin = time.perf_counter()
        end = begin + seconds
        await (self.steady(rate, end) if rate else self.closed(clients, end))
        found = sorted(self.seconds)
        shares = {f"p{share}": found[min(len(found) * share // 100, len(found) - 1)] for share in (50, 95, 99) if found}
        return {"ends": dict(self.ends), "seconds": time.perf_counter() - begin, **shares}


def _request(path: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def _answer(reader: asyncio.StreamReader) -> tuple[str, float, bool]:
    """Return the status, Retry-After, and whether the connection is closed. Raises EOFError when there is no answer."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
    fields = dict(line.split(": ", 1) for line in head[1:] if ": " in line)
    await reader.readexactly(int(fields.get("content-length", "0")))
    return head[0].split(" ")[1], float(fields.get("retry-after", "0")), fields.get("connection") == "close"


class Server:
    """A server in a process of its own, which prints its address when it is ready."""

    def __init__(self, command: Sequence[str], environment: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *command], stdout=subprocess.PIPE, text=True, env=os.environ | (environment or {})
        )
        assert self.process.stdout is not None
        self.url = next((line.strip() for line in self.process.stdout if line.startswith("http://")), "")
        if not self.url:
            raise SystemExit(f"the server ended with status {self.process.wait()}")

    def workers(self) -> list[int]:
        """Return its child processes."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(number) for number in path.read_text().split()]

    def kilobytes(self) -> int:
        """Return the memory that it and its workers hold, in kB."""
        return sum(map(_resident, [self.process.pid, *self.workers()]))

    def stop(self) -> int:
        """Tell it to end, and return its status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.communicate()


def _resident(process: int) -> int:
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmRSS")), 0)


@contextmanager
def serving(runs: Sequence[Path], *options: str) -> Iterator[Server]:
    """Give an `osbert serve` of some runs."""
    server = Server(["-m", "osbert", "serve", *map(str, runs), "--port", "0", *options])
    try:
        yield server
    finally:
        server.kill()


class Loading:
    """A load in a process of its own; `result` waits for its end."""

    def __init__(self, url: str, bodies: Path, *, seconds: float, clients: int = 64, rate: float = 0.0) -> None:
        options = ["--seconds", str(seconds), "--clients", str(clients), "--rate", str(rate)]
        self.process = subprocess.Popen(
            [sys.executable, __file__, url, str(bodies), *options], stdout=subprocess.PIPE, text=True
        )

    def result(self) -> dict[str, Any]:
        """Return what came of it."""
        out, _ = self.process.communicate()
        return json.loads(out.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("bodies", type=Path)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--rate", type=float, default=0.0, help="requests a second; 0: each client asks when answered")
    parser.add_argument("--seconds", type=float, default=60.0)
    chosen = parser.parse_args()
    load = Load(chosen.url, chosen.bodies.read_bytes().splitlines())
    print(json.dumps(asyncio.run(load.run(clients=chosen.clients, rate=chosen.rate, seconds=chosen.seconds))))


if __name__ == "__main__":
    main()
