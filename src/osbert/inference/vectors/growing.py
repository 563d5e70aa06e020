"""Files that grow part by part and survive a kill: what is behind the last whole part is cut off when they go on."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from osbert.errors import UserError
from osbert.files import read_sealed, write_sealed
from osbert.guarded import require_regular

PROGRESS = "progress.json"


class Growing:
    """Files `name`.bin in a folder that all grow at once; `tally` is kept with them, such as how many rows there are.

    They are written by ordinary appends: to write into a map of a file for which the disk has no room ends the process.
    The hash of each is kept too, and compared when they go on and by `check`.
    """

    def __init__(self, folder: Path) -> None:
        """Open what is in `folder`, which is there, and cut off what no finished part holds.

        Raises UserError when a file is shorter than what was noted of it, or has another content.
        """
        self.folder = folder
        self.sizes: dict[str, int] = {}
        self.tally: dict[str, Any] = {}
        noted = self._noted()
        if noted:
            self.sizes, self.tally = noted["sizes"], noted["tally"]
        for name, size in self.sizes.items():
            self._cut(self.path(name), size)
        self._hashes = {name: _hashed(self.path(name)) for name in self.sizes}
        self._refuse_others(noted.get("hashes", {}))

    def path(self, name: str) -> Path:
        """Return the path of a file."""
        return self.folder / f"{name}.bin"

    def append(self, parts: Mapping[str, bytes], tally: Mapping[str, Any]) -> None:
        """Add to the files, and note that the part is whole only when it is on the disk. Raises OSError."""
        for name, part in parts.items():
            with self.path(name).open("r+b" if name in self.sizes else "wb") as file:
                file.seek(self.sizes.get(name, 0))
                file.write(part)
                file.flush()
                os.fsync(file.fileno())
        sizes = {name: self.sizes.get(name, 0) + len(part) for name, part in parts.items()}
        hashes = {name: self._hashes[name].copy() if name in self._hashes else hashlib.sha256() for name in parts}
        for name, part in parts.items():
            hashes[name].update(part)
        digests = {name: hashed.hexdigest() for name, hashed in hashes.items()}
        write_sealed(self.folder / PROGRESS, {"sizes": sizes, "hashes": digests, "tally": dict(tally)})
        self.sizes, self._hashes, self.tally = sizes, hashes, dict(tally)

    def check(self) -> None:
        """Read all files. Raises UserError when one is not what was written."""
        self._refuse_others({name: _hashed(self.path(name)).hexdigest() for name in self.sizes})

    def _noted(self) -> dict[str, Any]:
        path = self.folder / PROGRESS
        try:
            return read_sealed(path) if path.is_file() else {}
        except ValueError as error:
            raise UserError(f"{path} is damaged ({error}). {self._again}") from error

    def _refuse_others(self, hashes: Mapping[str, str]) -> None:
        for name, hashed in self._hashes.items():
            if hashed.hexdigest() != hashes[name]:
                raise UserError(f"{self.path(name)} is damaged: it is not what was written. {self._again}")

    @property
    def _again(self) -> str:
        return f"Remove {self.folder} to begin anew."

    def _cut(self, path: Path, size: int) -> None:
        there = path.stat().st_size if path.is_file() else 0
        if there < size:
            raise UserError(f"{path} has {there:,} bytes, but {size:,} were written: it is damaged. {self._again}")
        os.truncate(path, size)


def _hashed(path: Path) -> Any:
    """Return the hash of a file's content, which can be continued."""
    require_regular(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256")
