"""Files with coreferent mentions: CoNLL-2012 columns, as in LitBank, and the table of GAP.

A document is divided into texts of whole sentences. Each link is a mention with the earlier mentions that it may refer
to; each mention is represented by its head word. https://conll.cemantix.org/2012/data.html,
https://github.com/google-research-datasets/gap-coreference
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from osbert.errors import Problems
from osbert.reading.form import decoding_error, open_text
from osbert.text.words import ranges

BEGIN = "#begin document"
GAP = ("Text", "Pronoun", "Pronoun-offset", "A", "A-offset", "A-coref", "B", "B-offset", "B-coref")
WORDS = 110
"""Most words of a text of several sentences, about 128 to 160 pieces."""
BEHIND_HEAD = frozenset(
    ["of", "who", "whom", "which", "that", "in", "on", "at", "with", "from", "to", "for", "by", ",", "and", "or"]
)
"""The head word of an English mention precedes the first of these words."""
PRONOUNS = frozenset(
    [
        "i",
        "me",
        "my",
        "mine",
        "myself",
        "you",
        "your",
        "yours",
        "yourself",
        "yourselves",
        "he",
        "him",
        "his",
        "himself",
        "she",
        "her",
        "hers",
        "herself",
        "it",
        "its",
        "itself",
        "we",
        "us",
        "our",
        "ours",
        "ourselves",
        "they",
        "them",
        "their",
        "theirs",
        "themselves",
        "thou",
        "thee",
        "thy",
        "thine",
        "who",
        "whom",
        "whose",
        "which",
        "that",
        "this",
    ]
)

MentionKind = Literal["pronouns", "names", "nouns", "ambiguous pronouns"]


@dataclass(frozen=True)
class Mention:
    """A mention: the words `start` to `end` (inclusive) and the number of its entity."""

    start: int
    end: int
    thing: int


@dataclass(frozen=True, kw_only=True)
class MentionLink:
    """A mention by its head word, the candidate head words in order, and the coreferent ones among them."""

    mention: int
    candidates: tuple[int, ...]
    right: frozenset[int]
    kind: MentionKind


@dataclass(frozen=True, kw_only=True)
class LinkedText:
    """A text with its links. `crossing`: mentions whose antecedents are all before the text."""

    words: tuple[str, ...]
    links: tuple[MentionLink, ...]
    path: Path
    line: int
    crossing: int = 0

    @property
    def place(self) -> str:
        """Return its file and line, for messages."""
        return f"{self.path}, line {self.line}"


@dataclass(frozen=True, kw_only=True)
class _Document:
    words: Sequence[str]
    sentences: Sequence[int]
    """The first word of each sentence."""
    lines: Sequence[int]
    mentions: Sequence[Mention]
    path: Path


def head_word(words: Sequence[str], start: int, end: int) -> int:
    """Return the index of the head word: the one before the first preposition, pronoun or conjunction.

    >>> head_word("the king of France".split(), 0, 3), head_word("Oliver Twist".split(), 0, 1)
    (1, 1)
    """
    return next((index - 1 for index in range(start + 1, end + 1) if words[index].lower() in BEHIND_HEAD), end)


def mention_kind(words: Sequence[str], mention: Mention) -> MentionKind:
    """Return whether a mention is a pronoun, a name (its head word begins with a capital letter) or another noun."""
    if mention.start == mention.end and words[mention.start].lower() in PRONOUNS:
        return "pronouns"
    return "names" if words[head_word(words, mention.start, mention.end)][:1].isupper() else "nouns"


def read_documents(path: Path, problems: Problems, *, encoding: str = "utf-8") -> Iterator[list[LinkedText]]:
    """Yield the texts of each document of a CoNLL-2012 file: column 4 has the words, the last column the mentions.

    A document with unbalanced brackets is skipped and added to `problems`.
    """
    rows: list[tuple[int, list[str]]] = []
    for number, line in _lines(path, encoding):
        if line.startswith("#"):
            if rows:
                yield from _document(rows, path, problems)
            rows = []
        else:
            rows.append((number, line.split("\t") if "\t" in line else line.split()))
    if rows:
        yield from _document(rows, path, problems)


def read_gap(path: Path, problems: Problems, *, encoding: str = "utf-8") -> Iterator[list[LinkedText]]:
    """Yield the text of each GAP row in which a name is coreferent, as a list, like the texts of a document."""
    lines = _lines(path, encoding)
    head = next(lines, (1, ""))[1].split("\t")
    for line, text in lines:
        row = dict(zip(head, text.split("\t")))
        if missing := [name for name in GAP if name not in row]:
            problems.add(f"{path}, line {line}: the row has no {missing[0]}.", code="unusable-row")
            continue
        try:
            linked_text = _gap_text(row, path, line)
        except ValueError as error:
            problems.add(f"{path}, line {line}: {error}.", code="unusable-row")
            continue
        yield [linked_text] if linked_text else []


def _lines(path: Path, encoding: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file with their numbers from 1."""
    try:
        with open_text(path, encoding) as text:
            yield from ((number, raw.rstrip("\r\n")) for number, raw in enumerate(text, 1))
    except UnicodeError as error:
        raise decoding_error(path, encoding) from error


