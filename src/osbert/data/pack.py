"""Packs pieces into sequences: special tokens, truncation to the longest length, and spans of consecutive sentences.

BERT's sequence is [CLS] a [SEP] or [CLS] a [SEP] b [SEP]; a has segment 0 with its specials, b has segment 1 (section
3.1). The tokenizer's Form defines the special tokens.

Sequences consist of whole sentences, and each begins where the one before it ends. To vectorise that, the sequence
that would begin at every sentence is computed at once; then `walk` picks those that follow one another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from osbert.data.example import Booleans, Example, Integers, Places
from osbert.data.sequences import Sequences
from osbert.text.document import Document, Documents
from osbert.text.file_tokenizer import AnyTokenizer
from osbert.text.tokenizer import Form


class PieceRun(NamedTuple):
    """A run of consecutive pieces of a document: `ids` (n,) and `words` (n,)."""

    ids: Integers
    words: Booleans

    @classmethod
    def of(cls, ids: Integers, tokenizer: AnyTokenizer) -> PieceRun:
        """Return pieces with their word starts, as the tokenizer knows them from the ids."""
        return cls(ids, ~tokenizer.continuation[ids])


@dataclass(frozen=True, kw_only=True)
class Packer:
    """Lays out pieces as sequences of at most `length` tokens, specials included."""

    tokenizer: AnyTokenizer
    length: int = 128
    """Most tokens in a sequence, specials included."""
    short: float = 0.1
    """Fraction of pretraining sequences with a random shorter target length."""
    cross_documents: bool = False
    """Whether a span continues in the next document, after the piece between two texts ([SEP])."""

    def __post_init__(self) -> None:
        if self.room(2) < 2:
            raise ValueError(f"length must be at least {self.form.specials(2) + 2}, not {self.length}")
        if not 0 <= self.short <= 1:
            raise ValueError(f"short must be a fraction from 0 to 1, not {self.short}")

    @property
    def form(self) -> Form:
        """Return the special pieces of sequences, which the tokenizer defines."""
        return self.tokenizer.form

    def room(self, texts: int) -> int:
        """Return the most pieces in a sequence of one text or two, without specials."""
        return self.length - self.form.specials(texts)

    def run(self, text: str) -> PieceRun:
        """Tokenize a text; return its pieces without specials, untruncated."""
        return PieceRun.of(self.tokenizer.encode(text), self.tokenizer)

    def single(self, ids: Integers, words: Booleans, *, record: int = 0) -> Example:
        """Return a text as [CLS] ids [SEP]. Pieces that do not fit are cut from the end and counted in `truncated`."""
        size = min(len(ids), self.room(1))
        return self._sequence((PieceRun(ids[:size], words[:size]),), truncated=len(ids) - size, record=record)

    def pair(self, first: Document | PieceRun, second: Document | PieceRun, *, record: int = 0) -> Example:
        """Return [CLS] first [SEP] second [SEP]; pieces are cut one by one from the end of the longer text.

        >>> from osbert.text.tokenizer import SPECIALS, Tokenizer
        >>> tokenizer = Tokenizer([*SPECIALS, "the", "cat", "sat", "##s", "."])
        >>> packer = Packer(tokenizer=tokenizer, length=8)
        >>> example = packer.pair(packer.run("the cats sat."), packer.run("the cat."))
        >>> tokenizer.tokens(example.ids)
        ['[CLS]', 'the', 'cat', '##s', '[SEP]', 'the', 'cat', '[SEP]']
        >>> example.segments.tolist(), example.truncated
        ([0, 0, 0, 0, 0, 1, 1, 1], 3)
        """
        left, right = map(int, trim_lengths(np.array(len(first.ids)), np.array(len(second.ids)), self.room(2)))
        runs = (PieceRun(first.ids[:left], first.words[:left]), PieceRun(second.ids[:right], second.words[:right]))
        return self._sequence(runs, record=record, truncated=len(first.ids) + len(second.ids) - left - right)

    def aims(self, count: int, room: int, rng: np.random.Generator) -> Places:
        """Return target lengths in pieces (count,): `room`, or random in 2..room for a fraction `short` of them."""
        return np.where(rng.random(count) < self.short, rng.integers(2, room + 1, size=count), room)

    def spans(self, documents: Sequence[Document], rng: np.random.Generator) -> Sequences:
        """Return sequences of as many consecutive whole sentences of a document as fit; every piece is used once.

        Only sentences longer than a sequence are cut, and all parts are used. With `cross_documents` a sequence
        continues with the next document: FULL-SENTENCES of RoBERTa (Liu et al. 2019, section 4.2), else DOC-SENTENCES.

        Three sentences of two pieces each, in sequences of six tokens:

        >>> from osbert.text.tokenizer import SPECIALS, Tokenizer
        >>> tokenizer = Tokenizer([*SPECIALS, "a", "b", "c", "d", "e", "f"])
        >>> bounds, words = np.array([0, 2, 4, 6]), np.ones(6, np.bool_)
        >>> document = Document(ids=tokenizer.encode("a b c d e f"), sentences=bounds, words=words)
        >>> packer = Packer(tokenizer=tokenizer, length=6, short=0)
        >>> for example in packer.spans([document], np.random.default_rng(0)):
        ...     print(*tokenizer.tokens(example.ids))
        [CLS] a b c d [SEP]
        [CLS] e f [SEP]
        """
        room = self.room(1)
        sentences = Sentences(Documents.of(documents), longest=room)
        aims = self.aims(len(sentences), room, rng)
        between = len(self.form.between)
        begins = walk(sentences.fit_across(aims, between) if self.cross_documents else sentences.fit(aims))
        # A run of pieces ends where a sequence or a document ends; prepend=-1 makes the first sentence a start.
        runs = np.union1d(begins, np.flatnonzero(np.diff(sentences.numbers, prepend=-1)))
        return Sequences(
            documents=sentences.documents,
            tokenizer=self.tokenizer,
            firsts=sentences.bounds[runs],
            sizes=np.diff(sentences.bounds[runs], append=sentences.bounds[-1]),
            segments=np.zeros(len(runs), np.int8),
            # `begins` is a subset of `runs`: the runs from one beginning to the next belong to one sequence.
            counts=np.diff(np.searchsorted(runs, begins), append=len(runs)),
            truncated=np.zeros(len(begins), np.int64),
        )

    def _sequence(self, runs: Sequence[PieceRun], *, truncated: int, record: int) -> Example:
        form = self.form
        n = form.specials(len(runs)) + sum(len(run.ids) for run in runs)
        if not n:  # an empty text with nothing around it: a sequence has at least one token
            nothing = PieceRun(np.array([self.tokenizer.unknown], np.int32), np.zeros(1, np.bool_))
            return self._sequence((nothing,), truncated=truncated, record=record)
        ids, segments = np.zeros(n, np.int32), np.zeros(n, np.int8)
        words, special = np.zeros(n, np.bool_), np.ones(n, np.bool_)
        start = len(form.before)
        ids[:start] = form.before
        for number, run in enumerate(runs):
            closing = form.between if number < len(runs) - 1 else form.after
            end = start + len(run.ids)
            ids[start:end], words[start:end], special[start:end] = run.ids, run.words, False
            following = end + len(closing)
            ids[end:following] = closing
            # The specials after a text have its segment; text 0 has segment 0 always.
            segments[start:following] = number * form.second_segment
            start = following
        if form.last_segment is not None:
            segments[-1] = form.last_segment
        return Example(ids=ids, segments=segments, words=words, special=special, record=record, truncated=truncated)


def trim_lengths(first: Places, second: Places, room: int) -> tuple[Places, Places]:
    """Return the pieces that two texts keep if pieces are cut one by one from the longer (the second in a tie).

    Works on many pairs at once: all arrays have the shape (E,).

    >>> trim_lengths(np.array([9, 2]), np.array([4, 3]), room=8)
    (array([4, 2]), array([4, 3]))
    """
    # Cutting the longer text ends with both at half the room, or with the shorter one uncut. The first gets the odd
    # piece.
    left = np.minimum(first, np.maximum(room - second, room - room // 2))
    fits = first + second <= room
    return np.where(fits, first, left), np.where(fits, second, room - left)


class Sentences:
    """The s non-empty sentences of some documents. A sentence of more than `longest` pieces counts as several.

    `bounds` (s + 1,): sentence k is the pieces [bounds[k], bounds[k + 1]). `numbers` (s,): index of its document.
    `after` (s,): index of the first sentence of the next document.
    """

    def __init__(self, documents: Documents, *, longest: int) -> None:
        """Cut the sentences that are too long, at word starts if possible. Raises ValueError for `longest` below 1."""
        if longest < 1:  # no cut would ever be short enough
            raise ValueError(f"a sentence must have at least one piece, not {longest}")
        self.documents = documents
        starts, sizes = documents.sentences[:-1], np.diff(documents.sentences)
        inner = starts[sizes > 0]
        if cuts := _cuts(documents, np.flatnonzero(sizes > longest), longest):
            inner = np.sort(np.concatenate([inner, np.array(cuts)]))
        self.bounds: Places = np.append(inner, len(documents.ids))
        # The first sentence of each document among those that are left, and the number of sentences behind the last.
        firsts = np.searchsorted(inner, documents.sentences[documents.starts])
        counts = np.diff(firsts)
        # For each sentence: its document, and the sentence behind the last one of that document.
        self.numbers: Places = np.repeat(np.arange(len(documents)), counts)
        self.after: Places = np.repeat(firsts[1:], counts)

    def __len__(self) -> int:
        """Return s, the number of sentences after cutting."""
        return len(self.numbers)

    def reach(self, firsts: Places, pieces: Places) -> Places:
        """Return `lasts` (K,): sentences [first, last) are the fewest (>= 1) with `pieces`, or end the document."""
        # bounds is ascending: the first bound at or beyond the target ends the sequence.
        lasts = np.searchsorted(self.bounds, self.bounds[firsts] + pieces)
        return np.minimum(np.maximum(lasts, firsts + 1), self.after[firsts])

    def fit(self, pieces: Places) -> Places:
        """Return `lasts` (s,): sentences [k, last) are the most with at most `pieces` (s,), within the document.

        There is always at least one.
        """
        # The last bound that is not beyond the target.
        lasts = np.searchsorted(self.bounds, self.bounds[:-1] + pieces, side="right") - 1
        return np.minimum(np.maximum(lasts, np.arange(1, len(self) + 1)), self.after)

    def fit_across(self, pieces: Places, between: int) -> Places:
        """Return `lasts` as `fit` does, but across documents, with `between` special pieces between two."""
        # Special pieces before each sentence: `between` at each change of document.
        separators = between * np.cumsum(np.diff(self.numbers, prepend=self.numbers[:1]) > 0)
        lasts = np.searchsorted(self.bounds[1:] + separators, self.bounds[:-1] + separators + pieces, side="right")
        return np.maximum(lasts, np.arange(1, len(self) + 1))


def walk(lasts: Places) -> Places:
    """Return the sentences (E,) at which sequences begin. A sequence from sentence k would end before lasts[k]."""
    # A plain list: indexing numpy arrays item by item is several times slower.
    following, walked, sentence = lasts.tolist(), [], 0
    while sentence < len(following):
        walked.append(sentence)
        sentence = following[sentence]
    return np.array(walked, np.int64)


def _cuts(documents: Documents, long: Places, longest: int) -> list[int]:
    """Return the pieces at which the sentences with the indices `long` are cut.

    Each part is as long as possible, and ends before a word start if there is one.
    """
    # As bytes, because rfind searches backwards in C.
    words = documents.words.tobytes()
    cuts = []
    for start, end in zip(documents.sentences[long].tolist(), documents.sentences[long + 1].tolist()):
        while end - start > longest:
            word = words.rfind(1, start + 1, start + longest + 1)
            start = start + longest if word < 0 else word
            cuts.append(start)
    return cuts
