"""Labels in a table: the columns and cells that hold them, as lists, joined in a cell, or as columns of 0 and 1."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from osbert.errors import Problems, UserError
from osbert.reading.columns import CLASS_HEADINGS, ROLES, Header, TextColumns, choose
from osbert.reading.table import Row, Table
from osbert.tasks.tables import parse_cell
from osbert.tasks.tables.classes import SEPARATORS, find_joined_labels, parse_list

Labels = tuple[str, ...]
"""The labels of a row, sorted by name, each once; () for none."""

FLAGS: Mapping[str, bool] = {"0": False, "1": True, "0.0": False, "1.0": True, "false": False, "true": True}
"""The values of a label's own column, in lower case -> whether the row has the label."""
NONE = "none"
"""The setting for cells with one label each, whatever characters it has."""


def canonical(labels: Iterable[str]) -> Labels:
    """Return labels sorted by name, each once, so that equal sets are equal.

    >>> canonical(["war", "art", "war"])
    ('art', 'war')
    """
    return tuple(sorted({*labels}))


def cell_labels(cell: str, separator: str) -> Labels:
    """Return the labels in a cell: those of a JSON or Python list, else its parts between separators.

    `separator`: "" and "none" for a cell with one label. Raises ValueError for a list of other things than texts and
    numbers.

    >>> cell_labels("war; art;", ";"), cell_labels('["a;b"]', ";"), cell_labels(" a, b ", "none"), cell_labels("", ",")
    (('art', 'war'), ('a;b',), ('a, b',), ())
    """
    text = cell.strip()
    if (parts := parse_list(text)) is not None:
        return _names(parts)
    split = text.split(separator) if separator not in ("", NONE) else [text]
    return canonical(filter(None, (part.strip() for part in split)))


def parse_nested_labels(cell: str) -> Labels:
    """Return the labels of a JSON list. Raises ValueError if the cell is no list of labels."""
    value = parse_cell(cell)
    if not isinstance(value, list):
        raise ValueError(f'the labels are no list ({cell[:40]}). Write them as ["one", "other"], and [] for none')
    return _names(value)


def flag_probabilities(values: Mapping[str, str], columns: Sequence[str]) -> dict[str, float]:
    """Return the number in the column of each label, from 0 to 1. Raises ValueError for another cell.

    >>> flag_probabilities({"art": "0.3", "war": "true"}, ["art", "war"])
    {'art': 0.3, 'war': 1.0}
    """
    probabilities = {}
    for name in columns:
        cell = values[name].strip().lower()
        try:
            probabilities[name] = check_probabilities({name: float(FLAGS.get(cell, cell))})[name]
        except ValueError:
            held = f"the column '{name}' holds {values[name][:40]!r}"
            raise ValueError(f"{held}, which is neither 0 nor 1 nor a probability") from None
    return probabilities


def check_probabilities(probabilities: Mapping[str, float]) -> dict[str, float]:
    """Return the probability of each label. Raises ValueError for one that is not from 0 to 1."""
    for name, value in probabilities.items():
        if not 0 <= value <= 1:
            raise ValueError(f"the probability of '{name}' is {value:g}. Write a number from 0 to 1 for each label")
    return dict(probabilities)


def likely_names(probabilities: Mapping[str, float]) -> Labels:
    """Return the labels with a probability of at least 0.5."""
    return canonical(name for name, value in probabilities.items() if value >= 0.5)


def find_separator(cells: Collection[str], *, where: str, known: Sequence[str] = ()) -> str:
    """Detect the separator of the labels in some cells: ; or | or a comma, "" if no cell has one of these.

    Lists need none. Raises UserError if cells have more than one of them, and if the only one may as well be part of
    the labels, as in "Boston, MA", because no part of the cells is a label in other cells or among the `known` ones.
    `where` names the source of the cells in messages.

    >>> find_separator(["war;art", "war"], where="the column"), find_separator(["war", '["a", "b"]'], where="it")
    (';', '')
    """
    texts = [cell for cell in cells if parse_list(cell.strip()) is None]
    cell_by_separator = {separator: cell for separator in SEPARATORS for cell in texts if separator in cell}
    if len(cell_by_separator) > 1:
        examples = ", ".join(f"'{separator}' as in {cell[:40]!r}" for separator, cell in cell_by_separator.items())
        first = next(iter(cell_by_separator))
        raise UserError(
            f"{where} holds several signs that may separate labels: {examples}. Say which one does (--separator "
            f"'{first}'), or --separator none if each cell is one label.",
            code="ambiguous-separator",
        )
    for separator, cell in cell_by_separator.items():
        several = sum(separator in text for text in texts) > 1
        if not (separator != "," and several) and not {*find_joined_labels([*known, *texts])} & {*texts}:
            raise UserError(
                f"{where} holds '{separator}', as in {cell[:40]!r}, which may separate labels or "
                "belong to one. Say that it "
                f"separates them (--separator '{separator}'), or --separator none if each cell is one label.",
                code="ambiguous-separator",
            )
    return next(iter(cell_by_separator), "")


