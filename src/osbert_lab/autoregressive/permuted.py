"""Permutation language modelling: the pieces of spans are predicted in a random order (XLNet, Yang et al. 2019)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from osbert.data.corrupt import quotas, sample_items, word_bounds
from osbert.data.example import Booleans, Places, ranges, rows
from osbert.data.examples import Examples, Targets
from osbert.data.noise import Noise
from osbert.data.pack import Packer
from osbert.objectives.contract import Answers, Objective

if TYPE_CHECKING:
    from osbert.models.contract import Backbone, Head, Sizes


@dataclass(frozen=True, kw_only=True)
class PermutedLanguage(Objective):
    """Reveals chosen pieces and specials one by one in a random order; the other pieces are visible from the start.

    The text is not changed. Each chosen piece is predicted at a query token: an added [MASK] with the position and the
    segment of the chosen piece. It attends to the tokens revealed before that piece, and no token attends to it. Text
    and queries are the paper's two streams (section 2.3) in one pass.
    """

    title: ClassVar[str] = "permuted prediction"
    answers: ClassVar[Answers] = "pieces"
    alone: ClassVar[bool] = True

    rate: float = 1 / 6
    """Fraction of a sequence's tokens that is predicted (section 2.3: one of K = 6)."""
    longest: int = 5
    """Pieces of the longest span. Spans of n pieces have a probability proportional to 1 / n."""
    context: int = 6
    """Tokens of context for each piece of a span, split at random into before and after."""

    def __post_init__(self) -> None:
        """Raise ValueError for settings out of range."""
        if not 0 < self.rate <= 1:
            raise ValueError(f"rate must be a fraction above 0 and at most 1, not {self.rate}")
        for name in ("longest", "context"):
            if not 1 <= getattr(self, name) <= 1000:
                raise ValueError(f"{name} must be from 1 to 1,000, not {getattr(self, name)}")

    def corrupt_all(self, examples: Examples, packer: Packer, noise: Noise) -> Examples:
        """Return the examples with an order of their tokens, and a query token for each chosen piece at the end."""
        chosen = self._choose(examples, noise)
        order = _orders(examples, chosen | examples.special, noise.stream(3))
        index = np.flatnonzero(chosen)
        counts = np.diff(np.searchsorted(index, examples.starts), append=len(index))
        # The example of each token; `counts` above are the chosen pieces of each example.
        owner = np.repeat(np.arange(len(examples)), examples.lengths)
        # Sources of the output tokens: all tokens of the text, then a copy of each chosen one as its query; the
        # stable sort moves these to the end of their own example.
        every = np.append(np.arange(len(chosen)), index)
        ranked = np.argsort(owner[every], kind="stable")  # the queries of an example after its text
        queries, every = (np.arange(len(every)) >= len(chosen))[ranked], every[ranked]
        positions = examples.positions
        if positions is None:
            positions = ranges(np.zeros_like(examples.lengths), examples.lengths)
        target = Targets(labels=examples.ids[index], counts=counts, index=np.flatnonzero(queries))
        return replace(
            examples,
            ids=np.where(queries, packer.tokenizer.mask, examples.ids[every]),
            segments=examples.segments[every],
            words=examples.words[every] & ~queries,
            special=examples.special[every] | queries,
            order=order[every] - queries,  # a query comes just before its piece is revealed
            positions=positions[every],
            unseen=queries,
            sentences=None if examples.sentences is None else examples.sentences[every] & ~queries,
            lengths=examples.lengths + counts,
            targets={**examples.targets, self.name: target},
        )

    def _choose(self, examples: Examples, noise: Noise) -> Booleans:
        """Choose the predicted tokens, a mask (N,): spans, and single pieces if the spans are too few.

        At least one piece of an example is not chosen: the first query must attend to something.
        """
        free = ~examples.special
        # Pieces of each example: reduceat sums from each start to the next.
        pieces = np.add.reduceat(free.astype(np.int64), examples.starts) if len(free) else examples.lengths
        goals = np.minimum(quotas(examples.lengths, rate=self.rate), np.maximum(pieces - 1, 0))
        chosen = choose_spans(examples, goals, noise, longest=self.longest, context=self.context) & free
        # Fill up with single pieces: (pieces - sizes) are chosen already, goals - that many are missing.
        others = np.flatnonzero(free & ~chosen)
        bounds = np.searchsorted(others, np.append(examples.starts, len(free)))
        sizes = np.diff(bounds)
        chosen[others[sample_items(sizes, goals - (pieces - sizes), noise.stream(2))]] = True
        return chosen

    def objections(self, architecture: Sizes) -> Iterator[str]:
        """Yield a message if a query would see the piece that it has to predict."""
        if architecture.direction != "both":
            yield (
                f'{self.name} sets itself which tokens are seen, and model.direction = "{architecture.direction}" '
                'does so, too. Set model.direction = "both".'
            )
        if architecture.recurrent:
            yield (
                f"{self.name} reads a text in a random order, which recurrent layers do not. Set model.recurrent = 0; "
                "they are added in fine-tuning (osbert finetune ... --recurrent 1)."
            )

    def head(self, backbone: Backbone) -> Head:
        """Return the language-model head, which reads the states of the query tokens.

        Raises ValueError if a query would see the piece that it has to predict.
        """
        from osbert.models.heads.predictions import MaskedLanguageHead

        self.require_fit(backbone.architecture)
        return MaskedLanguageHead(backbone, target=self.name)


