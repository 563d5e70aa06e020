"""Files that are there whole or not at all: written aside, forced to disk, then given their name in one step."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from osbert.errors import UserError


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a file beside `path`, force it to disk and put it in the place of `path`.

    Whatever goes wrong (a full disk raises OSError), what stood at `path` before is untouched.
    """
    aside = path.with_name(f".{path.name}.part")
    try:
        write(aside)
        share(aside)
        sync(aside)
        os.replace(aside, path)
        sync(path.parent)
    finally:
        aside.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file, whole or not at all; line ends stay as they are.

    A lone half of a pair, as bytes of a file name that are not UTF-8 become, is written as JSON spells it.
    """
    replace_file(path, lambda aside: aside.write_text(text, encoding="utf-8", errors="backslashreplace", newline=""))


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file, whole or not at all."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def require_free(folder: Path) -> None:
    """Raise UserError when a folder to be written is there and not empty, or is the one that the user is in."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise UserError(f"{folder} is there already: name another folder, or remove it.")
    if folder.exists() and folder.samefile(Path.cwd()):
        raise UserError(f"{folder} is the folder that you are in, which nothing can take the place of: name a new one.")


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Give a folder that gets the name `path` when it is complete; what went wrong leaves none."""
    aside = path.with_name(f".{path.name}.part")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        yield aside
        aside.replace(path)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def require_utf8(path: Path) -> None:
    """Raise UserError where a path is not UTF-8, which the safetensors library cannot open."""
    try:
        str(path.absolute()).encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{path}: weights are in no folder whose name is not UTF-8: rename it.") from error


def share(path: Path) -> None:
    """Give a file the permissions that new files of this user have; some libraries write for their owner alone."""
    mask = os.umask(0)
    os.umask(mask)
    path.chmod(0o666 & ~mask)


def disk_full(error: OSError) -> bool:
    """Return whether an error says that the disk, or the user's share of it, is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def system_error(error: Exception, path: Path) -> Exception:
    """Return the OSError that a library tells of in words, "... (os error 28)"; any other error as it is."""
    told = re.search(r"\(os error (\d+)\)", str(error))
    return OSError(int(told.group(1)), os.strerror(int(told.group(1))), str(path)) if told else error


def sync(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, has reached the disk, where the system can tell."""
    if os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
