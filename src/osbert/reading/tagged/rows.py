"""Reads words with tags, or a text with marked entities: CoNLL columns, or JSON lines.

JSON lines have a list of words and a list of tags, or entities marked by characters: {"text", "entities": [{"start",
"end", "label"}]}, also [start, end, label] and other usual names; and that of CLUENER, {"text", "label": {type:
{mention: [[start, last], ...]}}}, where `last` is the last character.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any
from unicodedata import normalize

from osbert.errors import Problems
from osbert.reading.tagged.schemes import EntitySpan, parse
from osbert.text.words import Range

DOCUMENT = "-DOCSTART-"
"""The word that marks the beginning of a document."""
_SPACES = " \t\r\n"
_COMMENTS = ("# id ", "# sent_id ", "# text ", "# newdoc", "#\thttp")
"""Beginnings of comments above a sentence, in MultiCoNER, Universal NER and GermEval."""


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
    sentence, document = TaggedWords(), None
    width, first, tag_index = 0, 0, None
    for number, line in enumerate(chain(lines, [""]), 1):  # a blank line ends the last sentence, too
        line = line.rstrip(_SPACES)
        cells = line.split("\t") if "\t" in line else [*filter(None, line.split(" "))]
        if not cells or cells[0].startswith(DOCUMENT):
            if sentence.words:
                sentence.document = document
                yield sentence
                sentence = TaggedWords()
            if line:
                document = 0 if document is None else document + 1
            continue
        if not sentence.words and line.startswith(_COMMENTS):
            continue
        if not width:
            width, first = len(cells), number
            tag_index = column - 1 if column > 0 else width + (column or -1)
            if not 0 < tag_index < width:  # the word is first, its tag behind it
                tag_index = None
            if tag_index is None and labelled:
                reason = f"--column {column} of {width}" if column else "one column"
                problems.add(
                    f"{name}, line {number}: no column of tags behind the word ({reason}). Write a word and its tag in "
                    "each line, separated by a tab or spaces.",
                    code="unusable-row",
                )
        if len(cells) != width:
            problems.add(
                f"{name}, line {number}: {len(cells)} columns, but line {first} has {width}. Is a tag missing, or the "
                "blank line that ends a sentence?",
                code="unusable-row",
            )
        elif not cells[0].strip():
            problems.add(f"{name}, line {number}: the word is empty. Write one, or remove the line.", code="empty-text")
        else:
            sentence.words.append(cells[0])
            sentence.lines.append(number)
            if tag_index is not None:
                sentence.tags = sentence.tags or []
                sentence.tags.append(cells[tag_index].strip())


def are_numbered(sentences: Iterable[TaggedWords]) -> bool:
    """Return whether the words of all sentences are 0, 1, 2, ... or 1, 2, 3, ...: a column of numbers, and no words."""
    several = [row.words for row in sentences if len(row.words) > 1]
    return bool(several) and all(
        words == [str(number + (words[0] == "1")) for number in range(len(words))] for words in several
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


_TYPES = ("label", "type", "entity", "tag", "entity_group")


def marks(value: Any, text: str) -> list[EntitySpan]:
    """Return the entities (spans of characters) that a JSON value marks in `text`, in order.

    Raises ValueError with the reason if one has an unknown form, is outside the text, or comes with another text.
    """
    spans = sorted(_mentions(value) if isinstance(value, Mapping) else _list_spans(value))
    for (start, end, type_), mention in spans:
        if not 0 <= start < end <= len(text):
            raise ValueError(f"the {type_} from {start} to {end} is outside the text of {len(text)} characters")
        require_mention(text[start:end], mention, f"the {type_} from {start} to {end}")
    return [span for span, _ in spans]


def require_mention(marked: str, mention: str, name: str) -> None:
    """Raise ValueError if a mark's own text, "" for none, is not the text marked by its positions.

    Spaces, and the Unicode normal forms of its characters, may differ.
    """
    words, mentioned = (normalize("NFC", text).replace("\\n", " ").split() for text in (marked, mention))
    if mention and words != mentioned:
        raise ValueError(f"{name} is {mention[:40]!r}, but the text has {marked[:40]!r} there. Mend its positions")


def apart(spans: Sequence[EntitySpan]) -> list[EntitySpan]:
    """Return the spans in order, without those that overlap a longer one (or an earlier one of equal length)."""
    disjoint: list[EntitySpan] = []
    for span in sorted(spans, key=lambda span: (span.start - span.end, span)):
        if all(span.end <= other.start or other.end <= span.start for other in disjoint):
            disjoint.append(span)
    return sorted(disjoint)


def cover_words(span: EntitySpan, words: Sequence[Range]) -> EntitySpan:
    """Return the span of the words that a span of characters touches; empty if there are none."""
    first = bisect_right(words, span.start, key=lambda word: word[1])
    end = bisect_left(words, span.end, key=lambda word: word[0])
    return EntitySpan(first, max(first, end), span.type)


def _mentions(value: Mapping[str, Any]) -> Iterator[tuple[EntitySpan, str]]:
    """Yield CLUENER's entities with their texts."""
    for type_, mentions in value.items():
        if not isinstance(mentions, Mapping):
            raise ValueError(f"the {type_} is not of the form {{mention: [[start, last], ...]}}")
        for mention, ranges in mentions.items():
            for bounds in ranges:
                start, last = _numbers(bounds[:2], bounds)
                yield EntitySpan(start, last + 1, type_), mention


def _list_spans(value: Any) -> Iterator[tuple[EntitySpan, str]]:
    """Yield the entities of a list, each with the text that it comes with, "" for none."""
    if not isinstance(value, list):
        raise ValueError(f"the entities are not a list: {str(value)[:40]}")
    for item in value:
        mention = item.get("text") if isinstance(item, Mapping) else ""
        if isinstance(item, Mapping):
            type_ = next((item[name] for name in _TYPES if name in item), None)
            bounds = [item.get("start"), item.get("end")]
        elif isinstance(item, list) and len(item) == 3:
            *bounds, type_ = item
        else:
            raise ValueError(f"no entity with start, end and label: {str(item)[:60]}")
        if not isinstance(type_, str) or not type_.strip():
            raise ValueError(f"an entity without a label: {str(item)[:60]}")
        yield EntitySpan(*_numbers(bounds, item), type_), mention if isinstance(mention, str) else ""


def _numbers(bounds: Sequence[Any], item: Any) -> tuple[int, int]:
    if len(bounds) != 2 or not all(type(number) is int for number in bounds):
        raise ValueError(f"start and end are not whole numbers: {str(item)[:60]}")
    return bounds[0], bounds[1]
