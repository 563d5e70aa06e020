"""Settings for reading a user's file, shared by all runs that read one."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from osbert import recipe
from osbert.corpus.task_options import Executor, TaskOptions  # noqa: F401 (Executor: see TextTaskOptions)
from osbert.reading.form import Choice
from osbert.tasks import Task
from osbert.tasks.tables.numbers import DecimalMark


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """How the file is read; settings that are not given are detected."""

    text: str = ""
    """The column with the text."""
    pair: str = ""
    """The column with the second text of a pair."""
    delimiter: str = ""
    """The delimiter of the cells."""
    header: Choice = "auto"
    """Whether the first line names the columns."""
    quotes: Choice = "auto"
    """Whether double quotes around a cell are part of the format."""
    encoding: str = ""
    """The file's encoding, if it is not UTF-8."""


@dataclass(frozen=True)
class TextFile:
    """A file of texts, - for standard input, and how it is read. `form`: the format of standard input, by default a
    text a line."""

    path: Path
    options: TextOptions = field(default_factory=TextOptions)
    form: str = ""

    @property
    def input_form(self) -> str:
        """The format of standard input; "" for a file, whose format is detected."""
        return self.form or ("txt" if self.path == Path("-") else "")

    @property
    def device(self) -> str:
        """The device of the model."""
        return self.options.device if isinstance(self.options, EmbeddedOptions) else "auto"


@dataclass(frozen=True, kw_only=True)
class TextTaskOptions(TextOptions, TaskOptions):
    """How a file of texts is read, and on how many processes or machines its rows are worked on."""

    # The command line looks the types of inherited fields up in this module: Executor must be here.


@dataclass(frozen=True, kw_only=True)
class EmbeddedOptions(TextOptions):
    """How a file of texts is read, and the device of the model."""

    device: str = "auto"
    """cpu, cuda or cuda:N. auto: a GPU if there is one."""


@dataclass(frozen=True, kw_only=True)
class EmbeddedTaskOptions(EmbeddedOptions, TaskOptions):
    """How a file of texts is read, the device, and on how many processes or machines its rows are worked on."""


@dataclass(frozen=True, kw_only=True)
class FileOptions(TextOptions):
    """How a file is read for a fine-tuned run, whose task may have its own columns."""

    columns: dict[str, str] = field(default_factory=dict)
    """Columns for runs that answer, choose or rank, by setting: --columns.question frage --columns.paragraph text;
    several with commas: --columns.choices b,c,d."""

    def as_settings(self, task: Task) -> dict[str, Any]:
        """Return what is not left open, by the names of the task's settings and of their types."""
        options = {name: value for name, value in dataclasses.asdict(self).items() if value not in ("", "auto")}
        words = {name.replace("-", "_"): recipe.Word(word) for name, word in options.pop("columns").items()}
        if not words:
            return options
        known = {name for name, *_ in recipe.fields(type(task))}
        columns = recipe.override({}, {name: words[name] for name in words if name in known}, schema=type(task))
        named = {name: tuple(value) if isinstance(value, list) else value for name, value in columns.items()}
        return options | words | named


@dataclass(frozen=True, kw_only=True)
class FileTaskOptions(FileOptions, TaskOptions):
    """How a file is read for a fine-tuned run, and on how many processes or machines its rows are worked on."""

    def as_settings(self, task: Task) -> dict[str, Any]:
        names = [field.name for field in dataclasses.fields(FileOptions)]
        return FileOptions(**{name: getattr(self, name) for name in names}).as_settings(task)


@dataclass(frozen=True, kw_only=True)
class LabelledOptions(FileOptions):
    """How a file with labels is read for a fine-tuned run."""

    label: str = ""
    """The column with the label; detected by its name if not given."""
    decimal: DecimalMark = "auto"
    """The decimal mark of labels that are numbers: point or comma; detected, but a comma only if all fractions have
    it."""
