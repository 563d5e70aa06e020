"""Atomic writes: a file is written under another name, flushed to disk, then renamed in one step. A full disk."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from osbert.errors import UserError
from osbert.guarded import read_json

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows has no fcntl; there, what a killed process left stays
    fcntl = None  # type: ignore[assignment]

STREAMS = ("/dev/stdout", "/dev/stderr")
DESCRIPTORS = ("/dev/fd", "/proc/self/fd")
"""Folders of the process's own open files, which are written to and never replaced."""
LOGS = ("log", "log[-_.]*", "log[0-9]*", "*.log", "*.out", "*.err")
"""Names of log files that a user's shell may have created in an output folder: `osbert ... --out run > run/log`."""
PART = ".part"
"""Ending of the name of a private folder, see `_private_folder`."""
PRIVATE = re.compile(r"\.[0-9a-f]{8}" + re.escape(PART) + "$")
ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+):/{1,2}")
"""The beginning of an address such as s3://BUCKET; a Path has one slash of two."""
SEAL = "sha256"
"""The key under which a sealed file keeps its hash."""
LONGEST = 200
"""Longest name, in bytes, that the names of hidden files contain; the system allows 255 in all."""


def user_path(given: Any, *, instead: str = "") -> Path:
    """Return a path that a user gave, with ~ as the home folder. `instead`: the call for what is in memory.

    Raises UserError if it is not a path.

    >>> user_path("~/data.csv") == Path.home() / "data.csv"
    True
    """
    if isinstance(given, str | os.PathLike):
        return Path(os.path.expanduser(given))
    advice = f"Give the path of a file; for texts in memory use {instead}." if instead else "Give a path."
    raise UserError(f"A path is expected here, not {type(given).__name__}. {advice}", code="invalid-value")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a path for a new file, which is renamed to `path` if the block ends without an error.

    The new file is flushed to disk first. It gets the permissions of the file that it replaces, and its owner if the
    system allows that; otherwise the permissions of any new file of this user. If anything goes wrong (a full disk
    raises OSError), the old file at `path` stays. A link at `path` is replaced: `lock.claim` follows links.
    """
    with _private_folder(path) as folder:
        aside = folder / path.name
        yield aside
        # The content must be on the disk before the new name is, or a crash could leave an empty file by that name.
        # The folder is synced last, which makes the rename itself durable.
        _inherit(aside, path)
        sync(aside)
        os.replace(aside, path)
        sync(path.parent)


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Call `write` with the path of a new file, and replace `path` by it; see `replacing`."""
    with replacing(path) as aside:
        write(aside)


@contextmanager
def writing_output(out: Path) -> Iterator[Path]:
    """Yield the path to write for a user's output: as `replacing`, but pipes and devices are written directly."""
    if is_stream(out):
        yield out
        return
    with replacing(out) as aside:
        yield aside


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file, whole or not at all; line ends stay as they are.

    A lone surrogate, such as those for bytes of a file name that are not UTF-8, is written as its JSON escape.
    """
    with replacing(path) as aside:
        aside.write_text(text, encoding="utf-8", errors="backslashreplace", newline="")


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file, whole or not at all."""
    write_text(path, as_json(value))


