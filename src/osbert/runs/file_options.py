"""The settings that say how a file of the user's is read, shared by the runs that read one."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from osbert.errors import UserError
from osbert.reading.form import Choice


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """How the file is read; what is left open is found by looking at it."""

    text: str = ""
    """The column with the text."""
    pair: str = ""
    """The column with the second text, where pairs are read."""
    delimiter: str = ""
    """What separates the cells."""
    header: Choice = "auto"
    """Whether the first line names the columns."""
    quotes: Choice = "auto"
    """Whether double quotes around a cell belong to the format."""
    encoding: str = ""
    """The file's encoding, where it is not UTF-8."""


@dataclass(frozen=True, kw_only=True)
class FileOptions(TextOptions):
    """How a file is read for a fine-tuned run, whose task may have columns of its own."""

    columns: str = ""
    """Columns for runs that answer or choose, by setting: question=frage,paragraph=text; several: choices=a+b+c."""

    def given(self) -> dict[str, Any]:
        """Return what was said, by the names of the task's settings. Raises UserError at columns without a setting."""
        said = {name: value for name, value in dataclasses.asdict(self).items() if value not in ("", "auto")}
        for part in filter(None, said.pop("columns", "").split(",")):
            setting, equals, column = part.partition("=")
            if not equals or not column:
                raise UserError(f"--columns {part}: give SETTING=COLUMN, such as question=frage.")
            said[setting.strip()] = tuple(column.split("+")) if "+" in column else column
        return said


@dataclass(frozen=True, kw_only=True)
class LabelledOptions(FileOptions):
    """How a file with labels is read for a fine-tuned run."""

    label: str = ""
    """The column with the label; found by its name when left open."""
