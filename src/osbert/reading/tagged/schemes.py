"""Tags of words <-> spans of words, the one inner form: IOB1, BIO, BIOES and its other spellings, one label a word.

Tags are read as conlleval and seqeval read them, so that every sequence has a meaning: an entity begins at B and S, and
wherever no entity of that type is open. What is not spelt as its scheme demands is thereby repaired, and counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

OUTSIDE = "O"

Scheme = Literal["bio", "bioes", "words"]
"""How a word's label is made of an entity: its begin and inside; also its end and the single word; or the type alone,
one label a word, as for parts of speech."""

FileScheme = Literal["iob1", "bio", "bioes", "words"]
"""How a file may be spelt. IOB1 writes B only where an entity follows another of its type."""

_LETTERS = {"B": "B", "I": "I", "E": "E", "S": "S", "L": "E", "U": "S", "M": "I"}
"""BILOU's and BMES's letters are those of BIOES under other names."""
_UNTYPED = "entity"


class EntitySpan(NamedTuple):
    """An entity: the words (or characters) from `start` to before `end`, and its `type`."""

    start: int
    end: int
    type: str


@dataclass(frozen=True, kw_only=True)
class Spelling:
    """How the tags of a file are spelt: its `scheme`, and how many tags the scheme would spell otherwise."""

    scheme: FileScheme
    illegal: int


@lru_cache(maxsize=1 << 12)
def parse(tag: str) -> tuple[str, str]:
    """Return "B", "I", "E" or "S" and the type of a tag, ("O", "") outside entities.

    Raises ValueError when it is none of them.
    """
    if tag == OUTSIDE:
        return OUTSIDE, ""
    letter, dash, type_ = tag.partition("-")
    if letter not in _LETTERS or (dash and not type_):
        raise ValueError(f"unknown tag {tag!r}")
    return _LETTERS[letter], type_ or _UNTYPED


def read_tags(tags: Sequence[str], *, words: bool = False) -> list[EntitySpan]:
    """Return the entities that tags (n,) spell; `words`: each tag is the label of its word, whatever its neighbours.

    Raises ValueError at a tag of no known scheme.

    The last tag has no beginning: an entity begins there, as in conlleval (Tjong Kim Sang and Buchholz 2000).

    >>> for span in read_tags(["B-PER", "I-PER", "O", "I-LOC"]):
    ...     print(span)
    EntitySpan(start=0, end=2, type='PER')
    EntitySpan(start=3, end=4, type='LOC')
    """
    if words:
        return [EntitySpan(place, place + 1, tag) for place, tag in enumerate(tags) if tag != OUTSIDE]
    spans: list[EntitySpan] = []
    before, before_type, start = OUTSIDE, "", 0
    for place, tag in enumerate([*tags, OUTSIDE]):
        letter, type_ = parse(tag)
        goes_on = before in "BI" and letter in "IE" and type_ == before_type
        if before != OUTSIDE and not goes_on:
            spans.append(EntitySpan(start, place, before_type))
        if not goes_on:
            start = place
        before, before_type = letter, type_
    return spans


def write_tags(spans: Iterable[EntitySpan], count: int, scheme: FileScheme) -> list[str]:
    """Return the tags (count,) that spell entities which do not overlap.

    >>> entities = [EntitySpan(0, 2, "PER"), EntitySpan(3, 4, "LOC")]
    >>> write_tags(entities, 4, "bio"), write_tags(entities, 4, "bioes")
    (['B-PER', 'I-PER', 'O', 'B-LOC'], ['B-PER', 'E-PER', 'O', 'S-LOC'])
    """
    tags = [OUTSIDE] * count
    previous = EntitySpan(-1, -1, "")
    for span in sorted(spans):
        start, end, type_ = span
        if scheme == "words":
            tags[start:end] = [type_] * (end - start)
            continue
        tags[start:end] = [f"I-{type_}"] * (end - start)
        follows = previous.end == start and previous.type == type_
        if scheme != "iob1" or follows:
            tags[start] = f"B-{type_}"
        if scheme == "bioes":
            tags[end - 1] = f"E-{type_}" if end - start > 1 else f"S-{type_}"
        previous = span
    return tags


def recognise(sentences: Sequence[Sequence[str]]) -> Spelling:
    """Return how the tags of a whole file are spelt: as the scheme that would change the fewest of them.

    BIO where several do. Raises ValueError at a tag of no known scheme.
    """
    letters = {parse(tag)[0] for sentence in sentences for tag in sentence}
    schemes: tuple[FileScheme, ...] = ("bioes",) if letters & {"E", "S"} else ("bio", "iob1", "bioes")
    illegal = dict.fromkeys(schemes, 0)
    for sentence in sentences:
        if all(tag == OUTSIDE for tag in sentence):
            continue
        spans = read_tags(sentence)
        found = [parse(tag) for tag in sentence]
        for scheme in schemes:
            spelt = write_tags(spans, len(sentence), scheme)
            illegal[scheme] += sum(parse(tag) != one for tag, one in zip(spelt, found))
    scheme = min(schemes, key=illegal.__getitem__)
    return Spelling(scheme=scheme, illegal=illegal[scheme])


def label_names(types: Sequence[str], scheme: Scheme) -> tuple[str, ...]:
    """Return the labels that a word can have, "O" first and then type by type."""
    letters = {"bio": ("B-", "I-"), "bioes": ("B-", "I-", "E-", "S-"), "words": ("",)}[scheme]
    return (OUTSIDE, *(f"{letter}{type_}" for type_ in types for letter in letters))


def follows(before: str, tag: str, scheme: Scheme) -> bool:
    """Return whether a label may stand after another; "O" also stands for a sentence's beginning and its end."""
    if scheme == "words":
        return True
    (left, left_type), (right, right_type) = parse(before), parse(tag)
    inner = right in "IE"
    if scheme == "bio":
        return not inner or (left in "BI" and left_type == right_type)
    return inner == (left in "BI") and (not inner or left_type == right_type)


def scheme_of(labels: Sequence[str]) -> tuple[tuple[str, ...], Scheme, tuple[int, ...]]:
    """Return the types and the scheme that spell these labels, and the index of each of the scheme's labels in them.

    The order is () where the labels are in the scheme's own. Raises ValueError where no scheme spells them.

    >>> scheme_of(["O", "B-PER", "I-PER"])
    (('PER',), 'bio', ())
    >>> scheme_of(["B-PER", "I-PER", "O"])
    (('PER',), 'bio', (2, 0, 1))
    """
    schemes: tuple[Scheme, ...] = ("bio", "bioes", "words")
    for scheme in schemes:
        try:
            parts = [label if scheme == "words" else parse(label)[1] for label in labels if label != OUTSIDE]
        except ValueError:
            continue
        types = tuple(dict.fromkeys(parts))
        names = label_names(types, scheme)
        if sorted(names) == sorted(labels):
            order = tuple(labels.index(name) for name in names)
            return types, scheme, () if order == tuple(range(len(order))) else order
    raise ValueError(f"no scheme of tags has the labels {', '.join(labels[:6])} (is there an {OUTSIDE}?)")
