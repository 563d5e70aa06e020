"""Reads words with tags: CoNLL columns, or JSON lines with a list of words and a list of tags."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from osbert.errors import Problems
from osbert.reading.tagged.schemes import parse

DOCUMENT = "-DOCSTART-"
"""The word that marks the beginning of a document."""
_SPACES = " \t\r\n"


@dataclass(kw_only=True)
class TaggedWords:
    """A sentence: its words (n,), `tags` (n,) or None, the line of each word, and the number of its document.

    `document` is None if the file does not mark documents.
    """

    words: list[str] = field(default_factory=list)
    tags: list[str] | None = None
    lines: list[int] = field(default_factory=list)
    document: int | None = None


def read_columns(
    lines: Iterable[str], *, name: str, column: int, labelled: bool, problems: Problems
) -> Iterator[TaggedWords]:
    """Yield the sentences of lines with a word and, in other columns, its tag, separated by tabs or else spaces.

    A blank line ends a sentence; a line with -DOCSTART- begins a document. `column`: that of the tags, from 1, negative
    from the end, 0 for the last. Without `labelled` it is optional. `name`: the file, for `problems`.
    """
    reader = _Columns(name=name, column=column, labelled=labelled, problems=problems)
    for number, line in enumerate(lines, 1):
        line = line.rstrip(_SPACES)
        cells = line.split("\t") if "\t" in line else [cell for cell in line.split(" ") if cell]
        if cells and not cells[0].startswith(DOCUMENT) and line:
            reader.add(number, cells)
            continue
        if reader.rows.words:
            yield reader.cut()
        if line:
            reader.document = 0 if reader.document is None else reader.document + 1
    if reader.rows.words:
        yield reader.cut()


class _Columns:
    """Collects the sentence that is being read."""

    def __init__(self, *, name: str, column: int, labelled: bool, problems: Problems) -> None:
        self.name, self.column, self.labelled, self.problems = name, column, labelled, problems
        self.width = self.first = 0
        self.document: int | None = None
        self.rows = TaggedWords()

    def add(self, number: int, cells: Sequence[str]) -> None:
        if not self.width:
            self._begin(number, cells)
        if len(cells) != self.width:
            self.problems.add(
                f"{self.name}, line {number}: {len(cells)} columns, but line {self.first} has {self.width}. "
                "Is a tag missing, or the blank line that ends a sentence?",
                code="unusable-row",
            )
        elif not cells[0].strip():
            self.problems.add(
                f"{self.name}, line {number}: the word is empty. Write one, or remove the line.", code="empty-text"
            )
        else:
            self.rows.words.append(cells[0])
            self.rows.lines.append(number)
            if self.tag_index is not None:
                self.rows.tags = self.rows.tags or []
                self.rows.tags.append(cells[self.tag_index].strip())

    def cut(self) -> TaggedWords:
        rows, self.rows = self.rows, TaggedWords()
        rows.document = self.document
        return rows

    def _begin(self, number: int, cells: Sequence[str]) -> None:
        """Determine the column of the tags from the first line with a word."""
        self.width, self.first = len(cells), number
        wanted = self.column or -1
        index = wanted - 1 if wanted > 0 else self.width + wanted
        self.tag_index = index if 0 < index < self.width else None
        if self.tag_index is None and self.labelled:
            reason = f"--column {self.column} is none of them" if self.column else "there are none"
            self.problems.add(
                f"{self.name}, line {number}: {self.width} columns, the first of which is the word; of tags {reason}. "
                "A line holds a word and its tag, with a tab or spaces between.",
                code="unusable-row",
            )


def words_of(value: Mapping[str, Any], words: str, tags: str) -> TaggedWords:
    """Return the sentence of a JSON object by the names of its words and its tags ("" for none).

    Raises ValueError with the reason if these are not lists of the same length.
    """
    rows = TaggedWords(words=_texts(value[words], words))
    if tags:
        rows.tags = _texts(value[tags], tags)
        if len(rows.tags) != len(rows.words):
            mismatch = f"{len(rows.words):,} in '{words}', but {len(rows.tags):,} in '{tags}'"
            raise ValueError(f"{mismatch}: write a tag for each word, O where there is none")
    if any(not word.strip() for word in rows.words):
        raise ValueError("one of the words is empty. Write it, or remove it and its tag")
    return rows


def check_tags(sentences: Iterable[TaggedWords], *, locate: Callable[[int], str], problems: Problems) -> None:
    """Add each tag of no known scheme to `problems`, once, with the `tag_index` of its first line."""
    seen: set[str] = set()
    for sentence in sentences:
        for tag, line in zip(sentence.tags or (), sentence.lines):
            if tag in seen:
                continue
            seen.add(tag)
            try:
                parse(tag)
            except ValueError as error:
                problems.add(
                    f"{locate(line)}: {error}: a tag is O, or begins with B-, I-, E- or S- (or BILOU's and BMES's "
                    "L-, U-, M-). Where tags are labels of single words, such as parts of speech, give --scheme words.",
                    code="unusable-row",
                )


def _texts(value: Any, name: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise ValueError(
            f"'{name}' is not a list of texts: {str(value)[:40]}. Write words and tags as texts, tags by name"
        )
    return value
