"""A file of plain input for reranking: consecutive rows of one query are ranked together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from osbert.errors import Problems
from osbert.reading.table import Row
from osbert.tasks import Inputs, Prediction, Record
from osbert.tasks.kinds.rerank.records import QueryCandidates, Ranking
from osbert.terminal import one_line

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
                    f"{record.place}: the query '{one_line(query):.60}' stands in {record.unit} {lines[query]}, too, "
                    "with another one between. Sort the file by query: its documents are ranked together.",
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
