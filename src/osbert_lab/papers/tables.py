"""The tables of the paper as osbert runs them, read from tables/*.toml: their encoders and data sets."""

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
from osbert_lab.papers.data import TableColumn
from osbert_lab.papers.published import FIGURES, TABLES, PublishedTable
from osbert_lab.papers.shared_masks import require_same_text
from osbert_lab.papers.word_tests import WordTest

WIDTH, HEADS = "model.width", "model.heads"


@dataclass(frozen=True, kw_only=True)
class TableRow:
    """A row of a table: how its encoder is pretrained, and settings of fine-tuning for this row alone."""

    name: str
    pretraining: Mapping[str, Any] = field(default_factory=dict)
    finetuning: Mapping[str, Any] = field(default_factory=dict)
    encoder: str = ""
    """The row whose encoder this row uses; empty if it has its own."""
    step: int = 0
    """The step of that encoder's pretraining whose intermediate model is used; 0 for the final model."""
    recipe: str = ""
    """The recipe of its pretraining; empty for the recipe that all rows share."""
    usual: Mapping[str, Any] = field(default_factory=dict)
    """Default settings of its pretraining; the command line takes precedence."""
    corpus: str = ""
    """For a row with a corpus of its own: what the name of its folder adds to that of the common one, beside which it
    lies (pairs: corpus-pairs). The row is left out where there is no such folder."""
    year: int = 0
    """The year of its paper; 0 for none. Tables with years have a picture of scores by year."""

    def own_corpus(self, common: Path) -> Path:
        """Return the folder of its corpus, given the one that rows have in common."""
        if not self.corpus:
            return common
        named = common if common.name not in ("", "..") else common.resolve()
        return named.with_name(f"{named.name}-{self.corpus}")

    def shrink(self, factor: int) -> TableRow:
        """Return the row with the width of its encoder divided. Raises UserError if the width is not divisible."""
        if WIDTH not in self.pretraining:
            return self
        width, heads = self.pretraining[WIDTH], self.pretraining[HEADS]
        # Every head must keep a whole number of dimensions: width / factor / heads.
        if factor < 1 or width % (factor * heads):
            message = f"--shrink {factor} cannot be: {heads} heads must share a width of {width} / {factor} evenly."
            raise UserError(message, code="invalid-value")
        return replace(self, pretraining={**self.pretraining, WIDTH: width // factor})


@dataclass(frozen=True, kw_only=True)
class RecipeClaim:
    """A claim of a paper: on some tasks the encoders of row `above` score higher than those of row `below`."""

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
    """The metric of the columns, for the report's text."""
    perplexity: str = ""
    """The column with the perplexity of masked tokens on held-out text; empty if there is none."""
    finetuning: Mapping[str, Any] = field(default_factory=lambda: {"epochs": 3, "learning_rate": 3e-5, "length": 128})
    """Default settings of fine-tuning for a model given with --model."""
    ensemble: str = ""
    """The row for the ensemble of all seeds' runs; empty if there is none."""
    title: str = ""
    """The title; empty for the title of the paper's table."""
    usual: Mapping[str, Any] = field(default_factory=dict)
    """Default settings of pretraining for all rows; the command line takes precedence."""
    more: tuple[TableColumn, ...] = ()
    """Further data sets, used only if --tasks names them."""
    curves: bool = False
    """Whether each row is fine-tuned from several steps of one pretraining. Seeds then vary the fine-tuning only."""
    words: tuple[WordTest, ...] = ()
    """Tests of the encoders' vectors of words, which need no fine-tuning."""
    masks: str = ""
    """The row on whose held-out masks the encoders of all rows are scored, too; empty for none."""
    left_out: tuple[str, ...] = ()
    """The names of rows that are left out because their own corpus is missing."""
    claims: tuple[RecipeClaim, ...] = ()
    """Claims of the papers on which row scores higher."""

    @property
    def published(self) -> PublishedTable:
        """The published figures of the paper."""
        return TABLES.get(self.name) or FIGURES.get(self.name) or PublishedTable(title=self.title, figures={})

    @property
    def recipes(self) -> list[str]:
        """The recipes that belong to single rows, without duplicates."""
        return [*dict.fromkeys(row.recipe for row in self.rows if row.recipe)]

    @property
    def tasks(self) -> list[str]:
        """The tasks of all columns, without duplicates."""
        return [*dict.fromkeys(column.task or column.set for column in self.columns)]

    @property
    def varied(self) -> bool:
        """Return whether the rows have different encoders, so that one --model cannot serve for all."""
        return any(row.pretraining or row.recipe for row in self.rows)

    @property
    def headings(self) -> tuple[str, ...]:
        """The paper's columns, then the columns that the paper does not have."""
        our_columns = (name for column in self.columns for name in column.measured)
        return tuple(dict.fromkeys([*self.published.columns, *our_columns]))

    @property
    def has_years(self) -> bool:
        """Return whether its rows are ordered by the years of their papers."""
        return any(row.year for row in self.rows)

    def shrink(self, factor: int) -> PaperTable:
        """Return the table with the widths of its encoders divided. Raises UserError if a width is not divisible."""
        if factor == 1:
            return self
        rows = tuple(row.shrink(factor) for row in self.rows)
        if rows == self.rows:
            raise UserError(
                "The rows of this table have no widths of their own. Use --model.width instead of --shrink.",
                code="options-exclude-each-other",
            )
        return replace(self, rows=rows)

    def with_corpora(self, corpus: Path) -> PaperTable:
        """Return the table without the rows whose own corpus, beside the common one, is missing.

        Raises UserError if no row is left, and if rows that are scored on the same masks have other text.
        """
        available_rows = tuple(row for row in self.rows if row.own_corpus(corpus).is_dir() or not row.corpus)
        if not available_rows:
            row = self.rows[0]
            raise UserError(
                f"{row.name} is trained on its own corpus, which is missing: {row.own_corpus(corpus)}. Build it "
                "there, or choose other --recipes.",
                code="missing-file",
            )
        if self.masks:
            for second_corpus in {row.own_corpus(corpus) for row in available_rows if row.corpus}:
                require_same_text(corpus, second_corpus)
        return replace(
            self, rows=available_rows, left_out=tuple(row.name for row in self.rows if row not in available_rows)
        )

    def differing(self) -> dict[str, dict[str, str]]:
        """Return the settings of fine-tuning of single rows and columns, beyond the common ones, by name."""
        rows = {row.name: shlex.join(words(row.finetuning)) for row in self.rows if row.finetuning}
        columns = {column.name: shlex.join(words(column.settings)) for column in self.columns if column.settings}
        return {"finetuning_by_column": columns, "finetuning_by_row": rows}

    def own_settings(self, columns: Sequence[TableColumn]) -> list[str]:
        """Describe, one line each, the settings that single rows and `columns` have beyond the common ones."""
        # Columns that were not run are left out of the description.
        column_names, differences = {column.name for column in columns}, self.differing()
        finetuning_rows = [
            ("Column", name, options)
            for name, options in differences["finetuning_by_column"].items()
            if name in column_names
        ]
        finetuning_rows += [("Row", name, options) for name, options in differences["finetuning_by_row"].items()]
        lines = [f"{kind} '{name}': fine-tuned as all, but {options}." for kind, name, options in finetuning_rows]
        trained = [(row.name, shlex.join(words(row.pretraining))) for row in self.rows if row.pretraining]
        return lines + [f"Row '{name}': pretrained with {options}." for name, options in trained]

    def present(self, data: Path) -> tuple[TableColumn, ...]:
        """Return the columns whose files exist, () if only tests of words do.

        Raises UserError with a list of all files if none exists.
        """
        present = tuple(column for column in self.columns if column.find(data))
        if not present and not any(test.find(data) for test in self.words):
            problems = Problems(heading=f"This table cannot be run: {data} contains none of its data sets")
            for column in self.columns:
                problems.add_from(column.name, column.missing(data))
            problems.stop_if_any()
        return present


def table_names() -> list[str]:
    """Return the names of all tables, figures and comparisons that can be reproduced."""
    folder = importlib.resources.files(__package__) / "tables"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def read_table(name: str) -> PaperTable:
    """Read a table by its name, such as "table5"."""
    file = importlib.resources.files(__package__) / "tables" / f"{name}.toml"
    table = tomllib.loads(file.read_text(encoding="utf-8"))
    return recipe.build(PaperTable, {"name": name, **table}, where=f"{name}.toml")


def words(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return settings as words of a command line; a boolean becomes its name alone.

    >>> words({"mlm.mask": 0.8, "learning_rate": 5e-4, "objectives": "mlm", "merge": True, "data.workers": False})
    ('--mlm.mask', '0.8', '--learning-rate', '5e-4', '--objectives', 'mlm', '--merge', '--data.no-workers')
    """
    arguments: list[str] = []
    for name, value in settings.items():
        table, dot, leaf = name.replace("_", "-").rpartition(".")
        arguments += [f"--{table}{dot}{'no-' if value is False else ''}{leaf}"]
        arguments += [] if isinstance(value, bool) else [_word(value)]
    return tuple(arguments)


def keywords(*settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as `words` passes them to a command, by name; for duplicates the last one wins.

    >>> keywords({"mlm.mask": 0.8, "merge": True}, {"mlm.mask": 1.0})
    {'merge': True, 'mlm.mask': '1'}
    """
    named: dict[str, Any] = {}
    for name, value in (item for settings_group in settings for item in settings_group.items()):
        # Remove an earlier value first, so that the name moves to the end: order decides between long and short names.
        named.pop(name, None)
        named[name] = value if isinstance(value, bool) else recipe.Word(_word(value))
    return named


def _word(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    if value and abs(value) < 0.01:
        # "5e-4" as users write it; :g would give 0.0005, and 5e-05 with a zero.
        digits, _, exponent = f"{value:.12e}".partition("e")
        return f"{digits.rstrip('0').rstrip('.')}e{int(exponent)}"
    return f"{value:g}"


def spread(values: Sequence[float], *, scale: float = 100) -> str:
    """Format a mean and its standard deviation in per cent, "71.2 +- 0.4"; the deviation needs two values."""
    if not values:
        return "-"
    # ddof=1: the values are a sample of all seeds.
    text = f"{scale * float(np.mean(values)):.1f}"
    return text + (f" +- {scale * float(np.std(values, ddof=1)):.1f}" if len(values) > 1 else "")
