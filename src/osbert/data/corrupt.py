"""Corruption of pieces: which positions are chosen, and what replaces them. Pure functions on many examples at once.

An objective combines them: which positions, what the input shows there, which labels. B examples with N tokens; M
positions are chosen, `counts` (B,) in each example.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Booleans, Integers, Places, begins, ranges, rows
from osbert.data.examples import Examples
from osbert.data.noise import Noise
from osbert.text.file_tokenizer import AnyTokenizer

TRIES = 2**32
"""Larger than any example is long: attempt t for item k uses random number t * TRIES + k."""


def quotas(tokens: Places, *, rate: float, limit: int = 0) -> Places:
    """Return the number of positions (B,) to choose among `tokens` (B,): `rate` * tokens, rounded, 1 to `limit`.

    `limit` 0 is no limit. google-research/bert counts the specials among the tokens, so 128 tokens at 15% give 19.

    >>> quotas(np.array([128, 3]), rate=0.15)
    array([19,  1])
    """
    counts = np.maximum(1, np.rint(tokens * rate).astype(np.int64))
    return np.minimum(counts, limit) if limit else counts


def choose(examples: Examples, counts: Places, noise: Noise) -> tuple[Places, Places]:
    """Choose tokens: their indices (M,), ascending, and their number in each example (B,), at most `counts`.

    Special tokens are never chosen; all other positions are equally likely.
    """
    # `free` is ascending, so searching for the starts of the examples counts the free positions of each.
    free = np.flatnonzero(~examples.special)
    sizes = np.diff(np.searchsorted(free, examples.starts), append=len(free))
    counts = np.minimum(counts, sizes)
    return free[np.flatnonzero(sample_items(sizes, counts, noise))], counts


def sample_items(sizes: Places, counts: Places, noise: Noise) -> Booleans:
    """Sample without replacement: a mask (sum of `sizes`,) of `counts` (B,) items in each of B rows.

    All sets of that size are equally likely. Items are sampled independently, and those that collide are sampled again.
    If more than half of a row is to be chosen, the items to leave out are sampled instead.
    """
    # Sampling at most half of a row keeps the expected number of repeated attempts small; `most` rows are inverted at
    # the end.
    most = 2 * counts > sizes
    row, number = rows(np.where(most, sizes - counts, counts))
    before = begins(sizes)
    taken = np.zeros(int(sizes.sum()), np.bool_)
    # Scatter each sampler's index and read it back: whoever still finds its own index won the item. `holder` needs no
    # initial values, because only items written in this round are read.
    holder = np.empty(len(taken), np.int64)
    while len(row):
        items = before[row] + noise.below(sizes[row], row, number)
        hands = np.arange(len(row))
        holder[items] = hands  # of several that draw the same thing, the last one has it
        lost = taken[items] | (holder[items] != hands)
        taken[items] = True
        # The losers try again with other numbers of the same row, so rows stay independent of each other.
        row, number = row[lost], number[lost] + TRIES
    return taken ^ np.repeat(most, sizes) if most.any() else taken


def choose_words(
    examples: Examples, counts: Places, noise: Noise, *, run_probabilities: Sequence[float] = (1.0,)
) -> tuple[Places, Places]:
    """Choose whole words: the tokens' indices (M,), ascending, and their number in each example (B,), about `counts`.

    Runs have up to len(`run_probabilities`) words. The words of an example are visited in random order. A word that is
    not chosen yet starts a run of n words, where n has the probabilities `run_probabilities`, which sum to 1. The run
    ends early at the end of the text, before a word that is chosen already, and where one more word would exceed the
    count. A word that does not fit at all is skipped, as in google-research/bert. So never more than `counts` tokens
    are chosen, and fewer only if no word fits. Exception: if the shortest word of an example is longer than its count,
    that word is chosen.

    Three pieces are chosen in "the cats sat the .". "cats" has two pieces, which are chosen together or not at all.
    With probabilities of 0 and 1 every run has two words, if they fit.

    >>> words = np.array([False, True, True, False, True, True, True, False])
    >>> special = np.array([True, False, False, False, False, False, False, True])
    >>> from osbert.data.example import Example
    >>> ids, segments = np.arange(8, dtype=np.int32), np.zeros(8, np.int8)
    >>> text = Examples.of([Example(ids=ids, segments=segments, words=words, special=special)])
    >>> noise = Noise(np.array([0], np.uint64))
    >>> choose_words(text, np.array([3]), noise)  # the, sat, .
    (array([1, 4, 6]), array([3]))
    >>> choose_words(text, np.array([3]), noise, run_probabilities=(0, 1))  # sat the, .
    (array([4, 5, 6]), array([3]))
    """
    firsts, ends = word_bounds(examples.words, examples.special)
    # Words in each example: `firsts` is sorted, so searchsorted counts those before each start.
    words = np.diff(np.searchsorted(firsts, examples.starts), append=len(firsts))
    row, number = rows(words)
    # Inverse transform sampling of the run's length for each word (W,), whether it will start a run or not.
    runs = np.searchsorted(np.cumsum(run_probabilities)[:-1], noise.stream(1).uniform(row, number), side="right") + 1
    # A random order within each example: sorted by example first (the last key), then by random words.
    order = np.lexsort((noise.words(row, number), row))
    shortest = np.full(len(examples), len(examples.ids))
    np.minimum.at(shortest, row, ends - firsts)
    left = np.maximum(counts, shortest)
    chosen = np.zeros(len(examples.ids) + 1, np.bool_)
    begin, turn = begins(words), 0
    open_rows = np.flatnonzero(words)
    while len(open_rows):  # the next word of every example that has room
        word = order[begin[open_rows] + turn]
        sizes = _grow_runs(word, runs[word], left[open_rows], chosen, (firsts, ends))
        chosen[ranges(firsts[word], sizes)] = True
        left[open_rows] -= sizes
        turn += 1
        open_rows = open_rows[(left[open_rows] > 0) & (words[open_rows] > turn)]
    index = np.flatnonzero(chosen)
    return index, np.diff(np.searchsorted(index, examples.starts), append=len(index))


def _grow_runs(word: Places, runs: Places, left: Places, chosen: Booleans, bounds: tuple[Places, Places]) -> Places:
    """Return the pieces (K,) of the run that starts at each word (K,): at most `runs` words and `left` pieces."""
    firsts, ends = bounds
    sizes = np.zeros_like(word)
    growing = np.ones(len(word), np.bool_)
    for follower in range(int(runs.max())):
        # Clipped to the last word. It starts before the end of a run that includes it, so such a run stops growing.
        here = np.minimum(word + follower, len(firsts) - 1)
        growing &= (runs > follower) & (firsts[here] == firsts[word] + sizes)  # not beyond a special
        growing &= ~chosen[firsts[here]] & (ends[here] - firsts[word] <= left)
        # `growing` can only turn off, so a run is always an unbroken sequence of words.
        sizes = np.where(growing, ends[here] - firsts[word], sizes)
    return sizes


def word_bounds(words: Booleans, special: Booleans) -> tuple[Places, Places]:
    """Return the start and the end of each word among N tokens, (W,) each; they cover all non-special tokens.

    Pieces at the beginning of a text that continue a cut word count as a word of their own.

    >>> word_bounds(np.array([False, True, False, True, False]), np.array([True, False, False, False, True]))
    (array([1, 3]), array([3, 4]))
    """
    # A token also starts a word if it is the first or follows a special one.
    starts = words | np.concatenate([[True], special[:-1]])
    starts &= ~special
    firsts = np.flatnonzero(starts)
    # A word ends at the next start, the next special token or the end of all tokens.
    edges = np.append(np.flatnonzero(starts | special), len(special))
    return firsts, edges[np.searchsorted(edges, firsts, side="right")]


def corrupt_pieces(
    pieces: Integers,
    counts: Places,
    *,
    mask: float,
    random: float,
    tokenizer: AnyTokenizer,
    noise: Noise,
    alike: Places | None = None,
) -> NDArray[np.int64]:
    """Return what the input shows for `pieces` (M,): [MASK], a random piece, or the piece itself.

    `mask` and `random`: the probabilities of the first two. Random pieces are uniform over the vocabulary (section
    3.1, Table 8). `alike` (M,): pieces of an example with the same number here are replaced in the same of these ways;
    None: each in its own.
    """
    row, number = rows(counts)
    draws = noise.uniform(row, number if alike is None else alike)
    input_pieces = pieces.astype(np.int64)
    input_pieces[draws < mask] = tokenizer.mask
    others = np.flatnonzero((draws >= mask) & (draws < mask + random))
    input_pieces[others] = noise.stream(0).below(len(tokenizer), row[others], number[others])
    return input_pieces
