"""A process that has imported torch and forks one osbert after another: a start costs milliseconds instead of seconds.

Each child is a real process of its own, which runs the command line as `python -m osbert` does and can be killed. Reads
one JSON request a line, answers with one JSON line.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from typing import Any

import injection
import numpy.ctypeslib  # noqa: F401
import rich._emoji_codes  # noqa: F401
import torch._dynamo  # noqa: F401 - what takes long to import
import torch.distributed  # noqa: F401

from osbert import cli, lock  # noqa: F401
from osbert.commands import pretrain  # noqa: F401
from osbert.runs.pretrain import pretraining_run as pretrain_run  # noqa: F401
from osbert.training import sharding  # noqa: F401


def serve() -> None:
    """Answer requests until the input ends, then end what is left of the children."""
    cli.application()
    os.fsync = lambda handle: None  # a process that is killed needs no disk to wait for
    gc.freeze()  # else every child looks through all these modules at its end, for a second
    children: set[int] = set()
    for line in sys.stdin:
        request = json.loads(line)
        if "words" in request:
            pid = os.fork()
            if not pid:
                child(**request)
            children.add(pid)
            answer: dict[str, Any] = {"pid": pid}
        else:
            answer = {"status": wait(request["pid"], request["seconds"])}
            if answer["status"] is not None:
                children.remove(request["pid"])
        print(json.dumps(answer), flush=True)
    for pid in children:
        os.kill(pid, signal.SIGKILL)


def wait(pid: int, seconds: float) -> int | None:
    """Return a child's exit status, minus the signal's number when one ended it; None when it is not over in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.003)
    return None


def child(*, words: Sequence[str], output: str, environment: dict[str, str], fault: dict[str, Any]) -> None:
    """Be osbert: run one command with one fault, its output in a file, and end."""
    os.setsid()
    handle = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (handle, 1), (handle, 2)):
        os.dup2(source, target)
    os.environ.update(environment)
    sys.argv = ["osbert", *words]
    try:
        injection.apply(fault)
        sys.exit(cli.main(words))
    except SystemExit:
        raise
    except BaseException:
        traceback.print_exc()
        sys.exit(1)


if __name__ == "__main__":
    serve()
