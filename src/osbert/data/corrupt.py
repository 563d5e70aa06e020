"""Corrupts pieces: which positions are chosen, and what stands there instead. Pure functions on many examples at once.

Objectives put these together: which positions x what the input shows x what is asked for. B examples with N tokens; M
positions are chosen, `counts` (B,) of each example.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Booleans, Integers
from osbert.data.examples import Examples
from osbert.data.noise import Noise
from osbert.data.ragged import Places, begins, ranges, rows
from osbert.text.file_tokenizer import AnyTokenizer

TRIES = 2**32
"""More numbers than an example has positions: try t of position k is number t * TRIES + k."""


def quotas(tokens: Places, *, rate: float, limit: int = 0) -> Places:
    """Return how many of `tokens` (B,) positions to choose: `rate` of them, rounded, at least 1, at most `limit`.

    No limit when it is 0. google-research/bert counts the specials among the tokens, so 128 tokens at 15% give 19.

    >>> quotas(np.array([128, 3]), rate=0.15)
    array([19,  1])
    """
    counts = np.maximum(1, np.rint(tokens * rate).astype(np.int64))
    return np.minimum(counts, limit) if limit else counts


def choose(examples: Examples, counts: Places, noise: Noise) -> tuple[Places, Places]:
    """Return which tokens (M,) are chosen, ascending, and their number in each example (B,), at most `counts`.

    Never specials; each other position is as likely as any other.
    """
    free = np.flatnonzero(~examples.special)
    sizes = np.diff(np.searchsorted(free, examples.starts), append=len(free))
    counts = np.minimum(counts, sizes)
    return free[np.flatnonzero(drawn(sizes, counts, noise))], counts


def drawn(sizes: Places, counts: Places, noise: Noise) -> Booleans:
    """Return which items are sampled without replacement, (sum of `sizes`,): `counts` (B,) of each of B rows.

    Every set of so many is as likely as any other. Things are drawn one by one, anew where one has been drawn before;
    where more than half are to be drawn, those that are left out.
    """
    most = 2 * counts > sizes
    row, number = rows(np.where(most, sizes - counts, counts))
    before = begins(sizes)
    taken = np.zeros(int(sizes.sum()), np.bool_)
    holder = np.empty(len(taken), np.int64)
    while len(row):
        places = before[row] + noise.below(sizes[row], row, number)
        hands = np.arange(len(row))
        holder[places] = hands  # of several that draw the same thing, the last one has it
        lost = taken[places] | (holder[places] != hands)
        taken[places] = True
        row, number = row[lost], number[lost] + TRIES
    return taken ^ np.repeat(most, sizes) if most.any() else taken


def choose_words(
    examples: Examples, counts: Places, noise: Noise, *, shares: Sequence[float] = (1.0,)
) -> tuple[Places, Places]:
    """Return which tokens (M,) are chosen, ascending, and how many of each example (B,), about as many as asked.

    They are whole words or runs of up to len(`shares`) of them. An example's words are met in random order. One that is
    not chosen yet starts a run of n words, n drawn by `shares`, which sum to 1; it ends early at the text's end, before
    a word that is chosen already, and where one more word would exceed the count. A word that does not fit at all is
    passed over, as in google-research/bert. So no more are chosen than asked for, and fewer only where nothing fits; an
    example whose shortest word is longer than that gets this one.

    Of "the cats sat the ." three pieces are to be chosen. "cats" is two pieces, which are chosen together or not at
    all; with shares of 0 and 1 every run has two words, if they fit.

    >>> words = np.array([False, True, True, False, True, True, True, False])
    >>> special = np.array([True, False, False, False, False, False, False, True])
    >>> from osbert.data.example import Example
    >>> ids, segments = np.arange(8, dtype=np.int32), np.zeros(8, np.int8)
    >>> text = Examples.of([Example(ids=ids, segments=segments, words=words, special=special)])
    >>> noise = Noise(np.array([0], np.uint64))
    >>> choose_words(text, np.array([3]), noise)  # the, sat, .
    (array([1, 4, 6]), array([3]))
    >>> choose_words(text, np.array([3]), noise, shares=(0, 1))  # sat the, .
    (array([4, 5, 6]), array([3]))
    """
    firsts, ends = word_bounds(examples.words, examples.special)
    words = np.diff(np.searchsorted(firsts, examples.starts), append=len(firsts))
    row, number = rows(words)
    runs = np.searchsorted(np.cumsum(shares)[:-1], noise.stream(1).uniform(row, number), side="right") + 1
    order = np.lexsort((noise.words(row, number), row))
    shortest = np.full(len(examples), len(examples.ids))
    np.minimum.at(shortest, row, ends - firsts)
    left = np.maximum(counts, shortest)
    chosen = np.zeros(len(examples.ids) + 1, np.bool_)
    begin, turn = begins(words), 0
    open_rows = np.flatnonzero(words)
    while len(open_rows):  # the next word of every example that has room
        word = order[begin[open_rows] + turn]
        sizes = _grown(word, runs[word], left[open_rows], chosen, (firsts, ends))
        chosen[ranges(firsts[word], sizes)] = True
        left[open_rows] -= sizes
        turn += 1
        open_rows = open_rows[(left[open_rows] > 0) & (words[open_rows] > turn)]
    index = np.flatnonzero(chosen)
    return index, np.diff(np.searchsorted(index, examples.starts), append=len(index))


def _grown(word: Places, runs: Places, left: Places, chosen: Booleans, bounds: tuple[Places, Places]) -> Places:
    """Return how many pieces the run has that starts at each word (K,): of at most `runs` words and `left` pieces."""
    firsts, ends = bounds
    sizes = np.zeros_like(word)
    growing = np.ones(len(word), np.bool_)
    for follower in range(int(runs.max())):
        here = np.minimum(word + follower, len(firsts) - 1)
        growing &= (runs > follower) & (firsts[here] == firsts[word] + sizes)  # not beyond a special
        growing &= ~chosen[firsts[here]] & (ends[here] - firsts[word] <= left)
        sizes = np.where(growing, ends[here] - firsts[word], sizes)
    return sizes


def choose_spans(examples: Examples, counts: Places, noise: Noise, *, longest: int, context: int) -> Booleans:
    """Return which tokens (N,) are in the spans of a walk through each example, at most `counts` (B,) of each.

    A step of the walk is a span of n pieces, at most `longest`, drawn with a probability proportional to 1 / n, and
    `context` * n tokens around it, divided at random between before and after. A span begins where a word does; one
    that would reach the end of the example ends the walk. Spans may hold specials. (XLNet: zihangdai/xlnet,
    data_utils.py, _sample_mask, which counts pieces, too.)

    Of nine words with one on either side of each span of one:

    >>> from osbert.data.example import Example
    >>> ids, every = np.arange(9, dtype=np.int32), np.ones(9, np.bool_)
    >>> text = Examples.of([Example(ids=ids, segments=ids * 0, words=every, special=~every)])
    >>> choose_spans(text, np.array([3]), Noise(np.array([4], np.uint64)), longest=1, context=2).nonzero()[0]
    array([0, 4, 7])
    """
    firsts = np.append(word_bounds(examples.words, examples.special)[0], len(examples.ids))
    odds = np.cumsum(1 / np.arange(1, longest + 1))
    at, ends, left = examples.starts.copy(), examples.starts + examples.lengths, counts.copy()
    chosen, turn = np.zeros(len(examples.ids), np.bool_), 0
    walking = np.flatnonzero(left)
    while len(walking):  # the next span of every example that has room
        turns = np.full(len(walking), turn)
        draws = noise.stream(0).uniform(walking, turns) * odds[-1]
        sizes = np.minimum(np.searchsorted(odds, draws, side="right") + 1, left[walking])
        before = noise.stream(1).below(context * sizes, walking, turns)
        begin = firsts[np.searchsorted(firsts, np.minimum(at[walking] + before, len(chosen)))]
        fits = begin + sizes < ends[walking]
        walking, sizes, before, begin = walking[fits], sizes[fits], before[fits], begin[fits]
        chosen[ranges(begin, sizes)] = True
        left[walking] -= sizes
        at[walking] = begin + sizes + context * sizes - before
        walking = walking[left[walking] > 0]
        turn += 1
    return chosen


def word_bounds(words: Booleans, special: Booleans) -> tuple[Places, Places]:
    """Return where the words among N tokens start and end, (W,) each; they hold every position that is not special.

    Pieces at the beginning of a text that continue a word from before it count as a word.

    >>> word_bounds(np.array([False, True, False, True, False]), np.array([True, False, False, False, True]))
    (array([1, 3]), array([3, 4]))
    """
    starts = words | np.concatenate([[True], special[:-1]])
    starts &= ~special
    firsts = np.flatnonzero(starts)
    edges = np.append(np.flatnonzero(starts | special), len(special))
    return firsts, edges[np.searchsorted(edges, firsts, side="right")]


def mixed(
    pieces: Integers, counts: Places, *, mask: float, random: float, tokenizer: AnyTokenizer, noise: Noise
) -> NDArray[np.int64]:
    """Return what stands for `pieces` (M,) in the input: [MASK], a random piece, or the piece itself.

    `mask` and `random` are the shares of the first two; a random piece is any of the vocabulary (section 3.1, Table 8).
    """
    row, number = rows(counts)
    draws = noise.uniform(row, number)
    shown = pieces.astype(np.int64)
    shown[draws < mask] = tokenizer.mask
    others = np.flatnonzero((draws >= mask) & (draws < mask + random))
    shown[others] = noise.stream(0).below(len(tokenizer), row[others], number[others])
    return shown
