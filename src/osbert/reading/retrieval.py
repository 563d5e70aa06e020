"""Reads what a search is measured on: a corpus, queries, judgements, and the rankings that another program wrote.

The forms are BEIR's (JSON lines with _id, title and text; a table of query-id, corpus-id and score), TREC's (qrels of
four columns, runs of six), any table with such columns, the same in memory, and one table of query, document and label.
Of a corpus the ids are kept in memory; its texts are read anew each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from osbert.errors import Problems, UserError
from osbert.reading.columns import Header, headings
from osbert.reading.form import TableReading, decoding_error, open_text, plain_suffix
from osbert.reading.memory import Data, tables
from osbert.reading.table import Row, Table, open_table
from osbert.terminal import format_count, one_line

TABLES = (".csv", ".jsonl", ".ndjson", ".json", ".parquet", ".xlsx")
"""Suffixes of judgements that are read as a table; others have fields between tabs or spaces."""
LISTED = 10
"""Most ids that a message lists."""
BOUND = (2 - 2**-24) * 2.0**127
"""The least number that is infinite in float32, in which scores are compared."""
Scores = dict[str, dict[str, float]]
"""Query id -> document id -> a number: the relevance in judgements, the score in a run."""


@dataclass(frozen=True, kw_only=True)
class TextCollection:
    """Texts with ids, from a table; `columns`: of the texts, which a space joins. `ids`: in the order of the table."""

    table: Table
    columns: Sequence[str]
    ids: Sequence[str] = field(repr=False)
    rows: Sequence[int] | None = field(default=None, repr=False)
    """The rows to read, by index in ascending order; None for all."""
    further: TextCollection | None = field(default=None, repr=False)
    """The texts behind those of the table; `ids` has theirs, too."""

    def texts(self) -> Iterator[str]:
        """Yield the text of each id, in the order of `ids`: as BEIR has it, the title, a space and the text."""
        rows: Iterator[Row] = iter(self.table.rows(Problems(heading="", limit=0)))
        chosen = rows if self.rows is None else _pick(rows, self.rows)
        for row in chosen:
            yield " ".join(row.values.get(name, "") for name in self.columns).strip()
        if self.further is not None:
            yield from self.further.texts()


def _pick(rows: Iterator[Row], indices: Sequence[int]) -> Iterator[Row]:
    start = 0
    for index in indices:
        yield next(islice(rows, index - start, None))
        start = index + 1


def read_collection(data: Data, *, what: str, encoding: str = "") -> TextCollection:
    """Return the documents or queries (`what`: "corpus" or "queries") of a file, or of rows or a mapping in memory.

    A mapping has a text, or BEIR's {"title": ..., "text": ...}, for each id. Raises UserError that lists ids that are
    missing or repeated, and if there are no rows.
    """
    table = _open(data, what, encoding)
    header = Header(table.columns, table.called)
    key, text = header.find("text key"), header.find("text", but=(header.find("text key"),)) or header.find("query")
    if missing := [name for name, column in (("_id", key), ("text", text)) if not column]:
        raise header.missing(
            " or ".join(missing), f": the {what} is a table with the columns _id and text, and title if there is one."
        )
    title = header.by_name.get("title") if what == "corpus" else None
    columns = [title, text] if title else [text]
    lines: dict[str, int] = {}
    problems = Problems(heading=f"The {what} cannot be used")
    for row in table.rows(problems):
        identifier = row.values.get(key, "").strip()
        if not identifier:
            problems.add(
                f"{table.place(row.line)}: the id ('{key}') is empty. Give each row its own.", code="unusable-row"
            )
        elif (first := lines.setdefault(identifier, row.line)) != row.line:
            problems.add(
                f"{table.place(row.line)}: the id '{one_line(identifier):.60}' is already in {table.unit} {first}. "
                "Remove one of the two.",
                code="duplicate-name",
            )
        elif nested := row.describe_nested(columns):
            problems.add(f"{table.place(row.line)}: {nested}.", code="unusable-row")
        elif what == "queries" and not row.values.get(text, "").strip():
            problems.add(f"{table.place(row.line)}: the query is empty. Write it, or remove it.", code="empty-text")
    problems.stop_if_any()
    if not lines:
        raise UserError(f"{table.called}: the {what} is empty.", code="no-data")
    return TextCollection(table=table, columns=columns, ids=[*lines])


def read_judgements(data: Data, *, encoding: str = "") -> Scores:
    """Return the judgements of a file: BEIR's three columns, TREC's four, or a table; or of rows or a mapping.

    Raises UserError that lists lines which cannot be read, and pairs that are judged twice with different relevance.
    """
    if isinstance(data, Mapping):
        return read_mapping(data, "judgements")
    path = Path(data) if isinstance(data, str | Path) else None
    problems = Problems(heading=f"{path or 'The judgements'} cannot be used")
    judgements: Scores = {}
    entries = _fields(path, encoding, problems) if path and plain_suffix(path) not in TABLES else None
    for location, query, document, value in entries or _cells(_open(data, "judgements", encoding), problems):
        number = _number(value)
        if number is None:
            problems.add(f"{location}: the relevance {value[:40]!r} is not a number.", code="unusable-row")
        elif judgements.setdefault(query, {}).setdefault(document, number) != number:
            problems.add(
                f"{location}: document '{document}' has the relevance {number:g} for query '{query}', but "
                f"{judgements[query][document]:g} above. Remove one of the two.",
                code="duplicate-name",
            )
    problems.stop_if_any()
    if not judgements:
        raise UserError(f"{path or 'The data'}: there are no judgements.", code="no-data")
    return judgements


def read_mapping(data: Mapping[Any, Any], kind: str) -> Scores:
    """Return judgements or a run that is in memory: a number for each document of each query, by their ids.

    Raises UserError that lists values of another kind, and for a mapping without any. `kind`: what the data are.

    >>> read_mapping({1: {7: 2}}, "judgements")
    {'1': {'7': 2.0}}
    """
    problems, scores = Problems(heading=f"The {kind} cannot be used"), dict[str, dict[str, float]]()
    for query, documents in data.items():
        if not isinstance(documents, Mapping):
            message = f"query {query!r:.60} must have a mapping of documents to numbers, not {documents!r:.60}."
            problems.add(message, code="unusable-row")
            continue
        row = scores.setdefault(str(query), {})
        for name, value in documents.items():
            number = _number(str(value))
            if number is None:
                message = f"query {query!r:.60}, document {name!r:.60}: {value!r:.60} is not a finite float32 number."
                problems.add(message, code="unusable-row")
            elif row.setdefault(str(name), number) != number:
                message = f"query {query!r:.60}, document {name!r:.60}: the id has two numbers. Keep one."
                problems.add(message, code="duplicate-name")
    problems.stop_if_any()
    if not scores:
        raise UserError(f"There is no query in the {kind}.", code="no-data")
    return scores


def read_run(path: Path, *, encoding: str = "") -> Scores:
    """Return the rankings of a TREC run, the scores of the documents by query; ranks are not read, as in trec_eval.

    Raises UserError that lists lines which cannot be read, and documents that a query has twice.
    """
    problems = Problems(heading=f"{path} cannot be used")
    run: Scores = {}
    for number, line in _lines(path, encoding):
        fields = line.split()
        score = _number(fields[4]) if len(fields) == 6 else None
        if score is None:
            problems.add(
                f"{path}, line {number}: {one_line(line.strip())[:40]!r} is not a line of a TREC run, which has six "
                "fields: query Q0 document rank score tag. The score is a finite float32 number.",
                code="wrong-format",
            )
        elif fields[2] in run.setdefault(fields[0], {}):
            problems.add(
                f"{path}, line {number}: query '{fields[0]}' has document '{fields[2]}' twice. Remove one of the two.",
                code="duplicate-name",
            )
        else:
            run[fields[0]][fields[2]] = score
    problems.stop_if_any()
    if not run:
        raise UserError(f"{path} is empty.", code="no-data")
    return run


def read_single_table(
    data: Data, *, encoding: str = "", labelled: bool = True
) -> tuple[TextCollection, TextCollection, Scores]:
    """Return corpus, queries and judgements of one table with a query, a document and a label in each row.

    Equal texts are one query, or one document; the ids count them from 1. Without `labelled` the table need not have
    labels: each document, which may be called positive, is then relevant.
    """
    table = _open(data, "data", encoding)
    header = Header(table.columns, table.called)
    query = header.find("query")
    document = header.find("candidate", but=(query,)) or ("" if labelled else header.find("positive", but=(query,)))
    label = header.find("relevance", but=(query, document))
    names = {"query": query, "document": document, "label": label}
    if missing := [name for name, column in names.items() if not column and (labelled or name != "label")]:
        raise header.missing(" or ".join(missing), ": the table needs the columns query, document and label.")
    problems = Problems(heading=f"{table.called} cannot be used")
    seen: dict[str, dict[str, tuple[str, int]]] = {"query": {}, "document": {}}
    judgements: Scores = {}
    for index, row in enumerate(table.rows(problems)):
        ids = []
        for role in ("query", "document"):
            text = row.values.get(names[role], "").strip()
            if nested := row.describe_nested([names[role]]):
                problems.add(f"{table.place(row.line)}: {nested}.", code="unusable-row")
            if not text:
                problems.add(f"{table.place(row.line)}: the {role} is empty.", code="empty-text")
            ids.append(seen[role].setdefault(text, (str(len(seen[role]) + 1), index))[0])
        value = _number(row.values.get(label, "")) if label else 1.0
        if value is None:
            problems.add(
                f"{table.place(row.line)}: the label {row.values.get(label, '')[:40]!r} is not a number.",
                code="unusable-row",
            )
        elif judgements.setdefault(ids[0], {}).setdefault(ids[1], value) != value:
            problems.add(
                f"{table.place(row.line)}: this query and document have another label above. Remove one of the two.",
                code="duplicate-name",
            )
    problems.stop_if_any()
    if not judgements:
        raise UserError(f"{table.called} has no rows.", code="no-data")
    corpus, queries = (
        TextCollection(
            table=table,
            columns=[names[role]],
            ids=[identifier for identifier, _ in seen[role].values()],
            rows=[index for _, index in seen[role].values()],
        )
        for role in ("document", "query")
    )
    return corpus, queries, judgements


def add_documents(
    corpus: TextCollection, documents: TextCollection, judgements: Scores
) -> tuple[TextCollection, Scores]:
    """Return a corpus with the documents of a single table, and the judgements by the ids that they have there.

    A document whose text is in the corpus has that one's id; another is put behind the corpus as table:1, table:2 ...
    """
    by_text = dict(zip(documents.texts(), documents.ids, strict=True))
    names: dict[str, str] = {}
    for identifier, text in zip(corpus.ids, corpus.texts(), strict=True):
        if (document := by_text.get(text)) is not None:
            names.setdefault(document, identifier)
    further = select(documents, {*documents.ids} - names.keys())
    names |= {identifier: f"table:{identifier}" for identifier in further.ids}
    further = replace(further, ids=[names[identifier] for identifier in further.ids])
    joined = replace(corpus, ids=[*corpus.ids, *further.ids], further=further)
    return joined, {
        query: {names[document]: value for document, value in row.items()} for query, row in judgements.items()
    }


def select(collection: TextCollection, ids: set[str]) -> TextCollection:
    """Return the part of a collection with these ids."""
    further = collection.further and select(collection.further, ids)
    indices = range(len(collection.ids)) if collection.rows is None else collection.rows
    count = len(collection.ids) - (len(collection.further.ids) if collection.further else 0)
    chosen = [(name, index) for name, index in zip(collection.ids[:count], indices) if name in ids]
    names = [name for name, _ in chosen] + [*(further.ids if further else ())]
    return replace(collection, ids=names, rows=[index for _, index in chosen], further=further)


def list_ids(ids: Sequence[str], noun: str, plural: str = "") -> str:
    """Return a count of ids with the first ones.

    >>> list_ids(["a", "b"], "query", "queries")
    '2 queries (a, b)'
    """
    more = ", ..." if len(ids) > LISTED else ""
    return f"{format_count(len(ids), noun, plural)} ({', '.join(one_line(name)[:60] for name in ids[:LISTED])}{more})"


def _open(data: Data, what: str, encoding: str) -> Table:
    if isinstance(data, str | Path):
        return open_table(Path(data), TableReading(encoding=encoding))
    if isinstance(data, Mapping) and not hasattr(data, "columns"):
        if not data:
            raise UserError(f"The {what} is empty.", code="no-data")
        data = [
            {"_id": str(name), **(value if isinstance(value, Mapping) else {"text": value})}
            for name, value in data.items()
        ]
    (origin,) = tables(data).values()
    assert isinstance(origin, Table)
    return origin


def _lines(path: Path, encoding: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not blank, with their numbers."""
    if not path.is_file():
        raise UserError(f"{path}: there is no such file.", code="missing-file")
    with open_text(path, encoding) as file:
        try:
            yield from ((number, line) for number, line in enumerate(file, 1) if line.strip())
        except UnicodeError as error:
            raise decoding_error(path, file.encoding) from error


