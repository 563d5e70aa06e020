"""Inputs and outputs on object stores (s3://BUCKET/KEY), which another package reads and writes; local paths are as
they are.

An address is used only where the user typed it: no file of a model, a run or a corpus can name one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from osbert.errors import UserError, nearest
from osbert.extensions import require_extension
from osbert.files import user_path

try:
    import fcntl
except ImportError:  # pragma: no cover - not on every system
    fcntl = None  # type: ignore[assignment]

SCHEMES = ("s3", "gs", "hf")
"""The object stores."""
OF_RUNS = ("checkpoints",)
"""Subfolders of a run that are not fetched with its model."""
_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+):/{1,2}([^/].*)")  # a Path has one slash of two
_held: dict[Path, tuple[int, str]] = {}
"""The folders of the copies that this process reads: a handle, which has a shared lock, and the address."""


def split_address(given: Path | str) -> tuple[str, str] | None:
    """Return the scheme of an address and its path; None for a local path. Raises UserError for an unknown scheme.

    >>> split_address("s3://bucket/a.csv"), split_address(Path("s3://bucket/run/")), split_address("runs/a.csv")
    (('s3', 'bucket/a.csv'), ('s3', 'bucket/run'), None)
    """
    match = _ADDRESS.fullmatch(str(given))
    if match is None or os.path.lexists(given):
        return None
    scheme, path = match.groups()
    if scheme not in SCHEMES:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        raise UserError(
            f"{scheme}://{path}: addresses with {scheme}:// are not read, only {known}, and local paths."
            f"{nearest(scheme, SCHEMES)}",
            code="unknown-scheme",
        )
    return scheme, path.rstrip("/")


def find_stores(given: Path | str) -> Any:
    """Return the module that reads and writes an address (its functions: osbert_lab/object_stores/stores.py); None for
    a local path.

    Raises UserError for an unknown scheme, and if no package has that module.
    """
    if split_address(given) is None:
        return None
    return require_extension("osbert.remote", "stores", display_path(given))


def local_copy(given: Path | str, *, without: Sequence[str] = ()) -> Path:
    """Return the path of a user's input: with ~ expanded, or for an address that of a copy in the cache.

    `without`: patterns of names below the address, or of their first part, that are not fetched. Raises UserError if
    the address cannot be read.
    """
    stores = find_stores(given)
    return user_path(given) if stores is None else stores.fetch(given, without)


def local_data(data: Any) -> Any:
    """Return the data of a task: an address as the path of its copy, a path with ~ expanded, rows as they are."""
    return local_copy(data) if isinstance(data, str | Path) else data


def local_output(given: Path | str, *, inputs: Sequence[Path | str] = ()) -> AbstractContextManager[Path]:
    """Return a context with the path to write for a user's output; for an address it is uploaded at the end.

    Until then it lies in the cache, so that a stopped command goes on. Hidden files are not uploaded.

    Raises UserError if the output would replace one of the `inputs`, if another process writes it, and if it cannot be
    uploaded: then it stays in the cache.
    """
    stores = find_stores(given)
    return nullcontext(Path(given)) if stores is None else stores.write_file(given, inputs)


@dataclass(frozen=True, kw_only=True)
class FolderForm:
    """What an output folder holds.

    `marker`: the file that says what the folder is. Patterns of names, or of their first part: `scratch` is never
    uploaded, and `left_there` not fetched to go on. `checkpoints`: the subfolder of checkpoints, each of which has the
    file `seal` when it is whole; "" for none. `keeps_unfinished`: whether unfinished work is kept for the next command.
    """

    marker: str
    scratch: Sequence[str] = ()
    left_there: Sequence[str] = ()
    checkpoints: str = ""
    seal: str = ""
    keeps_unfinished: bool = True


@dataclass(kw_only=True)
class OutputFolder:
    """A folder that a command writes; a local one needs no more than its path."""

    path: Path

    def push(self) -> None:
        """Upload what has become whole since the last time, and remove checkpoints that are no longer here."""

    def follow(self) -> None:
        """Upload if there is another checkpoint than at the last call; a failure is a warning."""


def output_folder(
    given: Path | str,
    form: FolderForm,
    *,
    inputs: Sequence[Path | str] = (),
    warn: Callable[[str], object] = lambda text: None,
) -> AbstractContextManager[OutputFolder]:
    """Return a context with the folder to write for a user's output; one on an object store is uploaded at the end.

    What lies in the store already is fetched first, so that a run goes on from there. After an error whole checkpoints
    are uploaded, and nothing of a folder without any: what is done stays in the cache. `warn` is called if that fails.

    Raises UserError if an input lies in the folder, if another process writes it, if something else lies there, and
    if it cannot be uploaded.
    """
    stores, local = find_stores(given), OutputFolder(path=Path(given))
    return nullcontext(local) if stores is None else stores.write_folder(given, form, inputs, warn)


def display_path(given: Path | str) -> str:
    """Return how messages show a user's path: an address with both of its slashes, of which a Path has one.

    >>> display_path(Path("s3://bucket/a.csv")), display_path(Path("runs/a.csv"))
    ('s3://bucket/a.csv', 'runs/a.csv')
    """
    match = None if os.path.lexists(given) else _ADDRESS.fullmatch(str(given))
    return str(given) if match is None or match[1] not in SCHEMES else f"{match[1]}://{match[2]}"


def explain_addresses(message: str) -> str:
    """Return an error message with both slashes of its addresses, and a hint: they were taken for local paths.

    >>> explain_addresses("s3:/bucket/a.csv: no such file.")
    's3://bucket/a.csv: no such file. This option takes local paths only: copy the object to this machine first.'
    """
    text = re.sub(rf"\b({'|'.join(SCHEMES)}):/(?=[^/])", r"\1://", message)
    hint = " This option takes local paths only: copy the object to this machine first."
    return text if text == message else text + hint


def hold(entry: Path, address: str = "") -> bool:
    """Keep a copy from being removed while this process reads it; return whether it is there. `address`: its origin."""
    if entry in _held and _leads_to(entry, _held[entry][0]):
        return True
    if fcntl is None:  # pragma: no cover
        return entry.is_dir()
    try:
        handle = os.open(entry, os.O_RDONLY)
    except FileNotFoundError:
        return False
    with suppress(OSError):  # where the file system has no locks, no copy is removed
        fcntl.flock(handle, fcntl.LOCK_SH)
    # Another process may have removed it before the lock.
    if not _leads_to(entry, handle):
        os.close(handle)
        return False
    if entry in _held:
        os.close(_held[entry][0])
    _held[entry] = handle, address
    return True


def release(entry: Path) -> None:
    """Let a copy be removed again."""
    if entry in _held:
        os.close(_held.pop(entry)[0])


@contextmanager
def reading_copies() -> Iterator[None]:
    """Hold copies until the end of the block only, and name their addresses in its errors."""
    before = {*_held}
    try:
        yield
    except UserError as error:
        if (text := with_addresses(str(error))) == str(error):
            raise
        raise UserError(text, code=error.code, codes=error.codes) from error
    finally:
        for entry in {*_held} - before:
            release(entry)


def address_of(path: Path) -> str:
    """Return the address whose copy a path is, if this process reads it; otherwise the path as a text."""
    return with_addresses(str(path))


def with_addresses(text: str) -> str:
    """Return a text in which the paths of copies that this process reads are replaced by their addresses."""
    for entry, (_, address) in _held.items():
        if address:
            text = text.replace(str(entry / address.rpartition("/")[2]), address)
    return text


def _leads_to(entry: Path, handle: int) -> bool:
    try:
        return os.path.samestat(os.stat(entry), os.fstat(handle))
    except FileNotFoundError:
        return False