def join_labels(labels: Sequence[str], separator: str) -> str:
    """Write labels as a cell that `cell_labels` reads back: with a separator, or as a JSON list; "[]" for none.

    >>> join_labels(("art", "war"), ";"), join_labels(("a;b", "c"), ";")
    ('art;war', '["a;b", "c"]')
    >>> join_labels((), ";"), join_labels(("art", "war"), "none")
    ('[]', '["art", "war"]')
    """
    cell = separator.join(labels)
    plain = bool(labels) and parse_list(cell) is None and cell_labels(cell, separator) == canonical(labels)
    return cell if plain else json.dumps(list(labels), ensure_ascii=False)


def _names(values: Sequence[Any]) -> Labels:
    """Return the labels in a list. Raises ValueError for a repeated number: the list is then a vector of 0 and 1."""
    names = [_name(value) for value in values]
    for name, value in zip(names, values):
        if not isinstance(value, str) and names.count(name) > 1:
            raise ValueError(
                f"the list of labels holds {name} twice. Write the labels' names, or a column of 0 and 1 for each label"
            )
    return canonical(names)


def _name(value: Any) -> str:
    """Return a label in a list as text; numbers as JSON writes them."""
    if isinstance(value, str) and value.strip():
        return value.strip()
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise ValueError(f"the list of labels holds {value!r:.40}, which is no label. Write texts or numbers")


LOOKED = 10_000
"""Number of rows in which the separator and columns of 0 and 1 are detected."""
ROWS_PER_TYPO = 20
"""One cell in so many may be neither 0 nor 1 in a column that is found to be a label's."""
_NUMBERS = ("id", "index", "idx", "row", "number", "unnamed: 0", "")
"""Names of columns that number the rows."""


@dataclass(frozen=True, kw_only=True)
class LabelColumns(TextColumns):
    """The columns in use. `label` holds all labels of a row, separated by `separator`; "" if there are none.

    `flags`: columns with 0 or 1, one for each label; `label` is then the first of them.
    """

    flags: tuple[str, ...] = ()
    separator: str = ""

    @property
    def sources(self) -> tuple[str, ...]:
        """Return the columns with the labels."""
        return (self.flags or (self.label,)) if self.label else ()

    def describe(self, *, labelled: bool = True) -> str:
        texts = dataclasses.replace(self, label="", flags=(), separator="")
        where = TextColumns.describe(texts).removesuffix(", no label")
        if not self.label:
            return f"{where}, no labels"
        names = ", ".join(f"'{name}'" for name in self.sources[:5]) + (", ..." if len(self.sources) > 5 else "")
        if not labelled:
            return f"{where}, the labels in {names} are not read"
        if self.flags:
            return f"{where}, labels from {len(self.flags)} columns of 0 and 1 ({names})"
        between = f"separated by '{self.separator}'" if self.separator not in ("", NONE) else "a list or one a cell"
        return f"{where}, labels from {names}, {between}"


