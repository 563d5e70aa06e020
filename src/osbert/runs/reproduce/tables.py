"""The tables of the paper as osbert runs them: what tables/*.toml say of the encoders and of the data sets."""

from __future__ import annotations

import importlib.resources
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from osbert import recipe
from osbert.errors import Problems, UserError
from osbert.evaluation.paper import FIGURES, TABLES, PublishedTable
from osbert.runs.reproduce.data import TableColumn

WIDTH, HEADS = "model.width", "model.heads"


@dataclass(frozen=True, kw_only=True)
class TableRow:
    """A row of a table: how its encoder is pretrained, and what fine-tuning adds."""

    name: str
    pretraining: Mapping[str, Any] = field(default_factory=dict)
    finetuning: Mapping[str, Any] = field(default_factory=dict)
    encoder: str = ""
    """The row whose encoder this one takes, where it has none of its own."""
    step: int = 0
    """The step of that encoder's pretraining whose model it takes; 0 for the last."""
    recipe: str = ""
    """The recipe that its encoder is pretrained by; empty for that of all rows."""
    usual: Mapping[str, Any] = field(default_factory=dict)
    """Settings of its pretraining that those of the command line overrule."""

    def shrunk(self, factor: int) -> TableRow:
        """Return the row with the width of its encoder, if it says one, divided; raises UserError if it cannot be."""
        if WIDTH not in self.pretraining:
            return self
        width, heads = self.pretraining[WIDTH], self.pretraining[HEADS]
        if factor < 1 or width % (factor * heads):
            message = f"--shrink {factor} cannot be: {heads} heads must share a width of {width} / {factor} evenly."
            raise UserError(message, code="invalid-value")
        return replace(self, pretraining={**self.pretraining, WIDTH: width // factor})


@dataclass(frozen=True, kw_only=True)
class RecipeClaim:
    """What a paper says: the encoders of one row are `above` those of another, `below`, on tasks."""

    says: str
    above: str
    below: str


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """A table of the paper as it can be run here. Columns of the paper without a data set are shown, never run."""

    name: str
    rows: tuple[TableRow, ...]
    columns: tuple[TableColumn, ...]
    measure: str = "accuracy"
    """What the columns hold, in words."""
    perplexity: str = ""
    """The column with the perplexity of masked pieces on held-out text, where there is one."""
    finetuning: Mapping[str, Any] = field(default_factory=lambda: {"epochs": 3, "learning_rate": 3e-5, "length": 128})
    """The default settings of fine-tuning for a model that is given."""
    ensemble: str = ""
    """The row in which all seeds' runs answer together, where there is one."""
    title: str = ""
    """What it shows, where it is none of the paper's."""
    usual: Mapping[str, Any] = field(default_factory=dict)
    """Settings of pretraining, of all rows, that those of the command line overrule."""
    more: tuple[TableColumn, ...] = ()
    """Data sets that are taken where they are named (--tasks)."""
    curves: bool = False
    """Whether each row is fine-tuned from several steps of one pretraining; seeds are then those of fine-tuning."""
    claims: tuple[RecipeClaim, ...] = ()
    """Which row the papers say to be above which."""

    @property
    def published(self) -> PublishedTable:
        """Return the figures of the paper."""
        return TABLES.get(self.name) or FIGURES.get(self.name) or PublishedTable(title=self.title, figures={})

    @property
    def recipes(self) -> list[str]:
        """Return the recipes that rows have of their own, each once."""
        return [*dict.fromkeys(row.recipe for row in self.rows if row.recipe)]

    @property
    def tasks(self) -> list[str]:
        """Return the tasks that the columns are fine-tuned as, each once."""
        return [*dict.fromkeys(column.task or column.set for column in self.columns)]

    @property
    def varied(self) -> bool:
        """Return whether the rows are encoders that differ, so that no given model can stand for all."""
        return any(row.pretraining or row.recipe for row in self.rows)

    @property
    def headings(self) -> tuple[str, ...]:
        """Return the paper's columns, then those that it does not have."""
        ours = (name for column in self.columns for name in column.measured)
        return tuple(dict.fromkeys([*self.published.columns, *ours]))

    def shrunk(self, factor: int) -> PaperTable:
        """Return the table with the widths of its encoders divided; raises UserError when they cannot be."""
        if factor == 1:
            return self
        rows = tuple(row.shrunk(factor) for row in self.rows)
        if rows == self.rows:
            raise UserError(
                "The rows of this table have no widths of their own: give --model.width, not --shrink.",
                code="options-exclude-each-other",
            )
        return replace(self, rows=rows)

    def differing(self) -> dict[str, dict[str, str]]:
        """Return the settings of fine-tuning that single rows and columns have beside those of all, by their names."""
        rows = {row.name: shlex.join(words(row.finetuning)) for row in self.rows if row.finetuning}
        columns = {one.name: shlex.join(words(one.settings)) for one in self.columns if one.settings}
        return {"finetuning_by_column": columns, "finetuning_by_row": rows}

    def own_settings(self, columns: Sequence[TableColumn]) -> list[str]:
        """Return in words, a line each, what rows and these columns have beside the settings of all."""
        there, own = {one.name for one in columns}, self.differing()
        found = [("Column", name, said) for name, said in own["finetuning_by_column"].items() if name in there]
        found += [("Row", name, said) for name, said in own["finetuning_by_row"].items()]
        lines = [f"{kind} '{name}': fine-tuned as all, but {said}." for kind, name, said in found]
        trained = [(row.name, shlex.join(words(row.pretraining))) for row in self.rows if row.pretraining]
        return lines + [f"Row '{name}': pretrained with {said}." for name, said in trained]

    def present(self, data: Path) -> tuple[TableColumn, ...]:
        """Return the columns whose files are there. Raises UserError that lists all files when none is."""
        present = tuple(column for column in self.columns if column.find(data))
        if not present:
            problems = Problems(heading=f"This table cannot be run: {data} has none of its data sets")
            for column in self.columns:
                problems.add_from(column.name, column.missing(data))
            problems.stop_if_any()
        return present


def table_names() -> list[str]:
    """Return the names of all that can be reproduced."""
    folder = importlib.resources.files(__package__) / "tables"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def read_table(name: str) -> PaperTable:
    """Return a table by its name, such as "table5"."""
    file = importlib.resources.files(__package__) / "tables" / f"{name}.toml"
    table = tomllib.loads(file.read_text(encoding="utf-8"))
    return recipe.build(PaperTable, {"name": name, **table}, where=f"{name}.toml")


def words(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return settings as the words of a command line; of a boolean the name alone.

    >>> words({"mlm.mask": 0.8, "learning_rate": 5e-4, "objectives": "mlm", "merge": True, "data.workers": False})
    ('--mlm.mask', '0.8', '--learning-rate', '5e-4', '--objectives', 'mlm', '--merge', '--data.no-workers')
    """
    said: list[str] = []
    for name, value in settings.items():
        table, dot, leaf = name.replace("_", "-").rpartition(".")
        said += [f"--{table}{dot}{'no-' if value is False else ''}{leaf}"]
        said += [] if isinstance(value, bool) else [_word(value)]
    return tuple(said)


def keywords(*settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as `words` gives them to a command, but by name: of several of one name the last holds.

    >>> keywords({"mlm.mask": 0.8, "merge": True}, {"mlm.mask": 1.0})
    {'merge': True, 'mlm.mask': '1'}
    """
    named: dict[str, Any] = {}
    for name, value in (item for one in settings for item in one.items()):
        named.pop(name, None)
        named[name] = value if isinstance(value, bool) else recipe.Word(_word(value))
    return named


def _word(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    if value and abs(value) < 0.01:
        digits, _, exponent = f"{value:.12e}".partition("e")
        return f"{digits.rstrip('0').rstrip('.')}e{int(exponent)}"
    return f"{value:g}"


def spread(values: Sequence[float], *, scale: float = 100) -> str:
    """Return a mean and its standard deviation in per cent, "71.2 +- 0.4"; the deviation from two values on."""
    if not values:
        return "-"
    text = f"{scale * float(np.mean(values)):.1f}"
    return text + (f" +- {scale * float(np.std(values, ddof=1)):.1f}" if len(values) > 1 else "")
