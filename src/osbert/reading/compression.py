"""Compressed files (.gz, .xz, .bz2, .zst) as streams; damaged ones, or ones that unpack to far too much, are errors."""

from __future__ import annotations

import bz2
import io
import lzma
import os
import tarfile
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

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
            raise UserError(
                f"{self.name} has {self.size:,} bytes and unpacks to more than {self.most:,} (each line or value "
                f"counts as {VALUE}). Only repeated or empty rows compress so well. If that is intended, unpack it "
                "first, to plain text or CSV.",
                code="too-large",
            )

    def add_values(self, count: int) -> None:
        """Count `count` cells or values. Raises UserError beyond the limit."""
        self.add(VALUE * count)


BUFFER = 1 << 16
"""Buffer size in bytes for reading a table."""
NESTED = 8
"""Deepest nesting of archives, or of compressions of one file."""
WINDOW = 1 << 28
"""Most bytes of a decompressor's window. Larger files may use 8 times their size (zstd --long=31, xz --lzma2=dict)."""
ARCHIVES = {".tgz": ".tar.gz", ".txz": ".tar.xz", ".tbz2": ".tar.bz2", ".tzst": ".tar.zst"}
"""Short endings of compressed archives -> the long forms."""


class Stream(io.RawIOBase):
    """The bytes of an open input. Damaged compressed data raises UserError with the file and the offset."""

    def __init__(self, raw: BinaryIO, *, name: str) -> None:
        self.raw = raw
        self.name = name
        self.offset = 0

    def readable(self) -> bool:
        """Return True, as io.RawIOBase requires of a stream that can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer with the next bytes and return their number."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes, b"" at the end."""
        if size < 0:
            return self.readall()
        try:
            data = self.raw.read(size)
        except (OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError) as error:
            raise self._damage_error(error) from error
        except Exception as error:
            if type(error).__name__ == "ZstdError":  # its class is in a library that is imported only when needed
                raise self._damage_error(error) from error
            raise
        self.offset += len(data)
        return data

    def close(self) -> None:
        """Close the input."""
        if not self.closed:
            self.raw.close()
        super().close()

    def _damage_error(self, error: Exception) -> UserError:
        return UserError(
            f"{self.name}: cannot be read after byte {self.offset:,} of its content ({error}). "
            "The file is damaged or incomplete. Download or compress it again, or remove it from the inputs.",
            code="damaged-file",
        )


class Member(Protocol):
    """The decompressor of one member of a file: a gzip member, an xz or bzip2 stream, a Zstandard frame."""

    @property
    def eof(self) -> bool:
        """Whether the end of the member, including its checksum, was reached."""

    @property
    def needs_input(self) -> bool:
        """Whether more output needs more input."""

    @property
    def unused_data(self) -> bytes:
        """The input after the end of the member."""

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        """Return the next decompressed bytes, at most about `max_length`."""


class Members(io.RawIOBase):
    """Reads all members of a compressed file in order.

    The readers of the standard library and of zstandard are not strict: some accept a file that ends inside a member or
    before the first one, others ignore trailing data after a member.
    """

    FEED = 2048
    """Compressed bytes per read: few, since each can expand to tens of thousands."""

    def __init__(
        self, raw: BinaryIO, limit: UnpackingLimit, start: Callable[[], Member], *, padding: bytes = b""
    ) -> None:
        """Read from `raw`, with a new decompressor from `start` for each member; `padding` may follow a member.

        `limit` counts the content.
        """
        self.raw = raw
        self.limit = limit
        self.start = start
        self.padding = padding
        self.member: Member | None = None
        self.begun = False
        self.fed = b""
        self.waiting = b""
        self.error: Exception | None = None

    def read(self, size: int = -1) -> bytes:
        """Return `size` bytes, or fewer before damage or the end. Raises the decompressor's errors, and EOFError."""
        pieces = [self.waiting]
        byte_count = len(self.waiting)
        while byte_count < size and self.error is None:
            try:
                piece = self._piece(size - byte_count)
            except Exception as error:  # return the bytes before the damage first
                self.error = error
                break
            if piece is None:
                break
            pieces.append(piece)
            byte_count += len(piece)
        if not byte_count and self.error is not None:
            raise self.error
        whole = b"".join(pieces)
        self.waiting = whole[size:]
        return whole[:size]

    def close(self) -> None:
        """Close the compressed file."""
        if not self.closed:
            self.raw.close()
        super().close()

    def _piece(self, most: int) -> bytes | None:
        """Return the next bytes, possibly b""; None at the end of the file."""
        if not self.fed and (self.member is None or self.member.needs_input):
            self.fed = self.raw.read(self.FEED)
            if not self.fed and self.member is not None:
                raise EOFError("its compressed data are incomplete")
            if not self.fed and not self.begun:
                raise EOFError("it contains no compressed data")
            if not self.fed:
                return None
        if self.member is None:
            # Padding between members is skipped; before the first member it would be damage.
            self.fed = self.fed.lstrip(self.padding) if self.begun and self.padding else self.fed
            if not self.fed:
                return b""
            self.member, self.begun = self.start(), True
        member, data, self.fed = self.member, self.fed, b""
        piece = member.decompress(data, most)
        self.limit.add(len(piece) + VALUE * piece.count(b"\n"))
        if member.eof:
            self.member, self.fed = None, member.unused_data
        return piece


