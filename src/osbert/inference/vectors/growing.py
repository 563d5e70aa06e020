"""Append-only files that survive a kill: when they are reopened, an incomplete part at the end is cut off."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from osbert.errors import UserError
from osbert.files import flush, read_own, write_sealed
from osbert.guarded import require_regular

PROGRESS = "progress.json"


class GrowingFiles:
    """Files `name`.bin in a folder that grow together, with a `tally` such as their number of rows.

    They are written by ordinary appends: on a full disk, writing to a memory map would end the process. The hash of
    each file is stored, and compared when the files are reopened and by `check`.
    """

    def __init__(self, folder: Path) -> None:
        """Open the files in an existing folder and cut off incomplete parts.

        Raises UserError if a file is shorter than recorded, or its content differs from the recorded hash.
        """
        self.folder = folder
        self.sizes: dict[str, int] = {}
        self.tally: dict[str, Any] = {}
        noted = self._read_progress()
        if noted:
            self.sizes, self.tally = noted["sizes"], noted["tally"]
        for name, size in self.sizes.items():
            self._cut(self.path(name), size)
        self._hashes = {name: _hash(self.path(name)) for name in self.sizes}
        self._refuse_others(noted.get("hashes", {}))

    def path(self, name: str) -> Path:
        """Return the path of a file."""
        return self.folder / f"{name}.bin"

    def append(self, parts: Mapping[str, bytes], tally: Mapping[str, Any]) -> None:
        """Append a part to each file, and record it once it is on the disk. Raises OSError."""
        for name, part in parts.items():
            with self.path(name).open("r+b" if name in self.sizes else "wb") as file:
                file.seek(self.sizes.get(name, 0))
                file.write(part)
                file.flush()
                flush(file.fileno())
        # Only now, after the data: a kill before this line leaves surplus bytes, which the next start cuts off.
        sizes = {name: self.sizes.get(name, 0) + len(part) for name, part in parts.items()}
        hashes = {name: self._hashes[name].copy() if name in self._hashes else hashlib.sha256() for name in parts}
        for name, part in parts.items():
            hashes[name].update(part)
        digests = {name: hashed.hexdigest() for name, hashed in hashes.items()}
        write_sealed(self.folder / PROGRESS, {"sizes": sizes, "hashes": digests, "tally": dict(tally)})
        self.sizes, self._hashes, self.tally = sizes, hashes, dict(tally)

    def check(self) -> None:
        """Read all files. Raises UserError if one differs from what was written."""
        self._refuse_others({name: _hash(self.path(name)).hexdigest() for name in self.sizes})

    def _read_progress(self) -> dict[str, Any]:
        path = self.folder / PROGRESS
        return read_own(path, self._again) if path.is_file() else {}

    def _refuse_others(self, hashes: Mapping[str, str]) -> None:
        for name, hashed in self._hashes.items():
            if hashed.hexdigest() != hashes[name]:
                raise UserError(
                    f"{self.path(name)} is damaged: its content has changed. {self._again}", code="damaged-file"
                )

    @property
    def _again(self) -> str:
        return f"Remove {self.folder} to start again."

    def _cut(self, path: Path, size: int) -> None:
        actual_size = path.stat().st_size if path.is_file() else 0
        if actual_size < size:
            raise UserError(
                f"{path} has {actual_size:,} bytes, but {size:,} were written: it is damaged. {self._again}",
                code="damaged-file",
            )
        os.truncate(path, size)


def _hash(path: Path) -> Any:
    """Return a hash object of a file's content, which `update` continues."""
    require_regular(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256")
