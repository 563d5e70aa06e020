"""Files of tagged text: CoNLL columns or JSON lines, read whole, so that the tagging scheme can be detected."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from json import JSONDecodeError
from pathlib import Path
from typing import Any

from osbert.errors import Problems, UserError, not_json
from osbert.guarded import parse_json
from osbert.reading.columns import ROLES
from osbert.reading.data_file import DataFile
from osbert.reading.form import JSON_ARRAY, JSON_SUFFIXES, decoding_error, open_text, plain_suffix
from osbert.reading.splits import USUAL, find_words
from osbert.reading.table import Origin, Table, TableReading, is_whole, open_records
from osbert.reading.tagged.rows import (
    TaggedWords,
    apart,
    are_numbered,
    check_tags,
    cover_words,
    marks,
    read_columns,
    words_of,
)
from osbert.reading.tagged.schemes import EntitySpan, Spelling, read_tags, recognise
from osbert.reading.tagged.word_rows import find_word_columns, open_word_table, read_word_rows
from osbert.terminal import one_line
from osbert.text.words import Range, Split, ranges

_WORDS, _TAGS, _ENTITIES, _TEXTS = (ROLES[role] for role in ("words", "tags", "entities", "tagged text"))
CALLED = {**USUAL, "dev": (*USUAL["dev"], "testa"), "test": (*USUAL["test"], "testb")}
"""Words in file names that identify the splits; eng.testa and eng.testb are those of CoNLL-2003."""


@dataclass(frozen=True, kw_only=True)
class TagReading:
    """Settings of a task for its files. `spell`: maps a cell to its word."""

    column: int = 0
    """Column of the tags, from 1; 0: the last one."""
    text: str = ""
    """Field of the text in JSON lines; "": one of the usual names."""
    encoding: str = ""
    split: Split = "words"
    plain: bool = False
    """Whether each tag is simply the label of its word, without a scheme."""
    nested: bool = False
    """Whether entities may overlap each other; otherwise the longest of those that do stays."""
    spell: Callable[[str], str] = str


@dataclass(frozen=True, kw_only=True)
class Sentence:
    """A text, the ranges of its words, and its entities as spans of words, None if the file has no tags.

    `line`: its first line. `document`: the number of its document, None if the file does not mark documents.
    """

    text: str
    words: tuple[Range, ...]
    spans: tuple[EntitySpan, ...] | None
    line: int
    document: int | None = None


@dataclass(kw_only=True)
class TaggedFile:
    """The content of a file: its sentences and its detected form.

    `widened`, `dropped`: lines of entities that end within a word, or overlap another. `unlabelled`: lines of texts
    that an annotation tool marks as unlabelled, skipped or rejected. `unit`: the name of a line in messages.
    """

    name: str
    form: str
    sentences: list[Sentence] = field(default_factory=list)
    spelling: Spelling | None = None
    widened: list[int] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    unlabelled: list[int] = field(default_factory=list)
    unit: str = "line"

    def describe(self) -> str:
        """Describe the detected form."""
        words = sum(len(sentence.words) for sentence in self.sentences)
        description = f"{self.name}: {self.form}; {len(self.sentences):,} sentences, {words:,} words"
        documents = {sentence.document for sentence in self.sentences} - {None}
        if documents:
            description += f" in {len(documents):,} documents"
        if self.spelling:
            description += f"; tags in {self.spelling.scheme.upper()}"
            if self.spelling.illegal:
                description += f", {self.spelling.illegal:,} of them not as it spells them: read as conlleval does"
        notes = (
            (self.widened, "entities end within a word and are extended to all of it"),
            (self.dropped, "overlap a longer one and are skipped"),
            (self.unlabelled, "texts are not labelled and are skipped"),
        )
        for lines, what in notes:
            description += f"; {len(lines):,} {what} (first: {self.unit} {lines[0]})" if lines else ""
        return description


def find_tagged(folder: Path) -> dict[str, Path]:
    """Return the file of each split of a folder, by train, dev (valid, testa) or test (testb) in its name.

    A single file is {"all": file}, and so is a folder with files of brat. Raises UserError if there is no file, or if a
    split has two.
    """
    return find_words(folder, CALLED, whole=is_whole)


def read_tagged(origin: Origin, reading: TagReading, problems: Problems, *, labelled: bool) -> TaggedFile:
    """Read a file or rows in memory; bad rows are skipped and added to `problems`.

    Without `labelled`, tags are optional. Raises UserError if the file does not exist, is damaged, or is not text in
    its encoding.
    """
    file = DataFile(origin) if isinstance(origin, Path) else origin.file
    table = origin if isinstance(origin, Table) else open_records(file, TableReading(encoding=reading.encoding))
    table = table or open_word_table(file, reading.encoding, column=reading.column, labelled=labelled)
    if table:
        return _Reader(table.called, table.place, reading, problems, labelled=labelled).table(table)
    path = file.path
    if not path.is_file():
        raise UserError(f"{path}: no such file.", code="missing-file")
    reader = _Reader(str(path), lambda line: f"{path}, line {line}", reading, problems, labelled=labelled)
    with open_text(file, reading.encoding) as lines:
        try:
            return reader.objects(lines) if plain_suffix(path) in JSON_SUFFIXES else reader.columns(lines)
        except UnicodeError as error:
            raise decoding_error(path, lines.encoding) from error


def to_sentence(rows: TaggedWords, reading: TagReading) -> Sentence:
    """Return tagged words as a text: separated by spaces, or for characters side by side."""
    words = [reading.spell(word) for word in rows.words]
    gap = "" if reading.split == "characters" else " "
    starts = accumulate((len(word) + len(gap) for word in words), initial=0)
    return Sentence(
        text=gap.join(words),
        words=tuple((start, start + len(word)) for start, word in zip(starts, words)),
        spans=None if rows.tags is None else tuple(read_tags(rows.tags, words=reading.plain)),
        line=rows.lines[0],
        document=rows.document,
    )


class _Reader:
    """Reads one file, or rows in memory. `locate(line)`: the place of a line for messages."""

    def __init__(
        self, name: str, locate: Callable[[int], str], reading: TagReading, problems: Problems, *, labelled: bool
    ) -> None:
        self.name, self.locate, self.reading, self.problems, self.labelled = name, locate, reading, problems, labelled
        self.tagged_file = TaggedFile(name=name, form="JSON lines")
        self.rows: list[TaggedWords] = []

    def columns(self, lines: Iterable[str]) -> TaggedFile:
        self.tagged_file.form = "columns"
        rows = read_columns(
            lines,
            name=self.name,
            column=self.reading.column,
            labelled=self.labelled,
            problems=self.problems,
        )
        sentences = list(rows)
        if are_numbered(sentences):
            self.problems.add(
                f"{self.name}: its first column numbers the words. Leave it out: cut -f2- < FILE > words.conll",
                code="unusable-row",
            )
        self.tagged_file.sentences = self._sentences(sentences)
        return self.tagged_file

    def objects(self, lines: Iterable[str]) -> TaggedFile:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                value = parse_json(line)
                if isinstance(value, dict):
                    self._object(value, number)
                else:
                    self.problems.add(
                        f"{self.locate(number)}: {line.strip()[:40]!r} is not an object {{...}}; write one a line.",
                        code="wrong-format",
                    )
            except JSONDecodeError as error:
                self.problems.add(
                    f"{self.locate(number)}: not JSON ({not_json(error)} at character {error.colno}).",
                    code="wrong-format",
                )
            except ValueError as error:
                self.problems.add(f"{self.locate(number)}: {one_line(str(error))}.", code="unusable-row")
        return self._finish()

    def table(self, table: Table) -> TaggedFile:
        self.tagged_file.form, _, _ = table.format.describe().partition("; columns: ")
        self.tagged_file.unit = table.unit
        columns = find_word_columns(table.columns, column=self.reading.column)
        first_row = next(table.rows(Problems(heading="")), None) if columns else None
        if columns and (columns.tag or not self.labelled) and first_row and columns.word not in first_row.nested:
            self.tagged_file.form += f", {columns.describe()}"
            self.rows += read_word_rows(table, columns, self.problems)
            return self._finish()
        by_tool = table.format.kind == "records" and table.format.title != JSON_ARRAY
        for row in table.rows(self.problems):
            if self.labelled and by_tool and row.source.get("entities", ()) is None:
                self.tagged_file.unlabelled.append(row.line)
                continue
            try:
                self._object(row.source or row.record, row.line)
            except ValueError as error:
                self.problems.add(f"{self.locate(row.line)}: {one_line(str(error))}.", code="unusable-row")
        return self._finish()

    def _object(self, value: Mapping[str, Any], number: int) -> None:
        """Add an object with words and tags, or with a text and its entities."""
        if words := _first_name(value, _WORDS):
            tags = _first_name([name for name, cell in value.items() if cell is not None], _TAGS)
            if self.labelled and not tags:
                raise ValueError(f"it has {words}, but no tags ({', '.join(_TAGS)})")
            row = words_of(value, words, tags)
            if not row.words:
                raise ValueError("the text is empty. Remove the line")
            row.lines = [number] * len(row.words)
            self.rows.append(row)
        else:
            self.tagged_file.sentences.append(self._read_entities(value, number))

    def _finish(self) -> TaggedFile:
        marked, words = self.tagged_file.sentences, self._sentences(self.rows)
        # Each of the two is in the order of the rows, which need not be that of their numbers (a DataFrame's index).
        self.tagged_file.sentences = (
            sorted(marked + words, key=lambda sentence: sentence.line) if marked and words else marked + words
        )
        return self.tagged_file

    def _read_entities(self, value: Mapping[str, Any], line: int) -> Sentence:
        texts = (self.reading.text,) if self.reading.text else _TEXTS
        name, label = _first_name(value, texts), _first_name(value, _ENTITIES)
        if not name or not isinstance(value[name], str):
            raise ValueError(f"it has neither '{texts[0]}' nor '{_WORDS[0]}', only {', '.join(value) or 'nothing'}")
        if self.labelled and not label:
            raise ValueError(f"it has a text, but no entities ({', '.join(_ENTITIES)}; [] for none)")
        if self.labelled and value[label] is None:
            raise ValueError(f"'{label}' is null: the text is not labelled. Mark its entities, [] for none")
        text = value[name]
        words = ranges(text, self.reading.split)
        if not words:
            raise ValueError("the text is empty. Remove the line")
        spans = None
        if label and value[label] is not None:
            spans = tuple(self._cover_words(marks(value[label], text), words, line))
        return Sentence(text=text, words=tuple(words), spans=spans, line=line)

    def _cover_words(self, marked: list[EntitySpan], words: list[Range], line: int) -> Iterator[EntitySpan]:
        wanted = []
        for mark in marked:
            span = cover_words(mark, words)
            if span.start == span.end:
                raise ValueError(f"the {mark.type} from {mark.start} to {mark.end} contains no word")
            if mark.start > words[span.start][0] or mark.end < words[span.end - 1][1]:
                self.tagged_file.widened.append(line)
            wanted.append(span)
        spans = wanted if self.reading.nested else apart(wanted)
        self.tagged_file.dropped += [line] * (len(wanted) - len(spans))
        yield from spans

    def _sentences(self, rows: list[TaggedWords]) -> list[Sentence]:
        """Return the sentences of tagged words; the scheme is detected from all of them."""
        before = self.problems.count
        if not self.reading.plain:
            # Where no labels are needed, what stands in their place may be anything.
            noted = self.problems if self.labelled else Problems(heading="")
            check_tags(rows, locate=self.locate, problems=noted)
            if noted.count > (before if self.labelled else 0):
                for sentence in rows:
                    sentence.tags = None
            elif any(sentence.tags for sentence in rows):
                self.tagged_file.spelling = recognise([sentence.tags or () for sentence in rows])
        return [to_sentence(sentence, self.reading) for sentence in rows]


def _first_name(value: Collection[str], names: Iterable[str]) -> str:
    """Return the first of some names that an object has, "" if none."""
    return next((name for name in names if name in value), "")
