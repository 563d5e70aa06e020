"""A sketch of the texts that a run was trained on, by which an evaluation notices that it scores them again."""

from __future__ import annotations

import base64
import binascii
import hashlib
import heapq
from collections.abc import Iterable, Sequence

import numpy as np

from osbert.tasks import Record
from osbert.terminal import format_count

MOST = 1024
"""Most hashes of a sketch: the smallest ones. So it has a few kilobytes, and a part of other rows that also have small
hashes tells how many of them were seen (a bottom-k sketch, Cohen and Kaplan 2007)."""
TELLING = 0.02
"""Fraction of the rows, and of their characters, from which on repeated texts are reported."""


def plain_texts(record: Record) -> tuple[str, ...]:
    """Return a record's texts in their order, without regard to case and spaces."""
    return tuple(" ".join(text.split()).casefold() for text in record.texts)


def text_key(record: Record) -> tuple[str, ...]:
    """Return a key that is equal for records with the same `plain_texts` in any order."""
    return tuple(sorted(plain_texts(record)))


def are_swapped(first: Record, second: Record) -> bool:
    """Return whether two records with the same key have their texts in another order."""
    return plain_texts(first) != plain_texts(second)


def size_of(record: Record) -> int:
    """Return the number of characters of a record's texts."""
    return sum(map(len, record.texts))


def sketch(records: Iterable[Record]) -> str:
    """Return the smallest hashes of the records' texts, as text for a JSON file.

    >>> rows = [Record(number=number, texts=(text,)) for number, text in enumerate(["Good film", "bad", "good  film"])]
    >>> len(base64.b64decode(sketch(rows))), seen_texts(sketch(rows), rows[2:])[:10]
    (16, '1 of 1 row')
    """
    hashes = np.array(heapq.nsmallest(MOST, {_hash(text_key(record)) for record in records}), ">u8")
    return base64.b64encode(hashes.tobytes()).decode()


def seen_texts(known: str, records: Sequence[Record]) -> str:
    """Return a warning if the records repeat texts of a sketch, "" if they do not or it is unreadable."""
    try:
        hashes = np.frombuffer(base64.b64decode(known, validate=True), ">u8").tolist()
    except (binascii.Error, ValueError):
        return ""
    # Of larger hashes a full sketch does not say whether they were seen.
    bound = max(hashes) if len(hashes) >= MOST else 2**64
    among, candidates = {*hashes}, []
    for key in (text_key, plain_texts):  # earlier versions hashed the texts of pairs in their order
        compared = [(record, number) for record in records if (number := _hash(key(record))) <= bound]
        candidates.append((compared, [record for record, number in compared if number in among]))
    compared, repeated = max(candidates, key=lambda candidate: len(candidate[1]))
    characters = sum(size_of(record) for record, _ in compared)
    fraction = min(len(repeated) / max(len(compared), 1), sum(map(size_of, repeated)) / max(characters, 1))
    if fraction < TELLING:
        return ""
    count = f"{len(repeated):,} of {format_count(len(records), 'row')} have"
    if len(compared) < len(records):
        count = f"about {len(repeated) / len(compared):.0%} of the {len(records):,} rows (by {len(compared):,}) have"
    return (
        f"{count} the text of a row that the run was trained on, which flatters the scores: they say little about new "
        "texts. Give rows that it has not seen."
    )


def _hash(texts: Sequence[str]) -> int:
    content = "\0".join(texts).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big")
