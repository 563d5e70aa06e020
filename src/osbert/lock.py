"""Locks on outputs: two processes never write the same output, and the second one learns which process holds it."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

from osbert.errors import UserError
from osbert.files import hidden, is_stream, require_path

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows has no fcntl; there the folder is not guarded
    fcntl = None  # type: ignore[assignment]

NAME = ".lock"
LONGEST = 1000
"""Most bytes that are read of the holder's description; its command is cut to a tenth of them."""
PATIENCE = 0.5
"""Seconds to wait for a holder to write its description after it has taken the lock."""


class LockWarning(UserWarning):
    """The file system of an output has no locks. The command line prints its text as a line."""


@contextlib.contextmanager
def claim(out: Path) -> Iterator[Path]:
    """Lock an output file or folder until the block ends; yield its path, with symbolic links resolved.

    A second command with the same output is refused, however it spells the path. The lock is a hidden file beside the
    output, or inside it if its parent is not writable. Missing parent folders are created, and removed again if they
    stay empty. Pipes and devices are not locked. Warns (LockWarning) where the file system has no locks. Raises
    UserError that names the process which holds the lock, and where nothing can be written at the path.
    """
    require_path(out)
    if is_stream(out):
        yield out
        return
    path = Path(os.path.realpath(out))
    # Beside the output, not in it: an output folder that is replaced as a whole would take the lock file with it.
    file = hidden(path, "lock")
    if path.is_dir() and not os.access(path.parent, os.W_OK):
        file = path / file.name
    with hold_lock(out, file=file):
        yield path if out.is_symlink() else out


@contextlib.contextmanager
def hold_lock(folder: Path, *, file: Path | None = None) -> Iterator[None]:
    """Lock `folder`, created if missing, until the block ends or the process dies.

    `file` is the lock file, by default `.lock` in the folder; it is removed at the end. The operating system holds the
    lock, so the file of a dead process blocks nobody. Raises UserError that names the process which holds the lock.
    """
    file = file or folder / NAME
    process, parents = os.getpid(), (file.parent, *file.parent.parents)
    new_folders = [path for path in parents if not path.exists()]
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        handle = _open_locked(file, folder)
        with contextlib.ExitStack() as held:
            held.callback(os.close, handle)  # which also releases the lock
            if hasattr(os, "register_at_fork"):  # a forked worker that outlives this process must not keep the lock
                os.register_at_fork(after_in_child=held.close)
            try:
                yield
            finally:
                # A forked child must not remove the lock file, nor anyone a file that has been replaced meanwhile.
                if os.getpid() == process and _leads_to(file, handle):
                    # While still locked: a process that has opened the file sees that it is gone.
                    with contextlib.suppress(OSError):
                        file.unlink()
    finally:
        for empty in new_folders:  # the innermost first
            with contextlib.suppress(OSError):
                empty.rmdir()


def _open_locked(file: Path, output: Path) -> int:
    """Open and lock a lock file; return its handle. Raises UserError if another process holds it."""
    while True:
        handle = os.open(file, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
        try:
            _take(handle, output)
            if _leads_to(file, handle):
                with contextlib.suppress(OSError):  # on a full disk the lock still holds, only without a description
                    os.ftruncate(handle, 0)
                    os.write(handle, f"{_myself()}\n".encode("utf-8", "replace"))
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # its holder removed it before the release: the path now names another file


def _leads_to(file: Path, handle: int) -> bool:
    try:
        return os.path.samestat(os.lstat(file), os.fstat(handle))
    except FileNotFoundError:
        return False


def _take(handle: int, output: Path) -> None:
    if fcntl is None:  # pragma: no cover
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # unlike lockf, it excludes other threads as well
    except (BlockingIOError, PermissionError):
        raise UserError(
            f"{output} is in use: {_holder(handle)} is writing it. Wait for it to end, or choose another output.",
            code="output-in-use",
        ) from None
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
            raise
        warnings.warn(
            f"the file system of {output} has no locks; make sure that only one process writes there",
            LockWarning,
            stacklevel=2,
        )


def _holder(handle: int) -> str:
    """Return the holder's description of itself. It writes it a moment after it has taken the lock."""
    deadline = time.monotonic() + PATIENCE
    while not (name := os.pread(handle, LONGEST, 0).decode("utf-8", "replace").strip()):
        if time.monotonic() > deadline:
            return "another process"
        time.sleep(0.01)
    return name


def _myself() -> str:
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    words = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]) if sys.argv else ""
    command = words if len(words) <= LONGEST // 10 else f"{words[: LONGEST // 10]}..."
    return f"process {os.getpid()} on {socket.gethostname()}, since {since} ({' '.join(command.split())}),"
