"""Pairs of texts: consecutive texts A and B of a document, and partners for A from elsewhere, as sequences.

The common part of objectives on pairs; each objective decides itself how A and B are chosen and labelled.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from osbert.data.example import Booleans
from osbert.data.pack import Packer, shares
from osbert.data.ragged import Places
from osbert.data.sentences import Sentences, walk
from osbert.data.sequences import Sequences
from osbert.text.document import UNNUMBERED, Documents


def sentences_of(documents: Documents, packer: Packer) -> Sentences:
    """Return sentences of at most half a sequence, so that two of them can be gathered and parted."""
    return Sentences(documents, longest=packer.room(2) // 2)


def gathered(sentences: Sentences, packer: Packer, rng: np.random.Generator) -> tuple[Places, Places, Places]:
    """Return the pair that would begin at each of s sentences, (s,) each: the pieces aimed at, `middles` and `lasts`.

    A is the sentences [it, middle), B is [middle, last): as many as just reach the aim, parted at a random one. B has
    none where there is but one sentence.
    """
    firsts = np.arange(len(sentences))
    aims = packer.aims(len(sentences), packer.room(2), rng)
    lasts = sentences.reach(firsts, aims)
    inner = lasts - firsts - 1
    middles = firsts + 1 + (rng.random(len(sentences)) * inner).astype(np.int64)
    return aims, middles, lasts


def consecutive(
    documents: Documents, packer: Packer, rng: np.random.Generator
) -> tuple[Documents, tuple[Places, Places, Places]]:
    """Return the documents that have text, and where A starts, where it ends and B starts, and where B ends, (E,) each.

    Pairs walk through each document in turn. A sentence that stands alone (a last one, or one past a short aim) is
    parted within, at a word where it can be; a lone piece cannot be parted, and its B is empty.
    """
    sentences = sentences_of(documents, packer)
    _, middles, lasts = gathered(sentences, packer, rng)
    firsts = walk(lasts)
    bounds = sentences.bounds
    starts, parted, ends = (bounds[places] for places in (firsts, middles[firsts], lasts[firsts]))
    for place in np.flatnonzero(parted == ends).tolist():
        parted[place] = starts[place] + _cut(sentences.documents.words[starts[place] : ends[place]], rng)
    parted = np.where(parted > starts, parted, ends)
    return sentences.documents, (starts, parted, ends)


class Elsewhere:
    """Partners: sentences of another source. Parts of one source are never partners."""

    def __init__(self, sentences: Sentences) -> None:
        """Group the sentences by source."""
        numbers = sentences.documents.sources
        alone = numbers == UNNUMBERED
        numbers = np.where(alone, numbers.max(initial=0) + np.cumsum(alone), numbers)
        self.sources = numbers[sentences.numbers]  # (s,)
        self.order = np.argsort(self.sources, kind="stable")
        self.sorted = self.sources[self.order]

    def partners(self, sentences: Places, rng: np.random.Generator) -> Places:
        """Return, for each of K sentences, a random one that is of another source.

        Each is as likely as any other ("a random sentence from the corpus", section 3.1), so a collection of titles
        does not fill half of all pairs.
        """
        own = self.sources[sentences]
        before, after = np.searchsorted(self.sorted, own), np.searchsorted(self.sorted, own, side="right")
        found = rng.integers(len(self.order) - (after - before))
        return self.order[np.where(found < before, found, found + after - before)]


def pairs(
    documents: Documents,
    texts: tuple[Places, Places, Places, Places],
    packer: Packer,
    rng: np.random.Generator,
    labels: Mapping[str, Places],
) -> Sequences:
    """Return pairs of texts, the longer text cut at front or back at random, token by token (google-research/bert).

    `texts`: where A starts and ends and where B starts and ends in the pieces of the documents, (E,) each. `labels`
    (E,): what they are, by objective.

    A is the first three pieces of a document and B its last two, but seven tokens hold four pieces beside three
    specials: A, the longer, loses one, here at its front.

    >>> from osbert.text.document import Document
    >>> from osbert.text.tokenizer import SPECIALS, Tokenizer
    >>> tokenizer = Tokenizer([*SPECIALS, "a", "b", "c", "d", "e", "f"])
    >>> bounds, words = np.array([0, 2, 4, 6]), np.ones(6, np.bool_)
    >>> document = Document(ids=tokenizer.encode("a b c d e f"), sentences=bounds, words=words)
    >>> texts = tuple(np.array([place]) for place in (0, 3, 4, 6))
    >>> packer = Packer(tokenizer=tokenizer, length=7)
    >>> (pair,) = pairs(Documents.of([document]), texts, packer, np.random.default_rng(0), {})
    >>> print(*tokenizer.tokens(pair.ids), pair.truncated)
    [CLS] b c [SEP] e f [SEP] 1
    """
    firsts = np.stack(texts[::2], axis=1)  # (E, 2)
    sizes = np.stack(texts[1::2], axis=1) - firsts
    kept = np.stack(shares(sizes[:, 0], sizes[:, 1], packer.room(2)), axis=1)
    surplus = sizes - kept
    cut = surplus > 0
    firsts[cut] += rng.binomial(surplus[cut], 0.5)
    return Sequences(
        documents=documents,
        tokenizer=packer.tokenizer,
        firsts=firsts.ravel(),
        sizes=kept.ravel(),
        segments=np.tile(np.array([0, packer.form.second_segment], np.int8), len(firsts)),
        counts=np.full(len(firsts), 2),
        truncated=surplus.sum(axis=1),
        labels=labels,
    )


def _cut(words: Booleans, rng: np.random.Generator) -> int:
    """Return where a text (n,) is parted: a random word start, or any piece where there is none; 0 for a lone piece."""
    places = 1 + np.flatnonzero(words[1:])
    if not len(places):
        places = np.arange(1, len(words))
    return int(rng.choice(places)) if len(places) else 0
