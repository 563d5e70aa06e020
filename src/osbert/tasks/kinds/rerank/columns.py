"""Rows of queries and candidates: their columns, the records of rows, and the files to predict."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from osbert.errors import Problems, UserError
from osbert.reading.columns import Header, headings
from osbert.reading.table import Row
from osbert.tasks import Inputs, Prediction, Record
from osbert.tasks.kinds.rerank.rankings import QueryCandidates, Ranking
from osbert.tasks.tables import UnlabelledRow, cell_texts, listed_texts, parse_cell, require_cells, row_texts
from osbert.terminal import one_line

HEADINGS = headings("query", "candidate", "relevance", "positive", "negative")
"""A first line that contains one of these is a header."""
FORMS = (("document", "label"), ("positive", "negative"))
"""The settings with the columns of each form: documents with relevance, or positives and negatives."""


@dataclass(frozen=True, kw_only=True)
class CandidateColumns:
    """The columns in use: `document` with `label`, or `positive` with `negative`. A cell holds one text, or a list.

    "" for an absent column.
    """

    query: str = ""
    document: str = ""
    label: str = ""
    positive: str = ""
    negative: tuple[str, ...] = ()

    @property
    def used(self) -> tuple[str, ...]:
        """Return the columns with texts."""
        return tuple(filter(None, (self.query, self.document, self.positive, *self.negative)))

    def describe(self, *, labelled: bool = True) -> str:
        """Describe the columns. Without `labelled`, mention that the label is not read."""
        if not self.document:
            negatives = ", ".join(map(repr, self.negative))
            return f"queries from '{self.query}', relevant from '{self.positive}', others from {negatives or 'nowhere'}"
        label = f"relevance from '{self.label}'" if labelled else f"the relevance in '{self.label}' is not read"
        return (
            f"queries from '{self.query}', documents from '{self.document}', {label if self.label else 'no relevance'}"
        )


def choose(columns: Sequence[str], *, user_columns: CandidateColumns, path: str, labelled: bool) -> CandidateColumns:
    """Return the columns to use: the given ones (`user_columns`), else those with usual names.

    Raises UserError listing the columns if a given one is absent, a required one is not found, or the form is
    ambiguous.
    """
    header = Header(columns, path)
    wanted = [(name, getattr(user_columns, name)) for name in ("query", "document", "positive")]
    wanted += [
        ("label", user_columns.label if labelled else ""),
        *(("negative", name) for name in user_columns.negative),
    ]
    for option, name in wanted:
        header.require(name, option=option)
    # A column that is named for something else cannot be the query, e.g. "context".
    named = (user_columns.document, user_columns.positive, *user_columns.negative, user_columns.label)
    query = header.find("query", user_columns.query, but=named)
    if not query:
        raise header.missing("query", ": give --query NAME (for a run that is trained, --columns.query NAME).")
    document, positive = _forms(header, user_columns, query)
    if user_columns.negative and not positive:
        raise header.missing(
            "positive",
            f": '{user_columns.negative[0]}' (--negative) needs a column with relevant documents: --positive NAME.",
        )
    if positive:
        negative = user_columns.negative or header.find_negatives(but=(query, positive))
        return CandidateColumns(query=query, positive=positive, negative=negative)
    if not document:
        advice = ": give --document NAME, or --positive NAME and --negative NAME (for a run that is trained, --columns."
        raise header.missing("document", f"{advice}document NAME).")
    label = header.find("relevance", user_columns.label, but=(query, document))
    if labelled and not label:
        raise header.missing("label", ": give --label NAME, the column with the relevance of each document.")
    return CandidateColumns(query=query, document=document, label=label)


def _forms(header: Header, user_columns: CandidateColumns, query: str) -> tuple[str, str]:
    """Return the column of documents, or that of relevant ones; "" for the other, or for both if there is neither.

    Raises UserError if the given columns are of both forms, or if none is given and both forms are possible.
    """
    document = header.find("candidate", user_columns.document, but=(query, user_columns.label, *user_columns.negative))
    positive = header.find("positive", user_columns.positive, but=(query, user_columns.label))
    # A given option of each form, for the check that only one form is given.
    documents, positives = (
        (user_columns.document or user_columns.label),
        (user_columns.positive or "".join(user_columns.negative[:1])),
    )
    if documents and positives:
        raise UserError(
            f"'{documents}' belongs to documents with their relevance (--document, --label), '{positives}' to relevant "
            "documents and others (--positive, --negative): give those of one form.",
            code="options-exclude-each-other",
        )
    if user_columns.label and positive and not document:
        raise UserError(
            f"{header.listed}; --label '{user_columns.label}' needs a column with documents. Give "
            f"--document NAME, or remove --label: the documents in '{positive}' count as relevant.",
            code="options-exclude-each-other",
        )
    if document and positive and not documents and not positives:
        raise UserError(
            f"{header.listed}; the documents could be in '{document}', with their relevance, or the relevant ones in "
            f"'{positive}': give --document {document} or --positive {positive} (for a run that is trained, --columns."
            f"document {document} or --columns.positive {positive}).",
            code="ambiguous-column",
        )
    # Positives if they were given, or if there is no column of documents.
    return ("", positive) if positive and not documents and (positives or not document) else (document, "")


def record_of(row: Row, columns: CandidateColumns, *, path: str) -> QueryCandidates:
    """Return the query and the candidates of a row. Raises ValueError with the reason if they are unusable."""
    require_cells(row, columns.used, labels=[columns.label])
    [query] = row_texts(row, [columns.query])
    labels: tuple[float, ...] | None = None
    if columns.document:
        documents = cell_texts(row, columns.document)
        if columns.label:
            labels = _relevances(row, columns, len(documents))
    else:
        relevant = listed_texts(row, columns.positive)
        # An empty cell is no document: `osbert mine` writes as many columns for every row.
        cells = [name for name in columns.negative if name in row.nested or row.values[name].strip()]
        others = [text for name in cells for text in listed_texts(row, name)]
        documents = [*relevant, *others]
        labels = (1.0,) * len(relevant) + (0.0,) * len(others)
    if not documents:
        raise ValueError("there is no document in it. Write one, or remove the row")
    empty = [number for number, text in enumerate(documents, 1) if not text.strip()]
    if empty and len(documents) > 1:
        raise ValueError(f"document {empty[0]} of {len(documents)} is empty. Write it, or remove it")
    return QueryCandidates(number=0, texts=(query, *documents), label=labels, path=path, line=row.line)


def _relevances(row: Row, columns: CandidateColumns, count: int) -> tuple[float, ...]:
    """Return the relevance of each of `count` documents."""
    name = columns.label
    if columns.document not in row.nested:
        if name in row.nested:
            raise ValueError(f"'{name}' is a list, but there is one document")
        return (_relevance(row.values[name]),)
    # Lists come as such from JSON lines, or as JSON in a cell.
    relevances = row.source.get(name) or parse_cell(row.values[name])
    if name in row.nulls or not row.values[name].strip():
        raise UnlabelledRow("the relevance is empty")
    if not isinstance(relevances, list):
        raise ValueError(f"there are {count} documents, but '{name}' is no list: {row.values[name][:40]!r}")
    if len(relevances) != count:
        raise ValueError(f"there are {count} documents, but {len(relevances)} values in '{name}'")
    return tuple(_relevance("" if relevance is None else str(relevance)) for relevance in relevances)


def _relevance(text: str) -> float:
    """Return the relevance in a cell: a number of at least 0; true is 1, false is 0."""
    cell = text.strip().lower()
    if not cell:
        raise UnlabelledRow("the relevance is empty")
    try:
        # float() accepts "1_0" as 10; such cells are rejected.
        number = float({"true": "1", "false": "0"}.get(cell, "" if "_" in cell else cell))
    except ValueError:
        raise ValueError(f"the relevance {text!r} is not a number. Write one, 0 for a document that is not") from None
    # Also False for NaN.
    if not 0 <= number < math.inf:
        raise ValueError(f"the relevance {text!r} is not a number from 0 upwards. Write one, or remove the row")
    return number


Pairs = Iterator[tuple[Row, Record | None]]
RowRecord = tuple[Row, Record | None]


@dataclass(frozen=True, kw_only=True)
class QueryRows(Row):
    """The rows of one query; `members`: each row with its own record, None if it has no text."""

    members: tuple[RowRecord, ...]


def inputs_by_query(inputs: Inputs) -> Inputs:
    """Return inputs in which the rows of a query are one row; predictions are written row by row again.

    Rows of a query that are not consecutive are reported as a problem: they would be ranked in two lists.
    """
    return replace(inputs, rows=partial(_by_query, inputs.rows), parts=_parts)


def _by_query(rows: Callable[[Problems], Pairs], problems: Problems) -> Pairs:
    lines: dict[str, int] = {}
    group: list[RowRecord] = []
    query: str | None = None
    for row, record in rows(problems):
        if record is not None and query not in (None, record.texts[0]):
            yield _join_rows(group)
            group, query = [], None
        if record is not None and query is None:
            query = record.texts[0]
            if lines.setdefault(query, row.line) != row.line:
                problems.add(
                    f"{record.place}: the query '{one_line(query):.60}' also occurs in {record.unit} {lines[query]}, "
                    "with other queries in between. Sort the file by query: its documents are ranked together.",
                    code="unusable-row",
                )
        group.append((row, record))
    if group:
        yield _join_rows(group)


def _join_rows(group: list[RowRecord]) -> RowRecord:
    first = group[0][0]
    records = [record for _, record in group if record is not None]
    whole = QueryRows(line=first.line, values=first.values, source=first.source, members=tuple(group))
    if not records:
        return whole, None
    documents = (text for record in records for text in record.texts[1:])
    return whole, replace(records[0], texts=(records[0].texts[0], *documents))


def _parts(row: Row, prediction: Prediction | None) -> Iterator[tuple[Row, Prediction | None]]:
    """Yield each row of a query with the prediction for its candidate, or for its list of candidates."""
    assert isinstance(row, QueryRows)
    begin = 0
    for member_row, record in row.members:
        if not isinstance(record, QueryCandidates) or not isinstance(prediction, Ranking):
            yield member_row, None
            continue
        end = begin + len(record.documents)
        candidates = prediction.candidates[begin:end]
        yield member_row, candidates[0] if len(candidates) == 1 and not member_row.nested else Ranking.of(candidates)
        begin = end
