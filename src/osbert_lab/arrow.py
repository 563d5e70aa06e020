"""Arrow files, and folders as `Dataset.save_to_disk` of the datasets library writes them; needs pyarrow.

Only data are read: the names of the files in state.json, and the names of classes in the metadata of the columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from json import JSONDecodeError
from pathlib import Path
from typing import Any, ClassVar, overload

from osbert.errors import UserError
from osbert.guarded import parse_json, read_bytes
from osbert.reading.compression import UnpackingLimit
from osbert.reading.data_file import DataFile
from osbert.reading.form import TableReading
from osbert.reading.parquet import parquet_library, read_batches
from osbert.reading.table import FOLDER, Entry, FileForm

_FILE, _STREAM = b"ARROW1\0\0", b"\xff\xff\xff\xff"
_STATE = "state.json"


class Arrow(FileForm):
    """An .arrow file, as a file or a stream of record batches, or a folder with state.json and such files."""

    title: ClassVar[str] = "Arrow"
    unit: ClassVar[str] = "row"
    suffixes = (".arrow", FOLDER)

    @classmethod
    def claims(cls, file: DataFile) -> bool:
        """Return whether a file begins like one of Arrow's, or a folder has a state and Arrow files."""
        if file.path.is_dir():
            return (file.path / _STATE).is_file() and any(file.path.glob("*.arrow"))
        return file.beginning.startswith((_FILE, _STREAM))

    def load(self, file: DataFile, reading: TableReading) -> Sequence[Entry]:
        """Return the rows, which every pass reads from the files. Raises UserError if a file is damaged or missing."""
        entries = _Rows(_files(file.path) if file.path.is_dir() else [file.path])
        if not len(entries):
            raise UserError(f"{file.path} has no rows.", code="no-data")
        return entries


class _Rows(Sequence[Entry]):
    """The numbered rows of Arrow files, read anew by each pass: a data set may be larger than the memory."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Count the rows. Raises UserError if a file cannot be read."""
        self.paths = paths
        self._count = 0
        for path in paths:
            with _open(path) as reader:
                self._count += sum(len(batch) for batch in reader)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> list[Entry]: ...
    def __getitem__(self, index: int | slice) -> Entry | list[Entry]:
        return list(self)[index]

    def __iter__(self) -> Iterator[Entry]:
        number = 0
        for path in self.paths:
            with _open(path) as reader:
                for row in read_batches(path, _bounded(path, reader), reader.schema.metadata or {}):
                    number += 1
                    yield number, row


def _bounded(path: Path, batches: Any) -> Iterator[Any]:
    """Yield batches of at most 1,024 rows. Raises UserError if a file holds far more values than bytes."""
    limit = UnpackingLimit(str(path), path.stat().st_size)
    for batch in batches:
        limit.add(batch.nbytes)
        limit.add_values(len(batch) * batch.num_columns)
        yield from (batch.slice(start, 1024) for start in range(0, len(batch), 1024))


@contextmanager
def _open(path: Path) -> Iterator[Any]:
    """Open a file or a stream of Arrow as an iterable of batches with a schema, from a memory map."""
    pyarrow = parquet_library(path)
    try:
        with pyarrow.memory_map(str(path)) as source:
            if source.read(len(_FILE)) == _FILE:
                file = pyarrow.ipc.open_file(source)
                batches = (file.get_batch(index) for index in range(file.num_record_batches))
                yield pyarrow.RecordBatchReader.from_batches(file.schema, batches)
            else:
                source.seek(0)
                yield pyarrow.ipc.open_stream(source)
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"{path}: not an Arrow file that can be read ({error}).", code="damaged-file") from error


def _files(folder: Path) -> list[Path]:
    """Return the files that state.json names, in order. Raises UserError for others, and if one is missing."""
    path = folder / _STATE
    try:
        state = parse_json(read_bytes(path).decode())
        names = [file["filename"] for file in state["_data_files"]]
        known = all(isinstance(name, str) and Path(name).name == name for name in names)
    except (JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise UserError(
            f"{path}: no list of data files ({error}). Save the data set again.", code="wrong-format"
        ) from error
    if not known or state.get("_indices_files") or state.get("_indices_data_files"):
        raise UserError(
            f"{path}: it names files outside of the folder, or selects rows. Save the data set again with a newer "
            "version of datasets, or write it as Parquet.",
            code="wrong-format",
        )
    for name in names:
        if not (folder / name).is_file():
            raise UserError(
                f"{folder} lacks {name}, which {_STATE} names. Save the data set again.", code="missing-file"
            )
    return [folder / name for name in names]
