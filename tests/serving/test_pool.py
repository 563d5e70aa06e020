"""The pool with workers that are no models: what it does with a request that kills whoever reads it."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

import pytest

from osbert.serving.limits import Limits
from osbert.serving.metrics import Metrics
from osbert.serving.pool import DEATHS, Pool
from osbert.serving.wire import Answered, Orders, Ready, framed

DEADLY = """#!{python}
import socket
wire = socket.socket(fileno=0)
wire.recv(1 << 16)
wire.sendall({ready})
wire.recv(1)
raise SystemExit(9)
"""


def test_a_request_that_kills_its_workers_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "worker"
    program.write_text(DEADLY.format(python=sys.executable, ready=framed(Ready([], []))))
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    pool = Pool(Orders(runs=[]), Limits(), Metrics())

    async def asked() -> Answered:
        await pool.start()
        pending = pool.submit("predict", {}, time.monotonic() + 60)
        try:
            return await asyncio.wait_for(pending.answer, 30)
        finally:
            await pool.close()

    answered = asyncio.run(asked())
    assert (
        answered.status == 503 and f"{DEATHS} workers died over this" in json.loads(answered.body)["error"]["message"]
    )
    assert not pool.pending and f"osbert_worker_deaths_total {DEATHS:.1f}" in pool.metrics.text().decode()
    assert "a worker died (status 9); another takes over its requests." in capsys.readouterr().err
