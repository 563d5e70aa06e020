"""Items that measure behaviour: minimal pairs, pairs of sentences that differ in a group, and facts. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

import numpy as np

from osbert.data.example import Booleans, Example
from osbert.data.pack import Packer, PieceRun

Pieces = tuple[int, ...]
"""The pieces of a sentence, without special ones."""


@dataclass(frozen=True, kw_only=True)
class MinimalPair:
    """An acceptable sentence and a minimally different one that is not (BLiMP, Warstadt et al. 2020).

    `paradigm`: the kind of difference. `phenomenon`: the group of paradigms that it belongs to.
    """

    paradigm: str
    phenomenon: str
    good: Pieces
    bad: Pieces


@dataclass(frozen=True, kw_only=True)
class ContrastPair:
    """A more and a less stereotyping sentence, which name different groups (Nangia et al. 2020).

    `kind`: the attribute in which the groups differ, such as age.
    """

    kind: str
    more: Pieces
    less: Pieces


@dataclass(frozen=True, kw_only=True)
class FactRelation:
    """A relation: patterns with a subject, and the mask at the position of the object (Elazar et al. 2021).

    `objects`: the pieces that can be answers. `counts`: the number of facts with each as the object. `facts`: for each
    fact the index of its object, and its sentence in each pattern.
    """

    name: str
    objects: Pieces
    counts: tuple[int, ...]
    facts: tuple[tuple[int, tuple[Pieces, ...]], ...]


def lay_out_pieces(pieces: Pieces, packer: Packer) -> Example:
    """Return a sentence as a sequence with the special pieces of the model."""
    return packer.single(*PieceRun.of(np.array(pieces, np.int32), packer.tokenizer))


def work(sentences: Iterable[Pieces], packer: Packer) -> int:
    """Return the number of tokens that a model reads if each piece of some sentences is masked in turn."""
    return sum(len(sentence) * (len(sentence) + packer.form.specials(1)) for sentence in sentences)


def find_shared_pieces(first_pieces: Sequence[int], second_pieces: Sequence[int]) -> tuple[Booleans, Booleans]:
    """Return which pieces of each of two sentences are part of the common subsequence of both.

    >>> [part.tolist() for part in find_shared_pieces([1, 7, 8, 3], [1, 9, 3])]
    [[True, False, False, True], [True, False, True]]
    """
    masks = np.zeros(len(first_pieces), bool), np.zeros(len(second_pieces), bool)
    for first, second, size in SequenceMatcher(None, first_pieces, second_pieces, autojunk=False).get_matching_blocks():
        masks[0][first : first + size] = True
        masks[1][second : second + size] = True
    return masks
