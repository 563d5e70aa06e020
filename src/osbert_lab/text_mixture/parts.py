"""The data sets of a mixture, each with the task that makes texts of its rows, and where their data are."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from osbert.errors import UserError
from osbert.tasks import Record
from osbert.tasks.tables import TableTask
from osbert_lab.data_sets.multi30k import Multi30k
from osbert_lab.data_sets.scitldr import Scitldr
from osbert_lab.data_sets.squad_answers import SquadAnswers
from osbert_lab.data_sets.text_to_text import TextToText, table
from osbert_lab.writing.generate import Generate


@dataclass(frozen=True, kw_only=True)
class PartRecord(Record):
    """A row of a data set as a source and its targets. `part`: the data set's name; `row`: its record there."""

    part: str
    row: Record

    @property
    def place(self) -> str:
        """Return the origin of the row for messages."""
        return self.row.place


def part_name(record: Record) -> str:
    """Return the name of the data set of a row; "" for a record of none."""
    return record.part if isinstance(record, PartRecord) else ""


def part_task(name: str, settings: Mapping[str, Any]) -> Generate:
    """Return the task of a data set, with these settings for reading files.

    A set of GLUE that T5 learnt, squad, scitldr and multi30k have T5's sources; any other name is that of a table with
    sources and targets, and stands before every source.

    >>> part_task("titles", {}).source_text(Record(number=0, texts=("A long story.",)))
    'titles: A long story.'
    """
    if name in table():
        return TextToText(data_set=name, **settings)  # type: ignore[arg-type]
    if name == "squad":
        return SquadAnswers(**settings)
    if name == "scitldr":
        return Scitldr(prefix="summarize: ", **settings)
    if name == "multi30k":
        return Multi30k(prefix="translate English to German: ", **settings)
    return Generate(prefix=f"{name}: ", **settings)


def reading_settings(task: TableTask) -> dict[str, Any]:
    """Return the settings of a task that say how tables are read and rows are held out."""
    common = {field.name for field in dataclasses.fields(TableTask)} - {"data", "dev", "length"}
    return {name: getattr(task, name) for name in common}


def opening_of(part: Generate) -> str:
    """Return the text before all sources of a data set, by which it is recognised.

    >>> opening_of(part_task("mnli", {})), opening_of(part_task("squad", {}))
    ('mnli hypothesis: ', 'question: ')
    """
    blank = Record(number=0, texts=("",) * len(part.request_fields))
    return part.source_text(blank).partition(":")[0] + ": "


def plain(name: str) -> str:
    """Return the name of a file or folder as that of a data set: in lower case, without hyphens and endings."""
    return name.partition(".")[0].lower().replace("-", "")


def entries(data: Path, names: tuple[str, ...]) -> dict[str, Path]:
    """Return the entry of a folder for each data set that has one: a folder, or else a file, of its name.

    `data` may also be that of the only data set, or of one that it or its folder is named after.
    """
    inside = sorted(data.iterdir(), key=lambda path: path.is_file()) if data.is_dir() else []
    paths = {name: path for name in names for path in reversed(inside) if plain(path.name) == plain(name)}
    paths |= {name: path for name in paths for path in inside if path.is_dir() and plain(path.name) == plain(name)}
    if paths:
        return {name: paths[name] for name in names if name in paths}
    alike = [name for name in names for path in (data, data.absolute().parent) if plain(path.name) == plain(name)]
    return dict.fromkeys([*names] if len(names) == 1 else alike[:1], data)


def require_entries(data: Path, names: tuple[str, ...]) -> dict[str, Path]:
    """Return the folder or file of each data set. Raises UserError that names those without one."""
    paths = entries(data, names)
    if missing := [name for name in names if name not in paths]:
        inside = ", ".join(sorted(path.name for path in data.iterdir())[:10]) if data.is_dir() else "a single file"
        raise UserError(
            f"{data} has no folder or file for {', '.join(missing)} (--data-sets {','.join(names)}); it has {inside}. "
            "Name each folder as its data set, such as SST-2 or sst2, or titles.csv for a table of your own.",
            code="missing-file",
        )
    return paths
