"""The limit of what a compressed file may unpack to, so that a few kilobytes cannot keep a command busy for minutes."""

from __future__ import annotations

from typing import NoReturn

from osbert.errors import UserError

FREE = 1 << 23
"""Bytes that a file of any size may unpack to."""
TIMES = 1000
"""Bytes that it may unpack to in addition for each of its own; texts and tables have 2 to 30."""
VALUE = 64
"""Bytes that a line, a cell or a value counts as, beyond its own: to read a short one takes as long as to read so many.
"""


class UnpackingLimit:
    """Counts what a file, with all that it contains, unpacks to. More than the limit raises UserError.

    >>> limit = UnpackingLimit("a.csv.gz", 200)
    >>> limit.add(8_000_000)
    >>> try:
    ...     limit.add_values(10_000)
    ... except UserError as error:
    ...     print(error.code)
    too-large
    """

    def __init__(self, name: str, size: int) -> None:
        """Start at 0; `size`: of the file on disk, in bytes, `name`: its name in messages."""
        self.name = name
        self.size = size
        self.most = FREE + TIMES * size
        self.count = 0

    def add(self, size: int) -> None:
        """Count `size` unpacked bytes. Raises UserError beyond the limit."""
        self.count += size
        if self.count > self.most:
            self._refuse()

    def add_data(self, data: bytes) -> None:
        """Count unpacked bytes and the lines in them. Raises UserError beyond the limit."""
        self.add(len(data) + VALUE * data.count(b"\n"))

    def add_values(self, count: int) -> None:
        """Count `count` cells or values. Raises UserError beyond the limit."""
        self.add(VALUE * count)

    def _refuse(self) -> NoReturn:
        raise UserError(
            f"{self.name} has {self.size:,} bytes and unpacks to more than {self.most:,} (each line or value counts as "
            f"{VALUE}). Hardly anything but repetition or empty rows does so. If that is meant, give it unpacked, as "
            "plain text or CSV.",
            code="too-large",
        )
