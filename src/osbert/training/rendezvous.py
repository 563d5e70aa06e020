"""The store in which the processes of one start find each other, without the keys of an earlier start by torchrun.

torchrun restarts a group of processes but keeps its key-value store (torch 2.13; pytorch/pytorch issue 135712). There
the new processes would read the addresses of the dead ones and fail to connect. torchrun gives them nothing that
identifies the start: its count of restarts differs between nodes. So the first process draws a name for the start, and
each of the others joins only after the first one has answered that very process.
"""

from __future__ import annotations

import os
import secrets
import time
from datetime import timedelta

from torch import distributed

NAME = "osbert/start"
"""The key of the name of the newest start."""
PATIENCE = 0.02
"""Seconds between two looks into the store."""


def open_agent_store(timeout: timedelta) -> distributed.Store | None:
    """Return the store that torchrun keeps between its starts; None if each start has a store of its own."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return distributed.TCPStore(host, port, is_master=False, timeout=timeout)


def fresh_store(store: distributed.Store, rank: int, size: int, timeout: timedelta) -> distributed.Store:
    """Return a part of `store` that only the processes of this start use. All of them call it.

    Raises RuntimeError if the others have not come within `timeout`.
    """
    deadline = time.monotonic() + timeout.total_seconds()
    # Written over by each start, so that no process mistakes the answer to an earlier one for its own.
    token = secrets.token_hex(8)
    name = _answer_others(store, token, size, deadline) if rank == 0 else _await_answer(store, token, rank, deadline)
    return distributed.PrefixStore(f"osbert/{name}", store)


def _answer_others(store: distributed.Store, name: str, size: int, deadline: float) -> str:
    """In the first process: name the start and answer each of the others; return the name."""
    store.set(NAME, name)
    for rank in range(1, size):
        asking = f"osbert/{name}/asks/{rank}"
        while not store.check([asking]):
            _wait(deadline)
        store.set(f"osbert/{name}/answers/{rank}", store.get(asking).decode())
    return name


def _await_answer(store: distributed.Store, token: str, rank: int, deadline: float) -> str:
    """In another process: ask to take part in the newest start until its first process answers; return its name."""
    last_name = ""
    while True:
        name = store.get(NAME).decode() if store.check([NAME]) else ""
        if name and name != last_name:
            store.set(f"osbert/{name}/asks/{rank}", token)
            last_name = name
        answer = f"osbert/{name}/answers/{rank}"
        # The first process of an earlier start has answered another process of this rank, or nobody.
        if name and store.check([answer]) and store.get(answer).decode() == token:
            return name
        _wait(deadline)


def _wait(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise RuntimeError("the other processes of this start have not come")
    time.sleep(PATIENCE)