class _Gzip:
    """A gzip member."""

    def __init__(self) -> None:
        self.inner = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)

    @property
    def eof(self) -> bool:
        return self.inner.eof

    @property
    def needs_input(self) -> bool:
        return not self.inner.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self.inner.unused_data

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        return self.inner.decompress(self.inner.unconsumed_tail + data, max_length)


class _Frame:
    """A Zstandard frame. The library does not limit its output, so each call gets little input."""

    needs_input = True

    def __init__(self, window: int) -> None:
        import zstandard  # only this ending needs it

        decompressor = zstandard.ZstdDecompressor(max_window_size=window)
        self.inner = decompressor.decompressobj(write_size=1 << 15)

    @property
    def eof(self) -> bool:
        return self.inner.eof

    @property
    def unused_data(self) -> bytes:
        return self.inner.unused_data

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        return self.inner.decompress(data)


COMPRESSIONS: dict[str, Callable[[BinaryIO, UnpackingLimit], Members]] = {
    ".gz": lambda raw, limit: Members(raw, limit, _Gzip, padding=b"\0"),
    ".xz": lambda raw, limit: Members(raw, limit, partial(lzma.LZMADecompressor, memlimit=_window(raw)), padding=b"\0"),
    ".bz2": lambda raw, limit: Members(raw, limit, bz2.BZ2Decompressor),
    ".zst": lambda raw, limit: Members(raw, limit, partial(_Frame, _window(raw))),
}


def _window(raw: BinaryIO) -> int:
    """Return the largest window, in bytes, for decompressing a file."""
    try:
        size = os.fstat(raw.fileno()).st_size
    except (AttributeError, OSError):  # a file inside an archive
        size = 0
    return min(1 << 31, max(WINDOW, 8 * size))


def split_compressions(name: str) -> tuple[str, list[str]]:
    """Return the name without its compression endings, and the endings, outermost first.

    >>> split_compressions("a.csv.gz"), split_compressions("b.tgz"), split_compressions("c.csv")
    (('a.csv', ['.gz']), ('b.tar', ['.gz']), ('c.csv', []))
    """
    packed: list[str] = []
    while True:
        stem, ending = os.path.splitext(name)
        ending = ending.lower()
        if ending in ARCHIVES:
            name = stem + ARCHIVES[ending]
        elif ending in COMPRESSIONS:
            packed.append(ending)
            name = stem
        else:
            return name, packed


def decompress(raw: BinaryIO, name: str, *, display_name: str, limit: UnpackingLimit) -> Stream:
    """Return the decompressed content of an open file, by the endings of `name`; `display_name` is its name in
    messages.

    `limit`: of the file on disk, which may be an archive with this one.
    """
    endings = split_compressions(name)[1]
    if len(endings) > NESTED:
        raise UserError(
            f"{display_name}: more than {NESTED} compressions inside each other. Unpack it first.", code="too-large"
        )
    for ending in endings:
        raw = cast(BinaryIO, COMPRESSIONS[ending](raw, limit))
    return Stream(raw, name=display_name)


def open_packed(path: Path, raw: BinaryIO | None = None) -> io.BufferedReader:
    """Open a file and decompress it by the endings of its name. Reading damaged data raises UserError.

    `raw`: the file if it is open already; it is closed together with the result.
    """
    raw = raw or path.open("rb")
    limit = UnpackingLimit(str(path), path.stat().st_size)
    return io.BufferedReader(decompress(raw, path.name, display_name=str(path), limit=limit), BUFFER)
