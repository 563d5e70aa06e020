"""The cache of local copies of remote inputs: its folder, its bound, and locks on the copies that processes read."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from pathlib import Path

from osbert.errors import UserError
from osbert.files import PART, hidden, remove_abandoned
from osbert.remote import hold
from osbert.terminal import in_megabytes

try:
    import fcntl
except ImportError:  # pragma: no cover - not on every system
    fcntl = None  # type: ignore[assignment]

CACHE, CACHE_SIZE = "OSBERT_CACHE", "OSBERT_CACHE_GB"
"""Environment variables: the folder of the cache, and its most gigabytes."""
GIGABYTES = 64.0
COPY = re.compile("[0-9a-f]{24}")
"""The name of the folder of a copy."""


def cache_folder() -> Path:
    """Return the folder of the cache: $OSBERT_CACHE, or osbert/remote in the user's folder of caches."""
    if given := os.environ.get(CACHE):
        return Path(given).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "osbert" / "remote"


def make_room(size: int, what: str) -> None:
    """Remove the copies that were used longest ago until `size` more bytes are within the bound of the cache.

    Copies that a process reads stay. Raises UserError if the bound, or the disk, is too small.
    """
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    remove_abandoned(folder)
    most = bound()
    if size > most:
        raise UserError(
            f"{what} has {in_megabytes(size)}, more than the cache of {in_megabytes(most)}. Set {CACHE_SIZE}.",
            code="too-large",
        )
    measured = [(path, _size_and_time(path)) for path in folder.iterdir() if COPY.fullmatch(path.name)]
    entries = [(path, *usage) for path, usage in measured if usage is not None]
    total = sum(bytes_there for _, bytes_there, _ in entries)
    for path, bytes_there, _ in sorted(entries, key=lambda entry: entry[2]):
        if total + size <= most:
            break
        if _remove_unused(path):
            total -= bytes_there
    if total + size > most:
        raise UserError(
            f"{what} has {in_megabytes(size)}, but of the cache of {in_megabytes(most)} in {folder} commands that are "
            f"running use {in_megabytes(total)}. Set {CACHE_SIZE}, or wait for them to end.",
            code="too-large",
        )
    if (free := shutil.disk_usage(folder).free) < size:
        raise UserError(
            f"{what} has {in_megabytes(size)}, but the disk of {folder} has {in_megabytes(free)} left. Free some, or "
            f"set {CACHE} to a folder on another disk.",
            code="not-written",
        )


def _size_and_time(entry: Path) -> tuple[int, float] | None:
    """Return the bytes of a copy and when it was last used; None if another process has removed it meanwhile."""
    try:
        return sum(file.stat().st_size for file in entry.rglob("*") if file.is_file()), entry.stat().st_mtime
    except FileNotFoundError:
        return None


def require_copy(path: Path) -> None:
    """Hold the copy that a path lies in, in a task of another process; any other path is passed over.

    Raises UserError if the copy was removed from the cache.
    """
    entry = next((parent for parent in path.parents if COPY.fullmatch(parent.name)), None)
    if entry is not None and not hold(entry) and not path.exists():
        raise UserError(
            f"{path} was removed from the cache of {in_megabytes(bound())}. Give the same command again; if it "
            f"happens again, set {CACHE_SIZE}.",
            code="file-changed",
        )


def _remove_unused(entry: Path) -> bool:
    """Remove a copy, unless a process holds it; return whether it is gone."""
    aside = hidden(entry, f"{secrets.token_hex(4)}{PART}")
    try:
        handle = os.open(entry, os.O_RDONLY)
    except OSError:
        return not entry.exists()
    try:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Renamed first: a copy is whole or not there, also if this process is killed now.
        entry.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def bound() -> int:
    """Return the most bytes of the cache. Raises UserError if the variable is no number."""
    given = os.environ.get(CACHE_SIZE, str(GIGABYTES))
    try:
        return int(float(given) * 1e9)
    except (ValueError, OverflowError) as error:
        raise UserError(
            f"The environment variable {CACHE_SIZE} is '{given}', but must be a number of gigabytes.",
            code="invalid-value",
        ) from error
