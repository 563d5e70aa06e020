"""Input files: finds them, names every one that cannot be used at once, and opens what is compressed or archived."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

from osbert.errors import Problems, UserError

Kind = Literal["text", "json", "parquet", "wikipedia"]
KINDS: dict[str, Kind] = {
    ".txt": "text",
    ".jsonl": "json",
    ".json": "json",
    ".parquet": "parquet",
    ".xml": "wikipedia",
}
SHORT = {".tgz": ".tar.gz", ".txz": ".tar.xz", ".tbz2": ".tar.bz2", ".tzst": ".tar.zst"}
KNOWN = (
    ".txt, .jsonl, .json (an object a line), .xml (a Wikipedia dump), .parquet; these but Parquet also in .gz, .xz, "
    ".zst, .bz2 and .tar"
)

NESTED = 8
"""Most archives inside each other, and most compressions of one file."""


@dataclass(frozen=True, kw_only=True)
class Input:
    """One input file as found on the disk; `mtime` in nanoseconds."""

    path: Path
    size: int
    mtime: int


@dataclass
class Repairs:
    """What was mended or left out while reading; the reader counts as it goes."""

    boms: int = 0
    """Files whose byte-order mark was removed."""
    replaced: int = 0
    """Runs of bytes that are not of the encoding, and lone surrogates in JSON, replaced by U+FFFD."""
    records: int = 0
    """Records (JSON lines, Parquet rows) left out because they hold no usable text."""
    empty: int = 0
    """Files, or files within archives, without any text."""
    skipped: int = 0
    """Files within archives whose ending is not known."""
    examples: list[str] = field(default_factory=list)
    """The first few places, in words."""

    def note(self, place: str) -> None:
        """Keep a place as an example, if there is still room for one."""
        if len(self.examples) < 10:
            self.examples.append(place)


class Stream:
    """Bytes of an open input; what is wrong in the compression becomes a UserError with file and offset."""

    def __init__(self, raw: BinaryIO, *, name: str) -> None:
        """Read from `raw`; `name` is what the user calls it."""
        self.raw = raw
        self.name = name
        self.offset = 0

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes, b"" at the end."""
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

    def _damaged(self, error: Exception) -> UserError:
        return UserError(
            f"{self.name}: cannot be read after byte {self.offset:,} of its content ({error}). "
            "The file is damaged or incomplete: fetch or compress it again, or leave it out."
        )


@dataclass(frozen=True)
class Part:
    """One text, JSON or dump stream: an input itself, or one file within an archive."""

    name: str
    kind: Kind
    stream: Stream


def find_inputs(files: Sequence[Path | str], *, without: Path | None = None) -> list[Input]:
    """Return the inputs that files and folders stand for, in order; a folder gives its known files, sorted.

    What lies in `without`, the folder that is written, is left out when a folder around it is given.

    Raises UserError that lists every missing, unreadable or unknown file, and every unreadable folder, at once.
    """
    problems = Problems(heading="These inputs cannot be used")
    found: list[Input] = []
    for path in map(Path, files):
        if path.is_dir():
            told = problems.count
            inside = _walk(path, without, problems)
            if not inside and problems.count == told:
                problems.add(f"{path}: the folder holds no file with a known ending ({KNOWN})")
            found += [_input(inner) for inner in inside if _readable(inner, problems)]
        elif not path.exists():
            problems.add(f"{path}: there is no such file")
        elif kind_of(path.name) is None:
            problems.add(f"{path}: its ending is not a known one ({KNOWN}); rename or convert it")
        elif _readable(path, problems):
            found.append(_input(path))
    problems.stop_if_any()
    if not found:
        raise UserError("No input files were given.")
    return found


def kind_of(name: str) -> Kind | Literal["tar"] | None:
    """Return what a file name says the content is once uncompressed; None when it does not say."""
    stem, packed = _unpacked(name)
    ending = Path(stem).suffix.lower()
    if ending == ".tar":
        return "tar"
    kind = KINDS.get(ending)
    return None if packed and kind == "parquet" else kind


