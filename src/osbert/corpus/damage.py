"""Checks of a corpus against its manifest: sizes and hashes of all files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from osbert.errors import UserError
from osbert.files import file_sha256
from osbert.guarded import leads_below, require_regular

ADVICE = "the corpus is damaged, or files of another one lie in it; build it again"


def files(folder: Path, manifest: Mapping[str, Any]) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Yield each file of arrays with its entry in the manifest: "bytes" and "sha256".

    Raises UserError if the manifest names a file outside the folder.
    """
    for shard in manifest["shards"]:
        for name, written in shard["files"].items():
            if not (leads_below(shard["name"]) and leads_below(name)):
                raise UserError(
                    f"{folder}: the manifest names {shard['name']!r:.80} and {name!r:.80}: {ADVICE}.",
                    code="damaged-file",
                )
            yield folder / shard["name"] / name, written
    yield folder / "counts.npy", manifest["counts"]


def wrong_size(path: Path, size: int) -> str:
    """Return an error message unless a file has `size` bytes; "" if it has."""
    try:
        require_regular(path)
        actual_size = path.stat().st_size
    except FileNotFoundError:
        return f"{path}: missing"
    return "" if actual_size == size else f"{path}: {actual_size:,} bytes, must be {size:,}"


def wrong_content(path: Path, sha256: str) -> str:
    """Return an error message unless the content of a file has this hash; "" if it has. Reads all of it."""
    try:
        require_regular(path)
        actual_hash = file_sha256(path)
    except OSError as error:
        return f"{path}: cannot be read ({error.strerror})"
    return "" if actual_hash == sha256 else f"{path}: not what was written when the corpus was built"
