"""Pairs of texts: consecutive texts A and B of a document, and partners for A from elsewhere, as sequences.

Shared by the objectives on pairs. Each objective chooses and labels A and B itself.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from osbert.data.example import Booleans, Places
from osbert.data.pack import Packer, Sentences, trim_lengths, walk
from osbert.data.sequences import Sequences
from osbert.text.document import UNNUMBERED, Documents


def sentences_of(documents: Documents, packer: Packer) -> Sentences:
    """Return sentences of at most half a sequence, so that a pair has room for two."""
    return Sentences(documents, longest=packer.room(2) // 2)


def plan_pairs(sentences: Sentences, packer: Packer, rng: np.random.Generator) -> tuple[Places, Places, Places]:
    """Return the pair that would begin at each of s sentences, (s,) each: target length in pieces, `middles`, `lasts`.

    A is the sentences [k, middle), B is [middle, last): just enough sentences to reach the target length, split at a
    random one. B is empty if there is only one sentence.
    """
    firsts = np.arange(len(sentences))
    aims = packer.aims(len(sentences), packer.room(2), rng)
    lasts = sentences.reach(firsts, aims)
    inner = lasts - firsts - 1
    # With one sentence `inner` is 0, so middle = last and B is empty.
    middles = firsts + 1 + (rng.random(len(sentences)) * inner).astype(np.int64)
    return aims, middles, lasts


def consecutive(
    documents: Documents, packer: Packer, rng: np.random.Generator
) -> tuple[Documents, tuple[Places, Places, Places]]:
    """Return the non-empty documents, and the pieces where A starts, where B starts and where B ends, (E,) each.

    The pairs cover each document from start to end. If a pair has only one sentence (the last one, or one that exceeds
    a short target length), the sentence itself is split, at a word start if possible. If it is one piece, B is empty.
    """
    sentences = sentences_of(documents, packer)
    _, middles, lasts = plan_pairs(sentences, packer, rng)
    firsts = walk(lasts)
    bounds = sentences.bounds
    starts, parted, ends = (bounds[indices] for indices in (firsts, middles[firsts], lasts[firsts]))
    for index in np.flatnonzero(parted == ends).tolist():
        parted[index] = starts[index] + _cut(sentences.documents.words[starts[index] : ends[index]], rng)
    # A cut of 0 (a lone piece) would leave A empty instead of B.
    parted = np.where(parted > starts, parted, ends)
    return sentences.documents, (starts, parted, ends)


class Elsewhere:
    """Samples partners: sentences of another source. Parts of one source are never partners."""

    def __init__(self, sentences: Sentences) -> None:
        """Group the sentences by source."""
        numbers = sentences.documents.sources
        alone = numbers == UNNUMBERED
        # Documents without a source number are a source each.
        numbers = np.where(alone, numbers.max(initial=0) + np.cumsum(alone), numbers)
        self.sources = numbers[sentences.numbers]  # (s,)
        self.order = np.argsort(self.sources, kind="stable")
        self.sorted = self.sources[self.order]

    def partners(self, sentences: Places, rng: np.random.Generator) -> Places:
        """Return for each of K sentences a random one of another source (K,).

        All are equally likely ("a random sentence from the corpus", section 3.1), so a collection of titles
        does not fill half of all pairs.
        """
        sentence_sources = self.sources[sentences]
        before = np.searchsorted(self.sorted, sentence_sources)
        after = np.searchsorted(self.sorted, sentence_sources, side="right")
        # Sorted by source, the own source is the block [before, after): sample an index among the others and skip the
        # block.
        samples = rng.integers(len(self.order) - (after - before))
        return self.order[np.where(samples < before, samples, samples + after - before)]


def pairs(
    documents: Documents,
    texts: tuple[Places, Places, Places, Places],
    packer: Packer,
    rng: np.random.Generator,
    labels: Mapping[str, Places],
) -> Sequences:
    """Return pairs of texts. Pieces are cut one by one from a random end of the longer text (google-research/bert).

    `texts`: start and end of A, then start and end of B, in the pieces of the documents, (E,) each. `labels`: the label
    of each pair (E,), by objective.

    A is the first three pieces of a document and B its last two, but seven tokens have room for four pieces and three
    specials. A is longer and loses one piece, here the first.

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
    text_sizes = np.stack(trim_lengths(sizes[:, 0], sizes[:, 1], packer.room(2)), axis=1)
    surplus = sizes - text_sizes
    cut = surplus > 0
    # Each of the surplus pieces is cut at the front with probability 1/2, so the number there is binomial.
    firsts[cut] += rng.binomial(surplus[cut], 0.5)
    return Sequences(
        documents=documents,
        tokenizer=packer.tokenizer,
        firsts=firsts.ravel(),
        sizes=text_sizes.ravel(),
        segments=np.tile(np.array([0, packer.form.second_segment], np.int8), len(firsts)),
        counts=np.full(len(firsts), 2),
        truncated=surplus.sum(axis=1),
        labels=labels,
    )


def _cut(words: Booleans, rng: np.random.Generator) -> int:
    """Return where to split a text (n,): a random word start, or any piece if there is none; 0 if n = 1."""
    cuts = 1 + np.flatnonzero(words[1:])
    if not len(cuts):
        cuts = np.arange(1, len(words))
    return int(rng.choice(cuts)) if len(cuts) else 0