class OpenInput:
    """An input being read. `parts()` opens its streams one after the other; `position()` is for progress."""

    def __init__(self, source: Input, *, repairs: Repairs) -> None:
        """Prepare to read `source`, counting in `repairs`; nothing is opened yet."""
        self.source = source
        self.repairs = repairs
        self._file: BinaryIO | None = None

    def position(self) -> int:
        """Return how many of the file's bytes on the disk have been read."""
        return self._file.tell() if self._file is not None and not self._file.closed else 0

    def parts(self) -> Iterator[Part]:
        """Yield the streams of the input: one, or one for each known file of an archive."""
        name = str(self.source.path)
        with open(self.source.path, "rb") as self._file:
            yield from self._open(self._file, name, name)

    def _open(self, raw: BinaryIO, name: str, shown: str, depth: int = 0) -> Iterator[Part]:
        endings = _unpacked(name)[1]
        if depth > NESTED or len(endings) > NESTED:
            raise UserError(f"{shown}: more than {NESTED} archives or compressions inside each other. Unpack it first.")
        for ending in endings:
            raw = COMPRESSIONS[ending](raw)
        stream = Stream(raw, name=shown)
        kind = kind_of(name)
        if kind == "tar":
            yield from self._members(stream, shown, depth)
        elif kind in ("text", "json", "wikipedia"):
            yield Part(shown, cast(Kind, kind), stream)
        else:
            self.repairs.skipped += 1
            self.repairs.note(f"{shown}: left out, its ending is not known")

    def _members(self, stream: Stream, shown: str, depth: int) -> Iterator[Part]:
        try:
            with tarfile.open(fileobj=cast(Any, stream), mode="r|") as archive:
                yield from self._files(archive, shown, depth)
        except tarfile.TarError as error:
            raise UserError(f"{shown}: not a tar archive that can be read ({error}).") from error

    def _files(self, archive: tarfile.TarFile, shown: str, depth: int) -> Iterator[Part]:
        kept: list[tarfile.TarInfo] = vars(archive)["members"]
        while (member := archive.next()) is not None:
            kept.clear()  # the archive would keep a record of every file it has passed
            hidden = any(piece.startswith(".") for piece in Path(member.name).parts)
            handle = archive.extractfile(member) if member.isfile() and not hidden else None
            if handle is not None:
                yield from self._open(cast(BinaryIO, handle), member.name, f"{shown}:{member.name}", depth + 1)


class _Zstandard:
    """Reads .zst. The library's own reader takes a file cut short for a whole one; this one does not."""

    FEED = 2048
    """Compressed bytes taken at a time: few, for each can stand for tens of thousands."""

    def __init__(self, raw: BinaryIO) -> None:
        import zstandard

        self.raw = raw
        self.decompressor = zstandard.ZstdDecompressor(max_window_size=_window(raw))
        self.frame: Any = None
        self.waiting = b""

    def read(self, size: int) -> bytes:
        pieces = [self.waiting]
        found = len(self.waiting)
        while found < size and (data := self.raw.read(self.FEED)):
            for piece in self._decompress(data):
                pieces.append(piece)
                found += len(piece)
        if found < size and self.frame is not None:
            raise EOFError("the file ends within a frame")
        whole = b"".join(pieces)
        self.waiting = whole[size:]
        return whole[:size]

    def _decompress(self, data: bytes) -> Iterator[bytes]:
        """Yield what `data` stands for; a file may be several frames one after the other."""
        while data:
            if self.frame is None:
                self.frame = self.decompressor.decompressobj(write_size=1 << 15)
            yield self.frame.decompress(data)
            if not self.frame.eof:
                return
            data, self.frame = self.frame.unused_data, None


def _window(raw: Any) -> int:
    """Return how many bytes back a .zst may refer, all of which are held: more for large files (zstd --long=31)."""
    try:
        size = os.fstat(raw.fileno()).st_size
    except (AttributeError, OSError):  # a file within an archive
        size = 0
    return min(1 << 31, max(1 << 27, 8 * size))


COMPRESSIONS: dict[str, Callable[[Any], Any]] = {
    ".gz": lambda raw: gzip.GzipFile(fileobj=raw, mode="rb"),
    ".xz": lzma.LZMAFile,
    ".bz2": bz2.BZ2File,
    ".zst": _Zstandard,
}


def _unpacked(name: str) -> tuple[str, list[str]]:
    """Return the name without its compression endings, and these, the outermost first."""
    packed: list[str] = []
    while True:
        stem, ending = os.path.splitext(name)
        ending = ending.lower()
        if ending in SHORT:
            name = stem + SHORT[ending]
        elif ending in COMPRESSIONS:
            packed.append(ending)
            name = stem
        else:
            return name, packed


def _walk(folder: Path, without: Path | None, problems: Problems) -> list[Path]:
    """Return the known files below a folder, sorted by path; hidden files and folders are left out.

    No folder is visited twice, however many links lead to it, and `without` not at all.
    """

    def tell(error: OSError) -> None:
        problems.add(f"{error.filename}: the folder cannot be read ({error.strerror})")

    visited = {_identity(without)} if without is not None and without.is_dir() else set()
    visited.discard(_identity(folder))
    found: list[Path] = []
    for root, folders, names in os.walk(folder, followlinks=True, onerror=tell):
        identity = _identity(root)
        if identity in visited:
            folders.clear()
            continue
        visited.add(identity)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [Path(root, name) for name in names if not name.startswith(".") and kind_of(name) is not None]
    return sorted(found)


def _identity(folder: Path | str) -> tuple[int, int]:
    status = os.stat(folder)
    return status.st_dev, status.st_ino


def _readable(path: Path, problems: Problems) -> bool:
    if not path.is_file():
        problems.add(f"{path}: not a regular file")
    elif not os.access(path, os.R_OK):
        problems.add(f"{path}: no permission to read it")
    else:
        return True
    return False


def _input(path: Path) -> Input:
    status = path.stat()
    return Input(path=path, size=status.st_size, mtime=status.st_mtime_ns)
