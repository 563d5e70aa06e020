"""The cache of local copies of remote inputs: its folder, its bound, and locks on the copies that processes read."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from osbert.errors import UserError
from osbert.terminal import in_megabytes

try:
    import fcntl
except ImportError:  # pragma: no cover - not on every system
    fcntl = None  # type: ignore[assignment]

CACHE, CACHE_SIZE = "OSBERT_CACHE", "OSBERT_CACHE_GB"
"""Environment variables: the folder of the cache, and its most gigabytes."""
GIGABYTES = 64.0
_held: list[int] = []  # handles of the copies that this process reads, which hold a lock


def cache_folder() -> Path:
    """Return the folder of the cache: $OSBERT_CACHE, or osbert/remote in the user's folder of caches."""
    if given := os.environ.get(CACHE):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "osbert" / "remote"


def make_room(size: int, what: str) -> None:
    """Remove the copies that were used longest ago until `size` more bytes are within the bound of the cache.

    Copies that a process reads stay. Raises UserError if the bound, or the disk, is too small.
    """
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    bound = _bound()
    if size > bound:
        raise UserError(
            f"{what} has {in_megabytes(size)}, more than the cache of {in_megabytes(bound)}. Set {CACHE_SIZE}.",
            code="too-large",
        )
    entries = [path for path in folder.iterdir() if re.fullmatch("[0-9a-f]{24}", path.name)]
    sizes = {path: sum(one.stat().st_size for one in path.rglob("*") if one.is_file()) for path in entries}
    total = sum(sizes.values())
    for path in sorted(entries, key=lambda path: path.stat().st_mtime):
        if total + size <= bound:
            break
        if _is_free(path):
            shutil.rmtree(path, ignore_errors=True)
            total -= sizes[path]
    if (free := shutil.disk_usage(folder).free) < size:
        raise UserError(
            f"{what} has {in_megabytes(size)}, but the disk of {folder} has {in_megabytes(free)} left. Free some, or "
            f"set {CACHE} to a folder on another disk.",
            code="not-written",
        )


def hold(entry: Path) -> None:
    """Keep a copy from being removed until this process ends."""
    if fcntl is not None:
        _held.append(os.open(entry, os.O_RDONLY))
        fcntl.flock(_held[-1], fcntl.LOCK_SH)


def _is_free(entry: Path) -> bool:
    """Return whether no process holds a copy."""
    if fcntl is None:  # pragma: no cover
        return True
    handle = os.open(entry, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def _bound() -> int:
    given = os.environ.get(CACHE_SIZE, str(GIGABYTES))
    try:
        return int(float(given) * 1e9)
    except (ValueError, OverflowError) as error:
        raise UserError(
            f"The environment variable {CACHE_SIZE} is '{given}', but must be a number of gigabytes.",
            code="invalid-value",
        ) from error