def _orders(examples: Examples, late: Booleans, noise: Noise) -> Places:
    """Return the time (N,) at which each token is revealed: 2, 4, 6, ... in a random order if `late`, else 0.

    The odd times are for the queries.
    """
    indices = np.flatnonzero(late)
    counts = np.diff(np.searchsorted(indices, examples.starts), append=len(indices))
    row, number = rows(counts)
    order = np.zeros(len(late), np.int64)
    # Sorted by example and then by random words: the k-th of an example in that order is revealed at 2 (1 + k).
    order[indices[np.lexsort((noise.words(row, number), row))]] = 2 * (1 + number)
    return order


def choose_spans(examples: Examples, counts: Places, noise: Noise, *, longest: int, context: int) -> Booleans:
    """Choose spans from left to right: a mask (N,) with at most `counts` (B,) tokens in each example.

    Each step takes a span of n <= `longest` pieces, with a probability proportional to 1 / n, and `context` * n tokens
    around it, split at random into before and after. A span starts at the start of a word. The first span that would
    reach the end of the example is dropped and ends the walk. Spans may include specials. (XLNet: zihangdai/xlnet,
    data_utils.py, _sample_mask, which counts pieces, too.)

    Nine words, spans of one word, two words of context for each:

    >>> from osbert.data.example import Example
    >>> ids, every = np.arange(9, dtype=np.int32), np.ones(9, np.bool_)
    >>> text = Examples.of([Example(ids=ids, segments=ids * 0, words=every, special=~every)])
    >>> choose_spans(text, np.array([3]), Noise(np.array([4], np.uint64)), longest=1, context=2).nonzero()[0]
    array([0, 4, 7])
    """
    # The sentinel N is found behind the last word; such a span does not fit and ends the walk.
    firsts = np.append(word_bounds(examples.words, examples.special)[0], len(examples.ids))
    # Unnormalised cumulative distribution of 1 / n; the uniform numbers are scaled by its last value.
    odds = np.cumsum(1 / np.arange(1, longest + 1))
    at, ends, left = examples.starts.copy(), examples.starts + examples.lengths, counts.copy()
    chosen, turn = np.zeros(len(examples.ids), np.bool_), 0
    walking = np.flatnonzero(left)
    while len(walking):  # the next span of every example that has room
        turns = np.full(len(walking), turn)
        draws = noise.stream(0).uniform(walking, turns) * odds[-1]
        sizes = np.minimum(np.searchsorted(odds, draws, side="right") + 1, left[walking])
        # Of the context * n tokens around a span, `before` of them precede it; the rest follows (see at[walking]
        # below).
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
