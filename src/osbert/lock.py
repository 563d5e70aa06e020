"""A lock on a folder, so that two processes never write into the same one; who is refused learns who holds it."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from osbert.errors import UserError

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows has no fcntl; there the folder is not guarded
    fcntl = None  # type: ignore[assignment]

NAME = ".lock"
LONGEST = 1000
"""Bytes of the holder's description that are read at most; its command is cut to a tenth of them."""
PATIENCE = 0.5
"""Seconds that a holder has to write its name after it has taken the lock."""


@contextlib.contextmanager
def locked(folder: Path, *, file: Path | None = None) -> Iterator[None]:
    """Hold `folder` (made if need be) until the block ends or the process dies, however it dies.

    `file` is the lock itself, `.lock` in the folder by default. It is the system that holds the lock, not the file: one
    that a dead process left behind stops nobody. Raises UserError naming the process that holds it.
    """
    file = file or folder / NAME
    file.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    with contextlib.ExitStack() as held:
        held.callback(os.close, handle)  # which also lets go of the lock
        _take(handle, folder)
        if hasattr(os, "register_at_fork"):  # a forked worker that outlives this process must not keep the lock
            os.register_at_fork(after_in_child=held.close)
        yield


def _take(handle: int, folder: Path) -> None:
    if fcntl is None:  # pragma: no cover
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # unlike lockf, it stops another thread as well
    except (BlockingIOError, PermissionError):
        raise UserError(
            f"{folder} is in use: {_holder(handle)} is writing into it. Wait for it to end, or choose another folder."
        ) from None
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
            raise
        print(f"note: the file system of {folder} has no locks; see to it that one process writes there", flush=True)
    with contextlib.suppress(OSError):  # on a full disk the lock still holds, it only bears no name
        os.ftruncate(handle, 0)
        os.write(handle, f"{_myself()}\n".encode("utf-8", "replace"))


def _holder(handle: int) -> str:
    """Return what the holder says of itself; the first moment after it has taken the lock it has said nothing yet."""
    deadline = time.monotonic() + PATIENCE
    while not (name := os.pread(handle, LONGEST, 0).decode("utf-8", "replace").strip()):
        if time.monotonic() > deadline:
            return "another process"
        time.sleep(0.01)
    return name


def _myself() -> str:
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    words = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]) if sys.argv else ""
    shown = words if len(words) <= LONGEST // 10 else f"{words[: LONGEST // 10]}..."
    return f"process {os.getpid()} on {socket.gethostname()}, since {since} ({' '.join(shown.split())}),"