def _gap_text(row: dict[str, str], path: Path, line: int) -> LinkedText | None:
    """Return the text of a row; None if neither name is coreferent. Raises ValueError for a wrong offset."""
    text, heads = row["Text"], {}
    spans = ranges(text, "words")
    for name in ("Pronoun", "A", "B"):
        offset = row[f"{name}-offset"]
        if not offset.isdecimal():
            raise ValueError(f"the offset of {name} must be a number, not {offset!r}")
        start = int(offset)
        end = start + len(row[name])
        if text[start:end] != row[name]:
            raise ValueError(f"{row[name]!r} is not at character {start} of the text")
        heads[name] = max(number for number, (begin, _) in enumerate(spans) if begin < end)
    right = frozenset(heads[name] for name in ("A", "B") if row[f"{name}-coref"].lower() == "true")
    if not right or heads["A"] == heads["B"]:
        return None
    link = MentionLink(
        mention=heads["Pronoun"],
        candidates=tuple(sorted((heads["A"], heads["B"]))),
        right=right,
        kind="ambiguous pronouns",
    )
    return LinkedText(words=tuple(text[start:end] for start, end in spans), links=(link,), path=path, line=line)


def _document(rows: Sequence[tuple[int, list[str]]], path: Path, problems: Problems) -> Iterator[list[LinkedText]]:
    words: list[str] = []
    lines, sentences, mentions = [], [0], []
    begun: dict[int, list[int]] = {}
    for number, cells in rows:
        if len(cells) < 5:
            if any(cells):
                where = f"{path}, line {number}"
                problems.add(
                    f"{where}: the row has {len(cells)} columns; CoNLL-2012 has at least 5.", code="unusable-row"
                )
                return
            if words and sentences[-1] != len(words):
                sentences.append(len(words))
            continue
        try:
            mentions += _close_mentions(cells[-1], len(words), begun)
        except (ValueError, IndexError):
            problems.add(
                f"{path}, line {number}: the brackets of the mentions {cells[-1]!r} do not match.", code="unusable-row"
            )
            return
        words.append(cells[3])
        lines.append(number)
    if any(begun.values()):
        problems.add(
            f"{path}, line {lines[-1]}: a mention is still open at the end of the document.", code="unusable-row"
        )
    elif words:
        # In text order; of mentions with the same start the outer one is first.
        mentions.sort(key=lambda mention: (mention.start, -mention.end))
        yield _texts(_Document(words=words, sentences=sentences, lines=lines, mentions=mentions, path=path))


def _close_mentions(cell: str, word: int, begun: dict[int, list[int]]) -> list[Mention]:
    """Return the mentions that end at a word, and record those that begin. Raises if one was not begun."""
    mentions = []
    for part in cell.split("|") if cell not in ("", "-", "_") else ():
        thing = int(part.strip("()"))
        if part.startswith("("):
            begun.setdefault(thing, []).append(word)
        if part.endswith(")"):
            mentions.append(Mention(begun[thing].pop() if thing in begun else -1, word, thing))
            if mentions[-1].start < 0:
                raise ValueError(part)
    return mentions


def _texts(document: _Document) -> list[LinkedText]:
    """Return a document as texts of whole sentences of at most WORDS words; a longer sentence is its own text."""
    ends = [*document.sentences[1:], len(document.words)]
    bounds, start, last = [], 0, 0
    for end in ends:
        if end - start > WORDS and last > start:
            bounds.append((start, last))
            start = last
        last = end
    bounds.append((start, last))
    sizes = Counter(mention.thing for mention in document.mentions)
    shared = [mention for mention in document.mentions if sizes[mention.thing] > 1]  # what is named once has no link
    return [_text(document, shared, *bound) for bound in bounds if bound[0] < bound[1]]


def _text(document: _Document, mentions: Iterable[Mention], start: int, end: int) -> LinkedText:
    links, crossing = [], 0
    before: dict[int, int] = {}  # head word -> its thing
    earlier = {mention.thing for mention in mentions if mention.start < start}
    for mention in mentions:
        # Mentions of other texts of the document.
        if not start <= mention.start <= mention.end < end:
            continue
        head = head_word(document.words, mention.start, mention.end)
        candidates = tuple(index - start for index in sorted(before) if index < head)
        right = frozenset(index - start for index in before if before[index] == mention.thing and index < head)
        if right:
            kind = mention_kind(document.words, mention)
            links.append(MentionLink(mention=head - start, candidates=candidates, right=right, kind=kind))
        elif mention.thing in earlier:
            crossing += 1
        before.setdefault(head, mention.thing)
    words = tuple(document.words[start:end])
    return LinkedText(
        words=words, links=tuple(links), path=document.path, line=document.lines[start], crossing=crossing
    )
