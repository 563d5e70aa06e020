"""Files of plain input to tag: columns with one word per line, or tables or lines with one text per row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from osbert.errors import Problems
from osbert.reading.columns import ROLES, TextColumns, choose
from osbert.reading.data_file import DataFile
from osbert.reading.form import SUFFIXES, open_text, plain_suffix
from osbert.reading.table import Origin, Row, Table, TableReading, open_records, open_table, require_columns
from osbert.reading.tagged.files import TaggedFile, TagReading, read_tagged, to_sentence
from osbert.reading.tagged.rows import DOCUMENT, words_of
from osbert.reading.tagged.schemes import parse
from osbert.reading.tagged.word_rows import open_word_table
from osbert.tasks import Inputs, Record
from osbert.tasks.kinds.tag.passages import TaggedText, passages

SAMPLE = 1000
"""Lines that are read to detect whether a file has columns of words."""

RecordOf = Callable[[Sequence[str]], TaggedText]


def plain_inputs(origin: Origin, reading: TagReading, record_of: RecordOf, *, documents: bool) -> Inputs:
    """Return the rows of a file; `record_of` makes a passage of a text, `documents` is as for `passages`.

    Raises UserError if the file cannot be read.
    """
    table_settings = TableReading(encoding=reading.encoding, names=(reading.text,) if reading.text else ())
    file = DataFile(origin) if isinstance(origin, Path) else origin.file
    table = origin if isinstance(origin, Table) else open_records(file, table_settings)
    if table is None:
        if open_word_table(file, reading.encoding, labelled=False):
            return _columns(file.path, reading, documents=documents)
        if file.path.is_file() and (plain_suffix(file.path) not in SUFFIXES or _has_columns(file, reading)):
            return _columns(file.path, reading, documents=documents)
        table = open_table(file, table_settings)
    objects = table.format.objects or table.format.kind == "parquet"
    words = next((name for name in ROLES["words"] if name in table.columns and objects), "")
    return _objects(table, words, reading) if words else _texts(table, reading, record_of)


def _columns(path: Path, reading: TagReading, *, documents: bool) -> Inputs:
    def rows(problems: Problems) -> Iterator[tuple[Row, Record | None]]:
        tagged = read_tagged(path, reading, problems, labelled=False)
        for passage in passages(tagged, path, documents=documents):
            (text,) = passage.texts
            words = [text[start:end] for start, end in passage.words]
            yield Row(line=passage.line, values={"text": text}, source={"text": text, "words": words}), passage

    return Inputs(describe=f"{path}: columns, a word a line", columns=("text",), rows=rows, lines=True)


def _objects(table: Table, words: str, reading: TagReading) -> Inputs:
    def record(row: Row) -> Record | None:
        source = row.source or row.record
        if words not in source:
            raise ValueError(f"there is no '{words}' in it")
        sentence = words_of(source, words, "")
        if not sentence.words:
            return None
        sentence.lines = [row.line] * len(sentence.words)
        tagged_file = TaggedFile(
            name=table.called, form="", sentences=[to_sentence(sentence, reading)], unit=table.unit
        )
        return passages(tagged_file, table, documents=False)[0]

    return Inputs.of(table, record, f"words from '{words}'", lines=True)


def _texts(table: Table, reading: TagReading, record_of: RecordOf) -> Inputs:
    name = choose(
        require_columns(table).columns, user_columns=TextColumns(text=reading.text), path=table.called, labelled=False
    ).text

    def record(row: Row) -> Record | None:
        if name not in row.values:
            raise ValueError(f"there is no '{name}' in it")
        return record_of([row.values[name]]) if row.values[name].strip() else None

    return Inputs.of(table, record, f"text from '{name}'", lines=True)


def _has_columns(file: DataFile, reading: TagReading) -> bool:
    """Return whether a text file has one word per line: followed by its tag, or alone and with blank lines between."""
    if plain_suffix(file.path) not in (".txt", ".tsv", ".tab"):
        return False
    with open_text(file, reading.encoding) as text:
        try:
            lines = [line.rstrip() for line in islice(text, SAMPLE)]
        except UnicodeError:
            return False  # the reader of tables says where
    rows = [line.split("\t") if "\t" in line else line.split() for line in lines if line]
    if rows and rows[0][0] == DOCUMENT:
        return True
    widths = {len(cells) for cells in rows}
    if len(widths) != 1:
        return False
    return "" in lines[:-1] if widths == {1} else all(_is_tag(cells[-1]) for cells in rows)


def _is_tag(cell: str) -> bool:
    try:
        parse(cell)
    except ValueError:
        return False
    return True
