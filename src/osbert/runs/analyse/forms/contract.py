"""The contract of a form of data: which files have it, how they are sampled, and their sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import ClassVar

from osbert.analysis.sample import Sample
from osbert.data.example import Example
from osbert.data.pack import Packer
from osbert.errors import UserError
from osbert.reading.documents import DocumentOptions
from osbert.reading.form import TableReading, find_format, open_text, plain_suffix
from osbert.runs.analyse.settings import AnalysisOptions
from osbert.tasks import Task

TABLES = (".csv", ".tsv", ".tab", ".jsonl", ".ndjson", ".json", ".parquet")
LINES = 100


@dataclass(frozen=True)
class FileHead:
    """The beginning of a file, by which its form is known; empty where it cannot be read: its form then refuses it.

    `task`: what the model was fine-tuned on, None for an encoder.
    """

    path: Path
    task: Task | None = None

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """Return the first lines of a text, without their ends; none of other files, and of archives."""
        if plain_suffix(self.path) in (".parquet", ".tar"):
            return ()
        try:
            with open_text(self.path, "utf-8-sig") as text:
                return tuple(line.rstrip("\r\n") for line in islice(text, LINES))
        except (UserError, UnicodeError, OSError):
            return ()

    @cached_property
    def columns(self) -> frozenset[str]:
        """Return the names of a table's columns: of CSV, TSV, JSON lines or Parquet."""
        if plain_suffix(self.path) not in TABLES:
            return frozenset()
        try:
            return frozenset(find_format(self.path, TableReading(header="yes")).columns)
        except (UserError, OSError):
            return frozenset()


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How files are sampled, for one model. `packer`: with the length that the model reads at most.

    `task`: what it was fine-tuned on, None for an encoder.
    """

    packer: Packer
    options: AnalysisOptions
    reading: DocumentOptions
    task: Task | None = None


class DataForm:
    """A form of data, called as its file: `reads` of an analysis is that name. The one public class of its file."""

    place: ClassVar[int]
    """Its turn: a file is of the first form that knows it."""
    files: ClassVar[str]
    """What files of it are, for messages."""

    def knows(self, file: FileHead) -> bool:
        """Return whether a file is of this form."""
        raise NotImplementedError

    def sample(self, files: Sequence[Path], sampling: Sampling) -> Sample:
        """Return a sample of some files of this form, with notes on what was read; an empty one of no files.

        Raises UserError that lists everything that cannot be used, unless the reading leaves such out (errors
        "replace"): then it is counted and noted.
        """
        raise NotImplementedError

    def sentences(self, sample: Sample) -> Sequence[Example]:
        """Return the sentences of a sample, laid out, which are read as texts where the data has no others."""
        return ()
