"""Messages about a full disk: which output has no room, and what a second call does."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from osbert.errors import UserError
from osbert.files import disk_full


@contextmanager
def disk_needed(out: Path, *, goes_on: str = "from the last checkpoint") -> Iterator[None]:
    """Turn an OSError about a full disk into a UserError with advice.

    `goes_on`: from where the same command would continue, for the message; "" if it begins anew.
    """
    try:
        yield
    except OSError as error:
        if not disk_full(error):
            raise
        then = f"it goes on {goes_on}" if goes_on else "it begins anew"
        raise UserError(
            f"{out} could not be written: {reason(error, out)}. Make room and give the same command again; {then}.",
            code="not-written",
        ) from error


def reason(error: BaseException, folder: Path) -> str:
    """Describe why something could not be written to `folder`; a full disk with the free space."""
    text = str(error)
    if (isinstance(error, OSError) and disk_full(error)) or "No space left" in text:
        free = shutil.disk_usage(folder if folder.is_dir() else folder.parent).free
        return f"the disk is full ({free / 1e6:,.1f} MB free)"
    return text
