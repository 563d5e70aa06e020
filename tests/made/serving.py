"""A server that serves tiny models of every kind, as fixtures: a conftest imports them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest


class Serving:
    """osbert serve as a process of its own."""

    def __init__(self, *arguments: str) -> None:
        self.begun = time.monotonic()
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "osbert", "serve", "--port", "0", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.told: list[str] = []
        self.url = ""
        for line in self.process.stdout:
            self.told.append(line.rstrip())
            if line.startswith("http://"):
                self.url = line.strip()
                break
        if not self.url:
            self.process.wait(30)
            raise AssertionError(self.errors())
        self.client = httpx.Client(base_url=self.url, timeout=30)

    def post(self, call: str, **asked: Any) -> httpx.Response:
        return self.client.post(f"/v1/{call}", json=asked)

    def metric(self, name: str) -> float:
        text = self.client.get("/metrics").text
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))

    def workers(self) -> list[int]:
        """Return the worker processes, which are the server's children."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(number) for number in path.read_text().split()]

    def close(self) -> None:
        """End it whatever it does."""
        self.client.close()
        self.process.kill()
        self.process.communicate(timeout=30)

    def errors(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read()

    def end(self) -> str:
        """Stop it as a service manager does, and return what it wrote to its log."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(30) == 0
        return self.errors()


@pytest.fixture
def start(runs: dict[str, Path]) -> Iterator[Callable[..., Serving]]:
    """Return a maker of servers of one's own; they are ended after the test."""
    made: list[Serving] = []

    def starting(*arguments: str) -> Serving:
        made.append(Serving(*arguments))
        return made[-1]

    yield starting
    for serving in made:
        serving.close()


@pytest.fixture(scope="session")
def server(runs: dict[str, Path]) -> Iterator[Serving]:
    """Serve every kind of model."""
    serving = Serving(*(f"{name}={folder}" for name, folder in runs.items()), "--wait", "1")
    try:
        yield serving
    finally:
        serving.close()
