"""Compressed files, read as streams: .gz, .xz, .bz2 and .zst; one that is cut short or damaged is an error."""

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

BUFFER = 1 << 16
"""Bytes of a table read at a time."""
NESTED = 8
"""Most archives, or compressions of one file, inside each other."""
WINDOW = 1 << 28
"""Bytes that a decompressor may hold, or 8 times the file's size for larger ones (zstd --long=31, xz --lzma2=dict)."""
ARCHIVES = {".tgz": ".tar.gz", ".txz": ".tar.xz", ".tbz2": ".tar.bz2", ".tzst": ".tar.zst"}
"""Short endings of compressed archives, and what they stand for."""


class Stream(io.RawIOBase):
    """Bytes of an open input; damage in the compression becomes a UserError with file and offset."""

    def __init__(self, raw: BinaryIO, *, name: str) -> None:
        """Read from `raw`; `name` is what the user calls it."""
        self.raw = raw
        self.name = name
        self.offset = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer with the next bytes, and return how many there were."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes, b"" at the end."""
        if size < 0:
            return self.readall()
        try:
            data = self.raw.read(size)
        except (OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.ReadError) as error:
            raise self._damaged(error) from error
        except Exception as error:
            if type(error).__name__ == "ZstdError":  # its class lives in a library that is imported only when needed
                raise self._damaged(error) from error
            raise
        self.offset += len(data)
        return data

    def close(self) -> None:
        """Close the input."""
        if not self.closed:
            self.raw.close()
        super().close()

    def _damaged(self, error: Exception) -> UserError:
        return UserError(
            f"{self.name}: cannot be read after byte {self.offset:,} of its content ({error}). "
            "The file is damaged or incomplete: fetch or compress it again, or leave it out."
        )


class Member(Protocol):
    """The decompressor of one member of a file: a gzip member, an xz or bzip2 stream, a Zstandard frame."""

    @property
    def eof(self) -> bool:
        """Whether the member has ended, its checksum included."""
        ...

    @property
    def needs_input(self) -> bool:
        """Whether more output needs more input."""
        ...

    @property
    def unused_data(self) -> bytes:
        """The input behind the member's end."""
        ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        """Return the next bytes of the content, about `max_length` at most."""
        ...


class Members(io.RawIOBase):
    """Reads a compressed file, all of its members one after the other.

    The readers of the standard library and of zstandard are not strict: some take a file that ends within a member, or
    before its first one, for a whole file, others ignore what follows a member and is no member.
    """

    FEED = 2048
    """Compressed bytes taken at a time: few, for each can stand for tens of thousands."""

    def __init__(self, raw: BinaryIO, start: Callable[[], Member], *, padding: bytes = b"") -> None:
        """Read from `raw`, with a decompressor from `start` for each member; `padding` may stand behind a member."""
        self.raw = raw
        self.start = start
        self.padding = padding
        self.member: Member | None = None
        self.begun = False
        self.fed = b""
        self.waiting = b""
        self.error: Exception | None = None

    def read(self, size: int = -1) -> bytes:
        """Return `size` bytes, fewer before damage or the end; raises what the decompressor raises, and EOFError."""
        pieces = [self.waiting]
        found = len(self.waiting)
        while found < size and self.error is None:
            try:
                piece = self._piece(size - found)
            except Exception as error:  # what comes before the damage is returned first
                self.error = error
                break
            if piece is None:
                break
            pieces.append(piece)
            found += len(piece)
        if not found and self.error is not None:
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
        """Return the next bytes, which may be none yet; None at the file's end."""
        if not self.fed and (self.member is None or self.member.needs_input):
            self.fed = self.raw.read(self.FEED)
            if not self.fed:
                self._finish()
                return None
        if self.member is None:
            self.fed = self.fed.lstrip(self.padding) if self.begun and self.padding else self.fed
            if not self.fed:
                return b""
            self.member, self.begun = self.start(), True
        member, data, self.fed = self.member, self.fed, b""
        piece = member.decompress(data, most)
        if member.eof:
            self.member, self.fed = None, member.unused_data
        return piece

    def _finish(self) -> None:
        """Raise EOFError unless the last member, and there must be one, is whole."""
        if self.member is not None:
            raise EOFError("it ends before its compressed data do")
        if not self.begun:
            raise EOFError("it holds no compressed data")


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
    """A Zstandard frame. The library sets no limit to the output; the little input that it gets at a time does."""

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


COMPRESSIONS: dict[str, Callable[[BinaryIO], Members]] = {
    ".gz": lambda raw: Members(raw, _Gzip, padding=b"\0"),
    ".xz": lambda raw: Members(raw, partial(lzma.LZMADecompressor, memlimit=_window(raw)), padding=b"\0"),
    ".bz2": lambda raw: Members(raw, bz2.BZ2Decompressor),
    ".zst": lambda raw: Members(raw, partial(_Frame, _window(raw))),
}


def _window(raw: BinaryIO) -> int:
    """Return how many bytes may be held to decompress a file."""
    try:
        size = os.fstat(raw.fileno()).st_size
    except (AttributeError, OSError):  # a file within an archive
        size = 0
    return min(1 << 31, max(WINDOW, 8 * size))


def unpacked(name: str) -> tuple[str, list[str]]:
    """Return the name without its compression endings, and these, the outermost first.

    >>> unpacked("a.csv.gz"), unpacked("b.tgz"), unpacked("c.csv")
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


def decompressed(raw: BinaryIO, name: str, *, shown: str) -> Stream:
    """Return the content of an open file, uncompressed as its name says; `shown` is what messages call it."""
    endings = unpacked(name)[1]
    if len(endings) > NESTED:
        raise UserError(f"{shown}: more than {NESTED} compressions inside each other. Unpack it first.")
    for ending in endings:
        raw = cast(BinaryIO, COMPRESSIONS[ending](raw))
    return Stream(raw, name=shown)


def open_packed(path: Path) -> io.BufferedReader:
    """Open a file, uncompressed as its name says. What is read from it raises UserError where it is damaged."""
    return io.BufferedReader(decompressed(path.open("rb"), path.name, shown=str(path)), BUFFER)
