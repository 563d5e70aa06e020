"""Sentence reordering: a text is cut into segments and shuffled; in which order are they (ERNIE 2.0)?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Example
from osbert.data.pack import Packer
from osbert.data.sequences import Sequences
from osbert.objectives import Objective
from osbert.terminal import format_count
from osbert.text.document import Document

if TYPE_CHECKING:
    from osbert.models.contract import Backbone, Head

MOST = 6
"""Most segments: 873 classes."""


@dataclass(frozen=True, kw_only=True)
class Reorder(Objective):
    """Cuts the text of each sequence into 1 to `parts` runs of whole sentences, or of words, and permutes them.

    Sun et al. 2020, section 3.2.2: the model chooses the permutation among all those of 1, 2, ... segments, which are
    sum(n!) classes. Nothing marks where a segment begins, and the cuts do not depend on the permutation, so the lengths
    of segments say nothing about the class.
    """

    title: ClassVar[str] = "Sentence reordering"

    parts: int = 3
    """Most segments of a text; texts with fewer sentences (or words) have fewer."""
    cuts: Literal["sentences", "words"] = "sentences"
    """Where segments begin. The paper does not say. A short sequence (data.length 64) often has one sentence only,
    which cannot be permuted; words cuts it before any word."""

    def __post_init__(self) -> None:
        """Raise ValueError for a number of parts out of range."""
        if not 2 <= self.parts <= MOST:
            raise ValueError(f"parts must be from 2 to {MOST}, not {self.parts}")

    def examples(self, documents: Sequence[Document], packer: Packer, rng: np.random.Generator) -> Sequences:
        """Return full spans whose segments are permuted, with their class."""
        sequences = packer.spans(documents, rng)
        bounds, total = sequences.documents.sentences, len(sequences.documents.ids)
        if self.cuts == "words":
            bounds = np.flatnonzero(np.append(sequences.documents.words, True))
        order = np.arange(total)
        labels = np.zeros(len(sequences), np.int64)
        for index, (first, size) in enumerate(zip(sequences.firsts.tolist(), sequences.sizes.tolist(), strict=True)):
            # Boundaries of sentences after the first piece of the text and before its end.
            low, high = np.searchsorted(bounds, [first + 1, first + size])
            inner = np.unique(bounds[low:high])  # the sentences that start inside of this text
            count = 1 + int(rng.integers(min(self.parts, len(inner) + 1)))
            cuts = np.sort(rng.choice(inner, count - 1, replace=False))
            runs = np.split(np.arange(first, first + size), cuts - first)
            shuffled = rng.permutation(count)
            order[first : first + size] = np.concatenate([runs[part] for part in shuffled])
            labels[index] = class_of(shuffled.tolist())
        # A segment is not a sentence of its text any more, so the objectives after this one see no bounds of sentences.
        moved = replace(
            sequences.documents,
            ids=sequences.documents.ids[order],
            words=sequences.documents.words[order],
            capitals=None,
        )
        return replace(sequences, documents=moved, labels={self.name: labels})

    def idle(self, sequences: Sequences) -> str:
        """Return a remark if most of the sequences have one segment, so that there is nothing to permute."""
        labels = sequences.labels.get(self.name, np.zeros(0, np.int64))
        single = int((labels == 0).sum())
        if 2 * single <= len(labels):
            return ""
        advice = f"Set {self.name}.cuts = words, or a longer data.length" if self.cuts == "sentences" else ""
        return (
            f"{self.name} has nothing to reorder in {single:,} of {len(labels):,} sequences: they are one segment. "
            f"{advice or 'Set a longer data.length'}."
        )

    def in_words(self, labels: NDArray[Any]) -> str:
        """Return the order of the segments, counted from 1."""
        return "segments " + " ".join(str(part + 1) for part in order_of(int(labels[0])))

    def rates(self, examples: Sequence[Example]) -> Iterator[tuple[str, str, str]]:
        """Yield the fraction of texts by their number of segments; a text of few sentences has few."""
        labels = [int(example.targets[self.name].labels[0]) for example in examples]
        counts = np.bincount([len(order_of(label)) for label in labels], minlength=self.parts + 1)
        for segments, count in enumerate(counts[1:].tolist(), start=1):
            expected = f"{1 / self.parts:.2%} of texts with {self.parts} sentences or more"
            yield f"texts of {format_count(segments, 'segment')}", f"{count / max(1, len(labels)):.2%}", expected

    def head(self, backbone: Backbone) -> Head:
        """Return a linear layer on the pooled state: one logit for each permutation."""
        from osbert.models.heads.predictions import SequenceHead

        classes = sum(math.factorial(count) for count in range(1, self.parts + 1))
        return SequenceHead(backbone, target=self.name, labels=classes, form="")


def class_of(order: Sequence[int]) -> int:
    """Return the class of a permutation of n segments: those of fewer segments come first, then lexicographic order.

    >>> [class_of(order) for order in ([0], [0, 1], [1, 0], [0, 1, 2], [2, 1, 0])]
    [0, 1, 2, 3, 8]
    """
    rank, left = 0, sorted(order)
    for part in order:
        position = left.index(part)
        rank += position * math.factorial(len(left) - 1)
        left.pop(position)
    return rank + sum(math.factorial(count) for count in range(1, len(order)))


def order_of(number: int) -> list[int]:
    """Return the permutation of a class, the inverse of `class_of`.

    >>> [order_of(number) for number in (0, 2, 8)]
    [[0], [1, 0], [2, 1, 0]]
    """
    count = 1
    while number >= math.factorial(count):
        number -= math.factorial(count)
        count += 1
    left, order = list(range(count)), []
    for size in range(count - 1, -1, -1):
        position, number = divmod(number, math.factorial(size))
        order.append(left.pop(position))
    return order
