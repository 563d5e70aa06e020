"""Converts tags of words to spans and back: IOB1, BIO, BIOES and its variants, or one label per word; scores of spans.

Tags are read like in conlleval and seqeval, so that every sequence has a meaning: an entity begins at B and S, and at
any tag of a type of which no entity is open. Tags that violate their scheme are so repaired, and counted. Precision,
recall and F1, of all entities and of each type, are counted as they do it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

OUTSIDE = "O"

Scheme = Literal["bio", "bioes", "words"]
"""How labels encode entities: begin and inside (bio); also end and single word (bioes); or the type alone, one label
per word, as for parts of speech."""

FileScheme = Literal["iob1", "bio", "bioes", "words"]
"""Schemes of files. IOB1 writes B only if an entity follows another of the same type."""

_LETTERS = {"B": "B", "I": "I", "E": "E", "S": "S", "L": "E", "U": "S", "M": "I"}
"""The letters of BILOU and BMES are those of BIOES under other names."""
_UNTYPED = "entity"


class EntitySpan(NamedTuple):
    """An entity: the words (or characters) from `start` up to `end`, exclusive, and its `type`."""

    start: int
    end: int
    type: str


@dataclass(frozen=True, kw_only=True)
class Spelling:
    """The scheme of the tags of a file, and the number of tags that the scheme would write differently."""

    scheme: FileScheme
    illegal: int


@lru_cache(maxsize=1 << 12)
def parse(tag: str) -> tuple[str, str]:
    """Return "B", "I", "E" or "S" and the type of a tag, ("O", "") outside entities. Raises ValueError for others."""
    if tag == OUTSIDE:
        return OUTSIDE, ""
    letter, dash, type_ = tag.partition("-")
    if letter not in _LETTERS or (dash and not type_):
        raise ValueError(f"unknown tag {tag!r}")
    return _LETTERS[letter], type_ or _UNTYPED


def read_tags(tags: Sequence[str], *, words: bool = False) -> list[EntitySpan]:
    """Return the entities that tags (n,) encode. `words`: each tag is the label of its word, independent of others.

    Raises ValueError for a tag of no known scheme. In the example the last tag has no begin: an entity begins there, as
    in conlleval (Tjong Kim Sang and Buchholz 2000).

    >>> for span in read_tags(["B-PER", "I-PER", "O", "I-LOC"]):
    ...     print(span)
    EntitySpan(start=0, end=2, type='PER')
    EntitySpan(start=3, end=4, type='LOC')
    """
    if words:
        return [EntitySpan(index, index + 1, tag) for index, tag in enumerate(tags) if tag != OUTSIDE]
    spans: list[EntitySpan] = []
    before, before_type, start = OUTSIDE, "", 0
    # The appended O closes an entity at the end.
    for index, tag in enumerate([*tags, OUTSIDE]):
        letter, type_ = parse(tag)
        goes_on = before in "BI" and letter in "IE" and type_ == before_type
        if before != OUTSIDE and not goes_on:
            spans.append(EntitySpan(start, index, before_type))
        if not goes_on:
            start = index
        before, before_type = letter, type_
    return spans


def write_tags(spans: Iterable[EntitySpan], count: int, scheme: FileScheme) -> list[str]:
    """Return the tags (count,) that encode entities without overlap.

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
    """Return the scheme that would change the fewest tags of a file, BIO if several do.

    Raises ValueError for a tag of no known scheme.
    """
    letters = {parse(tag)[0] for sentence in sentences for tag in sentence}
    # E and S occur in BIOES only.
    schemes: tuple[FileScheme, ...] = ("bioes",) if letters & {"E", "S"} else ("bio", "iob1", "bioes")
    illegal = dict.fromkeys(schemes, 0)
    for sentence in sentences:
        if all(tag == OUTSIDE for tag in sentence):
            continue
        spans = read_tags(sentence)
        tag_parts = [parse(tag) for tag in sentence]
        for scheme in schemes:
            spelt = write_tags(spans, len(sentence), scheme)
            illegal[scheme] += sum(parse(tag) != part for tag, part in zip(spelt, tag_parts))
    scheme = min(schemes, key=illegal.__getitem__)
    return Spelling(scheme=scheme, illegal=illegal[scheme])


def label_names(types: Sequence[str], scheme: Scheme) -> tuple[str, ...]:
    """Return the possible labels of a word, "O" first, then by type."""
    letters = {"bio": ("B-", "I-"), "bioes": ("B-", "I-", "E-", "S-"), "words": ("",)}[scheme]
    return (OUTSIDE, *(f"{letter}{type_}" for type_ in types for letter in letters))


def follows(before: str, tag: str, scheme: Scheme) -> bool:
    """Return whether a label may follow another; "O" also stands for the begin and the end of a sentence."""
    if scheme == "words":
        return True
    (left, left_type), (right, right_type) = parse(before), parse(tag)
    inner = right in "IE"
    if scheme == "bio":
        return not inner or (left in "BI" and left_type == right_type)
    # BIOES: an open entity (B, I) must go on, and only an open one can.
    return inner == (left in "BI") and (not inner or left_type == right_type)


def scheme_of(labels: Sequence[str]) -> tuple[tuple[str, ...], Scheme, tuple[int, ...]]:
    """Return the types, the scheme of these labels, and the index in them of each label of the scheme.

    The indices are () if the labels are in the order of the scheme. Raises ValueError if no scheme has these labels.

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


def entity_scores(
    predicted: Sequence[Collection[EntitySpan]], true: Sequence[Collection[EntitySpan]], types: Sequence[str]
) -> dict[str, float]:
    """Return the scores of the entities of n texts; an entity is correct if its words and its type are.

    "precision", "recall" and "f1" are micro-averages over all entities; "macro_f1" is the mean of "f1/TYPE" over
    `types`. Each type also has "precision/TYPE" and "recall/TYPE". A type with neither true nor predicted entities has
    no scores and is not part of the mean. 0 / 0 is 0.
    """
    predicted_counts: Counter[str] = Counter()
    true_counts: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for spans, wanted in zip(predicted, true, strict=True):
        predicted_counts.update(span.type for span in spans)
        true_counts.update(span.type for span in wanted)
        right.update(span.type for span in set(spans) & set(wanted))
    met = [type_ for type_ in types if predicted_counts[type_] or true_counts[type_]]
    one_by_one = {type_: _scores(right[type_], predicted_counts[type_], true_counts[type_]) for type_ in met}
    precision, recall, f1 = _scores(right.total(), predicted_counts.total(), true_counts.total())
    macro = sum(scores[2] for scores in one_by_one.values()) / max(len(met), 1)
    named = {"precision": precision, "recall": recall, "f1": f1, "macro_f1": macro}
    for index, name in enumerate(("precision", "recall", "f1")):
        named |= {f"{name}/{type_}": scores[index] for type_, scores in one_by_one.items()}
    return named


def _scores(right: int, predicted_count: int, true_count: int) -> tuple[float, float, float]:
    """Return precision, recall and F1 from counts of entities."""
    return right / max(predicted_count, 1), right / max(true_count, 1), 2 * right / max(predicted_count + true_count, 1)
