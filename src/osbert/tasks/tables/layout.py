"""The layout of a published data set's files: names, columns, and peculiarities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from osbert.reading.columns import TextColumns
from osbert.reading.form import plain_suffix
from osbert.reading.splits import USUAL, Names, find_splits, plain_name


@dataclass(frozen=True, kw_only=True)
class DataSetLayout:
    """The known layout of files; for the user's own tables only the usual names."""

    files: Names = field(default_factory=lambda: USUAL)
    """The name of each split's file, in lower case and without suffix."""
    instead: Mapping[str, str] = field(default_factory=dict)
    """Split -> another name of its file, if there is none in `files`."""
    columns: tuple[TextColumns, ...] = ()
    """The columns to read, in each form in which the data set is published."""
    unlabelled: tuple[str, ...] = ()
    """The values of the label column that mean no label."""
    bare_quotes: bool = False
    """Whether .tsv and .txt files are tab-separated with quotes that are plain characters."""
    surplus: int = 0
    """Number of extra cells at the end of some rows of a published file."""
    lenient: bool = False
    """Whether the files are known to have unusable rows: these are left out and counted if they are at most 1 %."""

    def splits(self, data: str | Path) -> dict[str, Path]:
        """Return the file of each split, or one file as "all". Raises UserError if there is none."""
        return find_splits(Path(data), self.files, instead=self.instead)

    def plain(self, path: Path) -> bool:
        """Return whether a file is one of the published ones, tab-separated, with quotes that are plain characters."""
        names = {name for called in self.files.values() for name in called} | {*self.instead.values()}
        return self.bare_quotes and plain_suffix(path) in (".tsv", ".txt") and plain_name(path) in names

    def has_column(self, name: str) -> bool:
        """Return whether a column belongs to any form of the data set."""
        return any(name in (form.text, form.pair, form.label) for form in self.columns)

    def find(self, columns: Sequence[str], *, labelled: bool) -> TextColumns | None:
        """Return the first form whose columns all exist; without `labelled` the label may be absent."""
        for form in self.columns:
            if {*form.texts} <= {*columns} and (form.label in columns or not labelled):
                return form if form.label in columns else replace(form, label="")
        return None


def glue(*columns: TextColumns, unlabelled: Sequence[str] = (), **more: Any) -> DataSetLayout:
    """Return the layout of one of GLUE's sets: the official TSVs, or Hugging Face's rows, unlabelled ones being -1."""
    # Hugging Face's test rows have label -1. GLUE's TSVs have unpaired quotes, which a CSV reader would join over
    # lines.
    return DataSetLayout(columns=columns, unlabelled=("-1", *unlabelled), bare_quotes=True, **more)
