"""Checks of a hub's answers before huggingface_hub makes paths of them.

The library joins the ETag and the commit of an answer to its cache folder as they are (2.4.0, `file_download.py`), so
"/etc/x" or "../../x" would be written there. Every answer about a file is checked, since a hub may give two others.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,200}")
"""A name of a file or folder that stays where it is put, on any system."""
_ONE = threading.Lock()


def check_file_name(file: str) -> None:
    """Raise ValueError if a file of a listing may be no path below a folder.

    >>> check_file_name("1_Pooling/config.json")
    >>> check_file_name("../config.json")
    Traceback (most recent call last):
    ValueError: '../config.json' is no file name of a repository
    """
    if not all(NAME.fullmatch(part) for part in file.split("/")):
        raise ValueError(f"{file!r} is no file name of a repository")


@contextmanager
def check_metadata(commit: str) -> Iterator[None]:
    """Check each answer about a file of a commit that huggingface_hub gets inside the block, in any thread.

    The library then raises ValueError where the ETag is no plain name, or the commit is another one, before it writes.
    """
    from huggingface_hub import constants, file_download
    from huggingface_hub.errors import HfHubHTTPError

    fetch = file_download.get_hf_file_metadata

    def fetch_checked(*arguments: Any, **options: Any) -> Any:
        try:
            metadata = fetch(*arguments, **options)
        except HfHubHTTPError as error:  # of a missing file the library keeps a note in a folder of the answer's commit
            headers = {} if error.response is None else error.response.headers
            _check_commit(headers.get(constants.HUGGINGFACE_HEADER_X_REPO_COMMIT), commit)
            raise
        _check_commit(metadata.commit_hash, commit)
        if metadata.etag is not None and not NAME.fullmatch(metadata.etag):
            raise ValueError(f"its ETag {metadata.etag[:200]!r} is no plain name")
        return metadata

    with _ONE:
        file_download.get_hf_file_metadata = fetch_checked
        try:
            yield
        finally:
            file_download.get_hf_file_metadata = fetch


def check_below(path: Path, cache: Path) -> None:
    """Raise ValueError if a fetched file, links followed, is not in the hub's cache or its repository's folder."""
    real = path.resolve()
    if not any(real.is_relative_to(folder.resolve()) for folder in (cache, cache.parent)):
        raise ValueError(f"{path} leads out of the cache, to {real}")


def _check_commit(commit: str | None, expected: str) -> None:
    if commit is not None and commit != expected:
        raise ValueError(f"its commit is {commit[:200]!r}, not {expected}")
