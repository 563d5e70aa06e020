"""Files that grow part by part and survive a kill: what is behind the last whole part is cut off when they go on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from osbert.errors import UserError
from osbert.files import write_json
from osbert.guarded import read_json

PROGRESS = "progress.json"


class Growing:
    """Files `name`.bin in a folder that all grow at once; `tally` is kept with them, such as how many rows there are.

    They are written by ordinary appends: to write into a map of a file for which the disk has no room ends the process.
    """

    def __init__(self, folder: Path) -> None:
        """Open what is in `folder`, which is there, and cut off what no finished part holds.

        Raises UserError when a file is shorter than what was noted of it.
        """
        self.folder = folder
        self.sizes: dict[str, int] = {}
        self.tally: dict[str, Any] = {}
        path = folder / PROGRESS
        if path.is_file():
            noted = read_json(path)
            self.sizes, self.tally = noted["sizes"], noted["tally"]
        for name, size in self.sizes.items():
            self._cut(self.path(name), size)

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
        write_json(self.folder / PROGRESS, {"sizes": sizes, "tally": dict(tally)})
        self.sizes, self.tally = sizes, dict(tally)

    def _cut(self, path: Path, size: int) -> None:
        there = path.stat().st_size if path.is_file() else 0
        if there < size:
            raise UserError(
                f"{path} has {there:,} bytes, but {size:,} were written: it is damaged. Remove {self.folder} to begin "
                "anew."
            )
        os.truncate(path, size)