def as_json(value: Any) -> str:
    """Return a value as the text of a JSON file."""
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def write_sealed(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON object with its own hash, for `read_sealed`: the state of unfinished work."""
    write_json(path, {SEAL: _seal(value), **value})


def read_sealed(path: Path) -> dict[str, Any]:
    """Return a JSON object that `write_sealed` wrote, without the hash. Raises ValueError if a bit has changed."""
    value = read_json(path)
    if not isinstance(value, dict) or value.pop(SEAL, None) != _seal(value):
        raise ValueError("its content has changed")
    return value


def read_own(path: Path, again: str) -> dict[str, Any]:
    """Return what `write_sealed` wrote. Raises UserError if it is damaged; `again`: the sentence that says what to do.

    Raises OSError as `open`.
    """
    try:
        return read_sealed(path)
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}). {again}", code="damaged-file") from error


def _seal(value: Mapping[str, Any]) -> str:
    read_again = json.loads(json.dumps(value))  # tuples become lists, and keys become strings
    return hashlib.sha256(json.dumps(read_again, sort_keys=True).encode()).hexdigest()


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal digits. Raises OSError as `open`."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_stamp(path: Path) -> tuple[int, ...] | None:
    """Return device, inode, size and both times of change of a file, None where it is missing.

    A file with an equal stamp has not been written since, as far as the system can tell without reading it.
    """
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def is_stream(path: Path) -> bool:
    """Return whether `path` names a pipe, a device or an open file of this process, none of which can be replaced."""
    absolute = os.path.abspath(path)
    if absolute in STREAMS or os.path.dirname(absolute) in DESCRIPTORS:
        return True
    with contextlib.suppress(OSError):
        mode = path.stat().st_mode
        return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
    return False


def hidden(path: Path, ending: str) -> Path:
    """Return the path of a hidden file or folder beside `path`, ".name.ending"; a very long name is hashed."""
    name = path.name
    if len(os.fsencode(name)) > LONGEST:
        name = hashlib.sha256(os.fsencode(name)).hexdigest()
    return path.with_name(f".{name}.{ending}")


def require_path(out: Path) -> None:
    """Raise UserError if nothing can be written at an output's path: the root, below a file, or no name of a file."""
    if (address := ADDRESS.match(str(out))) and not os.path.lexists(out.parts[0]):
        raise UserError(
            f"{address[1]}://{str(out)[address.end() :]}: this output is written to local paths only. Choose "
            "another --out.",
            code="unknown-scheme",
        )
    try:
        root = os.path.realpath(out) == os.path.realpath(out.absolute().anchor)
        os.lstat(out)
    except FileNotFoundError:
        return
    except NotADirectoryError as error:
        file = next(parent for parent in out.parents if parent.exists())
        raise UserError(
            f"{out}: {file} is a file, not a folder. Choose another --out.", code="output-is-file"
        ) from error
    except (ValueError, OSError) as error:
        if isinstance(error, OSError) and error.errno != errno.ENAMETOOLONG:
            return  # such as a folder that cannot be read: who writes there learns it
        reason = "its name is too long" if isinstance(error, OSError) else error
        raise UserError(
            f"{str(out)!r:.200}: no file can have this name ({reason}). Choose another --out.", code="invalid-value"
        ) from error
    if root:
        raise UserError(
            f"{out} is the root of the file system. Choose a folder below it as --out.", code="invalid-value"
        )


def require_file(out: Path, inputs: Iterable[Path] = ()) -> None:
    """Raise UserError if an output file is a folder, or one of the files that the command reads; see `require_path`."""
    require_path(out)
    if out.is_dir():
        raise UserError(f"{out} is a folder, but the output is a file. Choose another --out.", code="output-is-folder")
    for path in inputs:
        if path.is_file() and out.is_file() and out.samefile(path):
            raise UserError(
                f"{out} would overwrite {path}, an input of this command. Choose another --out.", code="output-is-input"
            )


def require_folder(out: Path) -> None:
    """Raise UserError if an output folder is a file; see `require_path`."""
    require_path(out)
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file, but the output is a folder. Choose another --out.", code="output-is-file")


def require_free(folder: Path) -> None:
    """Raise UserError if an output folder exists and is not empty, or is the current folder."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise UserError(f"{folder} exists already. Choose another folder, or remove it.", code="output-exists")
    if folder.exists() and folder.samefile(Path.cwd()):
        raise UserError(
            f"{folder} is the current folder, which cannot be replaced. Choose a new one.",
            code="output-is-current-folder",
        )


def foreign(folder: Path, patterns: Sequence[str] = ()) -> list[str]:
    """Return the sorted names in an output folder that are not the command's own; none if the folder is missing.

    Hidden files, log files (`LOGS`) and names that match a pattern of `patterns` do not count.
    """
    names = []
    for path in folder.iterdir() if folder.is_dir() else ():
        allowed = (".*", *patterns, *(LOGS if path.is_file() else ()))
        if not any(fnmatch(path.name, pattern) for pattern in allowed):
            names.append(path.name)
    return sorted(names)


def refuse_foreign(folder: Path, what: str, patterns: Sequence[str] = ()) -> None:
    """Raise UserError if an output folder holds other files than `patterns`; `what` is the name of the output."""
    require_folder(folder)
    if names := foreign(folder, patterns):
        listed = ", ".join(names[:5]) + (f" and {len(names) - 5:,} more" if len(names) > 5 else "")
        raise UserError(
            f"{folder} already contains {listed}, which is not part of {what}. Choose another "
            "--out, or an empty folder.",
            code="output-holds-something-else",
        )


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Yield a folder that is renamed to `path` once it is complete; after an error there is none.

    At the end of the block `path` must be free or an empty folder. Raises OSError otherwise.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _private_folder(path) as folder:
        aside = folder / path.name
        aside.mkdir()
        yield aside
        if path.is_dir():
            aside.chmod(stat.S_IMODE(path.stat().st_mode))
        sync(aside)
        aside.replace(path)
        sync(path.parent)


@contextmanager
def _private_folder(path: Path) -> Iterator[Path]:
    """Yield a folder beside `path` that only this process writes to; it is removed at the end.

    Its name is random, so that it follows no link or pipe of another user. A lock on it shows that its process is
    alive; the folders of killed processes are removed first.
    """
    remove_abandoned(path.parent, hidden(path, "").name)
    with contextlib.ExitStack() as held:
        while True:  # another process may remove the folder as abandoned before the lock
            folder = hidden(path, f"{secrets.token_hex(4)}{PART}")
            folder.mkdir(mode=0o700)
            if _alone(folder, held, otherwise=True):
                break
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned(folder: Path, beginning: str = ".") -> None:
    """Remove the private folders that killed processes left in a folder, of those whose names begin so."""
    with os.scandir(folder) as entries:
        private_folders = [
            Path(entry) for entry in entries if entry.name.startswith(beginning) and PRIVATE.search(entry.name)
        ]
    for private in private_folders:
        with contextlib.ExitStack() as held, contextlib.suppress(OSError):
            if _alone(private, held, otherwise=False):
                shutil.rmtree(private)


def _alone(folder: Path, held: contextlib.ExitStack, *, otherwise: bool) -> bool:
    """Lock a folder while `held` lasts; return whether that succeeded, or `otherwise` if there are no locks."""
    if fcntl is None:  # pragma: no cover
        return otherwise
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    held.callback(os.close, handle)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return otherwise
    return bool(os.fstat(handle).st_nlink)  # 0 if the folder was removed meanwhile


def _inherit(aside: Path, path: Path) -> None:
    """Set the permissions and the owner of a new file to those of the file that it replaces, else to the user's usual
    ones."""
    before = path.lstat() if path.exists() else None
    if before is None or not stat.S_ISREG(before.st_mode):
        # Some libraries write files that only their owner can read. The umask can only be read by setting it.
        mask = os.umask(0)
        os.umask(mask)
        aside.chmod(0o666 & ~mask)
        return
    if os.name == "posix":
        with contextlib.suppress(OSError):  # only the superuser may give files away
            os.chown(aside, before.st_uid, before.st_gid)
    aside.chmod(stat.S_IMODE(before.st_mode) & 0o777)


def require_utf8(path: Path) -> None:
    """Raise UserError if a path is not UTF-8: the safetensors library cannot open it."""
    try:
        str(path.absolute()).encode()
    except UnicodeEncodeError as error:
        raise UserError(
            f"{path}: weights cannot be read from a folder whose name is not UTF-8. Rename it.",
            code="file-name-not-utf8",
        ) from error


def disk_full(error: OSError) -> bool:
    """Return whether an error means that the disk, or the user's quota, is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def system_error(error: Exception, path: Path) -> Exception:
    """Return the OSError that a library reports as text, "... (os error 28)"; any other error unchanged."""
    match = re.search(r"\(os error (\d+)\)", str(error))
    return OSError(int(match.group(1)), os.strerror(int(match.group(1))), str(path)) if match else error


def link_or_copy(source: Path, path: Path) -> None:
    """Give a file a second name, without its bytes being copied where the file system can do that."""
    path.unlink(missing_ok=True)
    try:
        os.link(source, path)
    except OSError:
        shutil.copyfile(source, path)


def sync(path: Path) -> None:
    """Flush a file's content, or a folder's list of names, to disk, if the system supports it."""
    if os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        flush(handle)
    finally:
        os.close(handle)


def flush(handle: int) -> None:
    """Wait until what was written to an open file is on the disk.

    macOS's fsync leaves data in the disk's own cache, which a power cut empties; F_FULLFSYNC empties it in order.
    """
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is not None:
        with contextlib.suppress(OSError):  # file systems of other machines do not have it
            fcntl.fcntl(handle, full)
            return
    os.fsync(handle)


@contextmanager
def disk_needed(out: Path, *, goes_on: str | Callable[[], str] = "from the last checkpoint") -> Iterator[None]:
    """Turn an OSError about a full disk into a UserError with advice.

    `goes_on`: from where the same command would continue, for the message; "" if it starts again. A function is asked
    when the disk is full.
    """
    try:
        yield
    except OSError as error:
        if not disk_full(error):
            raise
        progress = goes_on if isinstance(goes_on, str) else goes_on()
        then = f"it resumes {progress}" if progress else "it starts again"
        raise UserError(
            f"{out} could not be written: {describe_failure(error, out)}. Free some space and run the same "
            f"command again: {then}.",
            code="not-written",
        ) from error


def describe_failure(error: BaseException, folder: Path) -> str:
    """Describe why something could not be written to `folder`; a full disk with the free space."""
    text = str(error)
    if (isinstance(error, OSError) and disk_full(error)) or "No space left" in text:
        free = shutil.disk_usage(folder if folder.is_dir() else folder.parent).free
        return f"the disk is full ({free / 1e6:,.1f} MB free)"
    return text
