"""Rows of texts that are alike or not: their records, and the margins between a teacher's scores."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from osbert.reading.columns import AlikeColumns
from osbert.reading.table import Row
from osbert.tasks import Record
from osbert.tasks.tables import UnlabelledRow, listed_texts, parse_cell
from osbert.tasks.tables.numbers import parse_number


@dataclass(frozen=True, kw_only=True)
class AlikeTexts(Record):
    """A text, one like it, and texts that are not; `others`: further texts like it, each with a label.

    With a teacher's scores the label is a tuple: the second text's score less that of each text that is not like it.
    """

    others: tuple[tuple[str, Any], ...] = ()


def alike_texts(row: Row, columns: AlikeColumns, record: Record, positives: Sequence[str]) -> AlikeTexts:
    """Return the record of a row with several texts like the first, and those that are not.

    Raises ValueError for cells that cannot be read.
    """
    cells = [listed_texts(row, name) for name in columns.negatives if name in row.values]
    negatives = [text for texts in cells for text in texts if text.strip()]
    if columns.rows == "distilled":
        labels: Sequence[Any] = teacher_margins(row, columns, positives, negatives)
    else:
        labels = [read_number(row, columns.label)] * len(positives)
    texts, others = (*record.texts, *negatives), tuple(zip(positives, labels))[1:]
    return AlikeTexts(**{**vars(record), "texts": texts, "label": labels[0], "others": others})


def read_number(row: Row, column: str) -> float:
    """Return the score or judgement of a row, 1 without a column. Raises ValueError if it is none."""
    if not column:
        return 1.0
    cell = row.values.get(column, "").strip()
    if not cell:
        raise UnlabelledRow("the number is empty")
    return parse_number(cell)


def teacher_margins(
    row: Row, columns: AlikeColumns, positives: Sequence[str], negatives: Sequence[str]
) -> list[tuple[float, ...]]:
    """Return for each of P positives the differences of its score from those of the n negatives.

    One column of scores has the positive's and then the negatives', or the n differences; several have those of the
    texts in each column. Raises ValueError if scores are missing or no numbers.
    """
    if len(columns.labels) == 1:
        scores, n = cell_numbers(row, columns.label), len(negatives)
        if len(positives) != 1 or len(scores) not in (n, n + 1):
            raise ValueError(
                f"'{columns.label}' has {len(scores)} numbers. With one text like the first and {n} that are not, "
                f"write the scores of all {n + 1}, or the first one's score minus each of the other {n}"
            )
        return [tuple(scores) if len(scores) == n else tuple(scores[0] - score for score in scores[1:])]
    by_column = []
    for name, label in zip((columns.pair, *columns.negatives), columns.labels, strict=True):
        texts, scores = listed_texts(row, name) if name in row.values else [], cell_numbers(row, label)
        if len(scores) != len(texts) and any(text.strip() for text in texts):
            raise ValueError(f"'{label}' has {len(scores)} numbers for {len(texts)} texts in '{name}'")
        by_column.append([score for text, score in zip(texts, scores) if text.strip()])
    relevant, *others = by_column
    return [tuple(score - other for scores in others for other in scores) for score in relevant]


def cell_numbers(row: Row, name: str) -> list[float]:
    """Return the number of a cell, or the numbers of its list; none if it is empty. Raises ValueError for others.

    >>> [cell_numbers(Row(line=1, values={"scores": cell}), "scores") for cell in ("[1.5, 2]", "3", "")]
    [[1.5, 2.0], [3.0], []]
    """
    cell = row.values.get(name, "").strip()
    numbers = row.source.get(name) if name in row.nested else None
    numbers = numbers or (parse_cell(cell) if cell.startswith("[") else None)
    if isinstance(numbers, list) and all(isinstance(number, int | float) for number in numbers):
        return [parse_number(str(number)) for number in numbers]
    return [parse_number(cell)] if cell else []


def split_others(records: Iterable[Record]) -> Iterator[Record]:
    """Yield a record for each text that is like the first one of a row."""
    for record in records:
        assert isinstance(record, AlikeTexts)
        yield dataclasses.replace(record, others=())
        for other, label in record.others:
            texts = (record.texts[0], other, *record.texts[2:])
            yield dataclasses.replace(record, texts=texts, label=label, others=())


def join_judged(records: Iterable[Record]) -> Iterator[Record]:
    """Yield a record for each text that was judged to be like another, with all that were judged not to be.

    Texts without one like them are left out.
    """
    judged: dict[str, tuple[list[Record], dict[str, None]]] = {}
    for record in records:
        alike, others = judged.setdefault(record.texts[0], ([], {}))
        if record.label > 0:
            alike.append(record)
        else:
            others[record.texts[1]] = None
    for alike, others in judged.values():
        yield from (dataclasses.replace(record, texts=(*record.texts, *others), label=1.0) for record in alike)