@dataclass(frozen=True, kw_only=True)
class LabelSearch:
    """The columns that the user or the training run names; "" and () for the others.

    `labels`: the known labels.
    """

    user_columns: TextColumns
    flags: tuple[str, ...]
    separator: str
    labels: tuple[str, ...]

    def columns(self, table: Table, *, labelled: bool) -> LabelColumns:
        """Return the columns of a table; without `labelled` the labels may be absent.

        Raises UserError if they cannot be detected, or if columns or separators are ambiguous.
        """
        header = Header(table.columns, table.called)
        # Columns of 0 and 1 come first: if there are any, no column holds lists, and none of them can be the text.
        flags = self._flags(table, header, labelled=labelled)
        label = "" if flags else self.user_columns.label or self._label(table, header, labelled=labelled)
        text_columns = choose(
            [name for name in table.columns if name not in flags],
            user_columns=dataclasses.replace(self.user_columns, label=label),
            path=table.called,
            labelled=labelled and not flags,
        )
        if flags:
            return LabelColumns(text=text_columns.text, pair=text_columns.pair, label=flags[0], flags=flags)
        label_columns = LabelColumns(text=text_columns.text, pair=text_columns.pair, label=text_columns.label)
        separator = self.separator or (
            self._separator(table, label_columns.label, labelled=labelled) if label_columns.label else ""
        )
        return dataclasses.replace(label_columns, separator=separator)

    def _label(self, table: Table, header: Header, *, labelled: bool) -> str:
        """Return the column that is called as lists of labels are, "" for none; UserError if others may be meant."""
        column = header.find("labels")
        named = [name for name in table.columns if name not in self.user_columns.texts]
        several = [name for name in named if name.strip().lower() in (*ROLES["labels"], *CLASS_HEADINGS)]
        if column and labelled and len(several) > 1:
            raise UserError(
                f"{header.listed}; the labels could be in {' or '.join(map(repr, several))}: give --label NAME.",
                code="ambiguous-column",
            )
        return column

    def _separator(self, table: Table, label: str, *, labelled: bool) -> str:
        """Detect the separator of the labels in a column, "" for none; known labels are ignored.

        Without `labelled` an ambiguous cell is one label.
        """
        rows = (row for row in _rows(table) if label in row.values and label not in row.nested)
        # Distinct cells, in the order of the rows.
        cells = dict.fromkeys(row.values[label] for row in rows)
        unknown = [cell for cell in cells if cell not in self.labels]
        try:
            return find_separator(unknown, where=f"{table.called}: '{label}'", known=self.labels)
        except UserError:
            if labelled:
                raise
            return NONE

    def _flags(self, table: Table, header: Header, *, labelled: bool) -> tuple[str, ...]:
        """Return the label columns of 0 and 1: the given ones, those named like known labels, or all such columns."""
        if self.user_columns.label:
            return ()
        if self.flags:
            if not labelled and not {*self.flags} <= {*table.columns}:
                return ()
            for name in self.flags:
                header.require(name, option="label-columns")
            return self.flags
        # The labels of the training run as columns: no detection.
        if self.labels and {*self.labels} <= {*table.columns}:
            return self.labels
        if header.find("labels"):
            return ()
        return self._select_flags(table, binary_columns(table, but=self.user_columns.texts), labelled=labelled)

    def _select_flags(self, table: Table, binary: Sequence[str], *, labelled: bool) -> tuple[str, ...]:
        """Return the columns `binary` if all columns but the text are binary; () if another column holds the labels."""
        if len(binary) < 2:
            return ()
        others = [name for name in table.columns if name not in binary]
        # If one of the remaining columns holds labels, columns of 0 and 1 are other features.
        columns = choose(
            others, user_columns=dataclasses.replace(self.user_columns, label=""), path=table.called, labelled=False
        )
        if columns.label:
            return ()
        names = ",".join(binary)
        if usual := [name for name in binary if name.strip().lower() in CLASS_HEADINGS]:
            if not labelled:
                return ()
            raise UserError(
                f"{table.called} has columns of 0 and 1 ({names}), and '{usual[0]}' may hold the label: give "
                f"--label-columns {names} if these are the labels, or --label {usual[0]}.",
                code="ambiguous-column",
            )
        if more := [name for name in others if name not in columns.texts and name.strip().lower() not in _NUMBERS]:
            if not labelled:
                return ()
            raise UserError(
                f"{table.called} has columns of 0 and 1 ({names}), and others ({', '.join(more)}): give "
                f"--label-columns {names} if these are the labels, or the column of the labels with --label NAME.",
                code="ambiguous-column",
            )
        return tuple(binary)


def binary_columns(table: Table, *, but: Sequence[str]) -> list[str]:
    """Return the columns with only 0 and 1 in the first rows; of ten rows or more one may differ, and one in 20.

    A column with a wrong cell is one of the labels all the same: reading its row reports the cell with its line.
    """
    wrong = {name: 0 for name in table.columns if name not in but and name.strip().lower() not in _NUMBERS}
    rows = 0
    for rows, row in enumerate(_rows(table), 1):
        for name in wrong:
            wrong[name] += row.values.get(name, "").strip().lower() not in FLAGS
        # Columns of other content drop out in the first rows; without any left the rest need not be read.
        wrong = {name: count for name, count in wrong.items() if count <= 1 + rows // ROWS_PER_TYPO}
        if not wrong:
            break
    return [name for name, count in wrong.items() if not count or rows >= ROWS_PER_TYPO // 2]


def _rows(table: Table) -> Iterator[Row]:
    """Yield the first rows. Unreadable ones are skipped here and reported when the table is read."""
    # Problems are discarded here, since each would be reported twice.
    rows = table.rows(Problems(heading="", limit=0))
    return (row for row in islice(rows, LOOKED) if not row.blank)
