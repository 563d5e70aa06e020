"""The contract of a form of data: which files have it, how they are sampled, and their sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import ClassVar

from osbert.data.example import Example
from osbert.data.pack import Packer
from osbert.errors import UserError
from osbert.reading.data_file import DataFile
from osbert.reading.documents import DocumentOptions
from osbert.reading.form import TableReading, find_format, open_text, plain_suffix
from osbert.tasks import Task
from osbert_lab.analysis.sample import Sample
from osbert_lab.analysis.settings import AnalysisOptions

TABLES = (".csv", ".tsv", ".tab", ".jsonl", ".ndjson", ".json", ".parquet")
LINES = 100


@dataclass(frozen=True)
class FileHead:
    """The beginning of a file, to detect its form; empty if it cannot be read, which the form then reports.

    `task`: what the model was fine-tuned on, None for an encoder.
    """

    path: Path
    task: Task | None = None

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """The first lines of a text file, without line ends; none for archives and other files."""
        if plain_suffix(self.path) in (".parquet", ".tar"):
            return ()
        try:
            with open_text(self.path, "utf-8-sig") as text:
                return tuple(line.rstrip("\r\n") for line in islice(text, LINES))
        except (UserError, UnicodeError, OSError):
            return ()

    @cached_property
    def columns(self) -> frozenset[str]:
        """The names of a table's columns: CSV, TSV, JSON lines or Parquet."""
        if plain_suffix(self.path) not in TABLES:
            return frozenset()
        try:
            return frozenset(find_format(DataFile(self.path), TableReading(header="yes")).columns)
        except (UserError, OSError):
            return frozenset()


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How files are sampled for one model. `packer`: encodes texts up to the model's longest sequence.

    `task`: what it was fine-tuned on, None for an encoder.
    """

    packer: Packer
    options: AnalysisOptions
    reading: DocumentOptions
    task: Task | None = None


class DataForm:
    """A form of data, named after its file: the `reads` of an analysis is that name. The file's only public class."""

    position: ClassVar[int]
    """Its priority: a file belongs to the first form that recognises it."""
    files: ClassVar[str]
    """A noun phrase for files of this form, for messages."""

    def knows(self, file: FileHead) -> bool:
        """Return whether a file has this form."""
        raise NotImplementedError

    def sample(self, files: Sequence[Path], sampling: Sampling) -> Sample:
        """Return a sample of some files of this form, with notes on the reading; an empty sample for no files.

        Raises UserError that lists everything that cannot be used, unless the reading leaves such out (errors
        "replace"): then it is counted and noted.
        """
        raise NotImplementedError

    def sentences(self, sample: Sample) -> Sequence[Example]:
        """Return the encoded sentences of a sample; they serve as texts if the data has no others."""
        return ()
