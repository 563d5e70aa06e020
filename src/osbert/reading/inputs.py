"""Input files: finds them, reports all unusable ones at once, and opens compressed files and archives."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal, Self, cast

from osbert.errors import Problems, UserError
from osbert.reading.compression import NESTED, Stream, UnpackingLimit, decompress, split_compressions
from osbert.remote import local_copy

Kind = Literal["text", "json", "parquet", "wikipedia"]
BLOCK = 1 << 20
"""Number of bytes read at a time."""
KINDS: dict[str, Kind] = {
    ".txt": "text",
    ".jsonl": "json",
    ".json": "json",
    ".parquet": "parquet",
    ".xml": "wikipedia",
}
KNOWN = (
    ".txt, .jsonl, .json (objects, as lines or an array), .xml (a Wikipedia dump), .parquet; these but Parquet also in "
    ".gz, .xz, .zst, .bz2 and .tar"
)


@dataclass(frozen=True, kw_only=True)
class Input:
    """One input file on disk; `size` in bytes, `mtime` in nanoseconds."""

    path: Path
    size: int
    mtime: int


@dataclass
class Repairs:
    """Counts of corrections and omissions while reading."""

    boms: int = 0
    """Files whose byte-order mark was removed."""
    replaced: int = 0
    """Runs of invalid bytes, and lone surrogates in JSON, replaced by U+FFFD."""
    records: int = 0
    """Records (JSON lines, Parquet rows) without a usable text, skipped."""
    empty: int = 0
    """Files, or files within archives, without any text."""
    skipped: int = 0
    """Files within archives with an unknown suffix, skipped."""
    examples: list[str] = field(default_factory=list)
    """Descriptions of the first few repairs and their places."""

    def note(self, description: str) -> None:
        """Keep a description as an example, if there are fewer than ten."""
        if len(self.examples) < 10:
            self.examples.append(description)

    def add(self, others: Mapping[str, Any]) -> None:
        """Add the counts of others, by field, and their examples as long as there are fewer than ten.

        >>> repairs = Repairs(boms=1)
        >>> repairs.add({"boms": 2, "examples": ["a.txt, line 3: lone surrogate replaced"]})
        >>> repairs.boms, repairs.examples
        (3, ['a.txt, line 3: lone surrogate replaced'])
        """
        for name, value in others.items():
            if name != "examples":
                setattr(self, name, getattr(self, name) + value)
        for example in others.get("examples", ()):
            self.note(example)


@dataclass(frozen=True)
class InputStream:
    """One text, JSON or dump stream: an input, or one file within an archive."""

    name: str
    kind: Kind
    stream: Stream


def find_inputs(files: Sequence[Path | str], *, without: Path | None = None) -> list[Input]:
    """Return the inputs in files and folders, in order; a folder gives its known files, sorted.

    `without`: the output folder, which is skipped if it lies in one of the folders. Raises UserError with every
    missing, unreadable or unknown file and every unreadable folder at once.
    """
    problems = Problems(heading="These inputs cannot be used")
    inputs: list[Input] = []
    for path in map(local_copy, files):
        if path.is_dir():
            problem_count = problems.count
            inside = files_below(path, problems, without=without)
            if not inside and problems.count == problem_count:
                problems.add(f"{path}: the folder has no file with a known suffix ({KNOWN})", code="wrong-format")
            inputs += _inputs(inside, problems)
        elif not path.exists():
            problems.add(f"{path}: no such file", code="missing-file")
        elif kind_of(path.name) is None:
            problems.add(f"{path}: unknown suffix (known: {KNOWN}). Rename or convert it", code="wrong-format")
        else:
            inputs += _inputs([path], problems)
    problems.stop_if_any()
    if not inputs:
        raise UserError("No input files were given.", code="missing-option")
    return inputs


def kind_of(name: str) -> Kind | Literal["tar"] | None:
    """Return the kind of content by the file name without compression; None if unknown."""
    stem, packed = split_compressions(name)
    ending = Path(stem).suffix.lower()
    if ending == ".tar":
        return "tar"
    kind = KINDS.get(ending)
    return None if packed and kind == "parquet" else kind


class OpenInput:
    """An input being read. `parts()` opens its streams one at a time; `position()` is for progress."""

    def __init__(self, source: Input, *, repairs: Repairs) -> None:
        """Prepare to read `source`, with counts in `repairs`; nothing is opened yet."""
        self.source = source
        self.repairs = repairs
        self._file: BinaryIO | None = None
        self._limit = UnpackingLimit(str(source.path), source.size)

    def position(self) -> int:
        """Return the number of bytes read from the file on disk."""
        return self._file.tell() if self._file is not None and not self._file.closed else 0

    def parts(self) -> Iterator[InputStream]:
        """Yield the streams of the input: one, or one for each known file of an archive."""
        name = str(self.source.path)
        with open(self.source.path, "rb") as self._file:
            yield from self._open(self._file, name, name)

    def _open(self, raw: BinaryIO, name: str, display_name: str, depth: int = 0) -> Iterator[InputStream]:
        if depth > NESTED:
            raise UserError(
                f"{display_name}: more than {NESTED} archives inside each other. Unpack it first.", code="too-large"
            )
        stream = decompress(raw, name, display_name=display_name, limit=self._limit)
        kind = kind_of(name)
        if kind == "tar":
            yield from self._members(stream, display_name, depth)
        elif kind in ("text", "json", "wikipedia"):
            yield InputStream(display_name, cast(Kind, kind), stream)
        else:
            self.repairs.skipped += 1
            self.repairs.note(f"{display_name}: skipped, its suffix is unknown")

    def _members(self, stream: Stream, display_name: str, depth: int) -> Iterator[InputStream]:
        try:
            with tarfile.open(fileobj=cast(Any, stream), mode="r|", tarinfo=_Header) as archive:
                members: list[tarfile.TarInfo] = vars(archive)["members"]
                while (member := archive.next()) is not None:
                    members.clear()  # the archive would keep a record of every file it has passed
                    if member.issparse():
                        self._limit.add(member.size)  # its holes take no bytes in the archive
                    hidden = any(piece.startswith(".") for piece in Path(member.name).parts)
                    file = archive.extractfile(member) if member.isfile() and not hidden else None
                    if file is not None:
                        member_name = f"{display_name}:{member.name}"
                        yield from self._open(cast(BinaryIO, file), member.name, member_name, depth + 1)
        except tarfile.TarError as error:
            raise UserError(
                f"{display_name}: not a tar archive that can be read to its end ({error}), after byte "
                f"{stream.offset:,}. "
                "It is damaged or incomplete. Download or pack it again, or remove it from the inputs.",
                code="damaged-file",
            ) from error
        while stream.read(BLOCK):  # a checksum at the end of the compressed data has not been compared yet
            pass


class _Header(tarfile.TarInfo):
    """The header of a file in an archive.

    tarfile would treat a damaged or missing header as the end, and fails on a sparse map that is no list of numbers.
    """

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> Self:
        """Return the next header. Raises EOFHeaderError at the end of the archive, ReadError if damaged."""
        try:
            return super().fromtarfile(archive)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            raise
        except (tarfile.HeaderError, ValueError, LookupError, OverflowError) as error:  # the latter of a sparse map
            raise tarfile.ReadError(str(error)) from error


def files_below(
    folder: Path, problems: Problems, *, without: Path | None = None, known: Callable[[str], object] = kind_of
) -> list[Path]:
    """Return the files below a folder whose names are `known`, sorted by path; hidden files and folders are skipped.

    A folder is visited once, however many links lead to it, and `without` never.
    """

    def add_problem(error: OSError) -> None:
        problems.add(f"{error.filename}: the folder cannot be read ({error.strerror})", code="not-readable")

    visited = {_identity(without)} if without is not None and without.is_dir() else set()
    visited.discard(_identity(folder))
    files: list[Path] = []
    for root, folders, names in os.walk(folder, followlinks=True, onerror=add_problem):
        # Device and inode: links may lead to a folder again, or in circles.
        identity = _identity(root)
        if identity in visited:
            folders.clear()
            continue
        visited.add(identity)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        files += [Path(root, name) for name in names if not name.startswith(".") and known(name)]
    return sorted(files)


def _identity(folder: Path | str) -> tuple[int, int]:
    status = os.stat(folder)
    return status.st_dev, status.st_ino


def _inputs(paths: Sequence[Path], problems: Problems) -> Iterator[Input]:
    """Yield the readable files; report the others to `problems`."""
    for path in paths:
        if not path.is_file():
            problems.add(f"{path}: not a regular file", code="not-a-regular-file")
        elif not os.access(path, os.R_OK):
            problems.add(f"{path}: no permission to read it", code="not-readable")
        else:
            status = path.stat()
            yield Input(path=path, size=status.st_size, mtime=status.st_mtime_ns)