def _fields(path: Path, encoding: str, problems: Problems) -> Iterator[tuple[str, str, str, str]]:
    """Yield place, query, document and relevance of a line of BEIR's three fields or TREC's four."""
    usual, first = headings("query key", "document key", "relevance"), True
    for number, line in _lines(path, encoding):
        fields = [part.strip() for part in line.split("\t")] if "\t" in line else line.split()
        named = first and any(field.lower() in usual for field in fields)
        is_header, first = named and _number(fields[-1]) is None, False
        if len(fields) not in (3, 4):
            problems.add(
                f"{path}, line {number}: {one_line(line.strip())[:40]!r} has {format_count(len(fields), 'field')}. "
                "Judgements have three (query, document, relevance), or TREC's four (query, 0, document, relevance).",
                code="wrong-format",
            )
        elif not is_header:
            yield f"{path}, line {number}", fields[0], fields[-2], fields[-1]


def _cells(table: Table, problems: Problems) -> Iterator[tuple[str, str, str, str]]:
    """Yield place, query, document and relevance of each row of a table."""
    header = Header(table.columns, table.called)
    names = [header.find(role) for role in ("query key", "document key", "relevance")]
    if not all(names):
        raise header.missing(
            "query-id, corpus-id or score", ": judgements are a table with the columns query-id, corpus-id and score."
        )
    for row in table.rows(problems):
        query, document, value = (row.values.get(name, "").strip() for name in names)
        yield table.place(row.line), query, document, value


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if abs(number) < BOUND else None
