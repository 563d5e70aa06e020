"""A lock on a run folder, so that two processes never write into the same one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from osbert.errors import UserError

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows has no fcntl; there the folder is not guarded
    fcntl = None  # type: ignore[assignment]

NAME = ".lock"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold `folder` (made if need be) until the block ends or the process dies, however it dies.

    Raises UserError naming the process that holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder / NAME, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        _take(handle, folder)
        yield
    finally:
        os.close(handle)  # which also lets go of the lock


def _take(handle: int, folder: Path) -> None:
    if fcntl is None:  # pragma: no cover
        return
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # unlike flock, not inherited by forked workers
    except (BlockingIOError, PermissionError):
        holder = os.read(handle, 32).decode("ascii", "replace").strip() or "unknown"
        raise UserError(
            f"{folder} is in use: process {holder} is writing into it. Wait for it to end, or choose another folder."
        ) from None
    with contextlib.suppress(OSError):  # on a full disk the lock still holds, it only bears no name
        os.ftruncate(handle, 0)
        os.write(handle, f"{os.getpid()}\n".encode("ascii"))
