"""Greedy decoding, sampling and beam search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from osbert.data.example import Example
from osbert_lab.writing.contract import CachedDecoder
from osbert_lab.writing.settings import GenerationOptions

Ending = Literal["end", "most"]
"""Why a text ended: with the end piece, or at the largest number of pieces."""
NEVER = float("-inf")


@dataclass(frozen=True, kw_only=True)
class WrittenPiece:
    """An event: the next piece of a row. It is final."""

    row: int
    piece: int


@dataclass(frozen=True, kw_only=True)
class WrittenRow:
    """An event: a row is complete.

    `pieces`: without the end piece. `log_probability`: the sum over all pieces and the end piece, in nats, by the
    model's own scores, before any restriction or temperature.
    """

    row: int
    pieces: tuple[int, ...]
    log_probability: float
    ended: Ending


@dataclass(frozen=True, kw_only=True)
class WrittenStep:
    """An event: a step without a final piece, as in beam search."""


Written = WrittenPiece | WrittenRow | WrittenStep


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Restrictions of all rows.

    `end`: the piece that ends a text, or None. `never` (V,) bool: forbidden pieces; `never_first` (V,): those that no
    text begins with.
    """

    end: int | None = None
    never: Tensor | None = None
    never_first: Tensor | None = None


def write(
    decoder: CachedDecoder,
    prompts: Sequence[Example],
    options: GenerationOptions,
    limits: Limits,
    *,
    numbers: Sequence[int] | None = None,
) -> Iterator[Written]:
    """Yield the generated pieces and rows as they are produced; beam search yields only steps and complete rows.

    `numbers`: a number for each row, unique for a seed. Seed and number determine the samples of a row, so that its
    text is the same in any batch. The model must be in evaluation mode.
    """
    if options.beams > 1:
        yield from _by_beams(decoder, prompts, options, limits)
    else:
        yield from _by_pieces(decoder, prompts, options, limits, numbers or range(len(prompts)))


@dataclass(eq=False)
class _Row:
    """A row in progress: its number, pieces, log-probability and generator of random numbers."""

    number: int
    draws: np.random.Generator | None = None
    pieces: list[int] = field(default_factory=list)
    total: float = 0.0

    def finish(self, ended: Ending) -> WrittenRow:
        return WrittenRow(row=self.number, pieces=tuple(self.pieces), log_probability=self.total, ended=ended)


def _by_pieces(
    decoder: CachedDecoder,
    prompts: Sequence[Example],
    options: GenerationOptions,
    limits: Limits,
    numbers: Sequence[int],
) -> Iterator[Written]:
    rows = [
        # A generator for each row, so that its draws do not depend on the other rows of the batch.
        _Row(row, np.random.default_rng([options.seed, number]) if options.sample else None)
        for row, number in enumerate(numbers)
    ]
    scores = decoder.begin(prompts, most=options.most)
    for count in range(1, options.most + 1):
        log_probabilities = scores.float().log_softmax(dim=-1)  # (rows, V)
        allowed = _mask_forbidden(log_probabilities, [row.pieces for row in rows], options, limits)
        if options.sample:
            pieces = _sample_pieces(allowed, options, [row.draws.random() for row in rows if row.draws])
        else:
            pieces = allowed.argmax(dim=-1)
        # The chosen piece's log-probability, for the result, and its restricted one, to see whether any was allowed.
        columns = [column.gather(1, pieces[:, None]).squeeze(1).tolist() for column in (log_probabilities, allowed)]
        open_rows = []
        for index, (row, piece, chance, allowed_score) in enumerate(zip(rows, pieces.tolist(), *columns, strict=True)):
            if allowed_score == NEVER:  # no piece is left that may be written
                yield row.finish("most")
                continue
            row.total += chance
            if piece == limits.end:
                yield row.finish("end")
                continue
            row.pieces.append(piece)
            yield WrittenPiece(row=row.number, piece=piece)
            if count == options.most:
                yield row.finish("most")
            else:
                open_rows.append(index)
        if not open_rows:
            return
        # Finished rows leave the batch, so that later steps cost less.
        if len(open_rows) < len(rows):
            rows = [rows[index] for index in open_rows]
            chosen = torch.tensor(open_rows, device=pieces.device)
            decoder.choose(chosen)
            pieces = pieces[chosen]
        scores = decoder.step(pieces)


def _mask_forbidden(
    scores: Tensor, written: Sequence[Sequence[int]], options: GenerationOptions, limits: Limits
) -> Tensor:
    """Return the log-probabilities (rows, V) with -inf for forbidden next pieces of rows with the pieces `finish`."""
    # All rows of a step have the same number of pieces.
    count = len(written[0])
    if options.rules.closed and limits.end is not None and count == options.most - 1:
        return torch.full_like(scores, NEVER).index_fill_(1, torch.tensor([limits.end], device=scores.device), 0.0)
    never = limits.never if count or limits.never_first is None else limits.never_first
    early = limits.end is not None and count < options.least
    if never is None and not early and not options.no_repeat:
        return scores
    allowed = scores.clone() if never is None else scores.masked_fill(never, NEVER)
    if early:
        allowed[:, limits.end] = NEVER
    if options.no_repeat:
        for row, pieces in enumerate(written):
            if again := find_repeats(pieces, options.no_repeat):
                allowed[row, again] = NEVER
    return allowed


def find_repeats(pieces: Sequence[int], length: int) -> list[int]:
    """Return the next pieces that would repeat an n-gram of `length` pieces.

    >>> find_repeats([1, 2, 3, 1, 2], 3)
    [3]
    >>> find_repeats([1, 2], 1)
    [1, 2]
    """
    if len(pieces) < length:
        return []
    # The last length - 1 pieces: the n-gram that the next piece would complete.
    last = tuple(pieces[len(pieces) - length + 1 :])
    starts = range(len(pieces) - length + 1)
    return [pieces[start + length - 1] for start in starts if tuple(pieces[start : start + length - 1]) == last]


def _sample_pieces(allowed: Tensor, options: GenerationOptions, draws: Sequence[float]) -> Tensor:
    """Sample a piece for each row (rows,): the one at which the cumulative probabilities exceed its draw in [0, 1).

    Pieces are sorted by probability, and sums are in float64, so that results hardly depend on the batch: rounding
    changes a sampled piece about once in ten million draws.
    """
    scores = allowed.double()
    # The maximum is subtracted first: large scores divided by a small temperature would be infinite.
    best = scores.amax(dim=-1, keepdim=True)
    scores = torch.where(scores == NEVER, NEVER, (scores - best) / options.temperature)
    # A stable sort: ties are in the order of the vocabulary in every batch.
    ordered, pieces = scores.sort(dim=-1, descending=True, stable=True)
    if options.top_k:
        ordered[:, options.top_k :] = NEVER
    probabilities = ordered.softmax(dim=-1)
    reached = probabilities.cumsum(dim=-1)
    if options.top_p < 1:  # a piece is kept if the sum before it is below top_p
        probabilities = probabilities.masked_fill(reached - probabilities >= options.top_p, 0)
        reached = probabilities.cumsum(dim=-1)
    # Draws are scaled by the last sum, which is not 1 after top_p and by rounding.
    at = torch.tensor(draws, dtype=torch.float64, device=allowed.device)[:, None] * reached[:, -1:]
    indices = torch.searchsorted(reached, at, right=True)
    indices = indices.minimum((probabilities > 0).sum(dim=-1, keepdim=True) - 1).clamp(
        min=0
    )  # all are 0 where none is allowed
    return pieces.gather(1, indices).squeeze(1)


@dataclass(eq=False)
class _Search:
    """The beams of one prompt: the open ones with their log-probabilities, best first, and the best finished one."""

    row: int
    open: list[tuple[float, list[int]]]
    best: WrittenRow | None = None
    score: float = NEVER
    finished: list[float] = field(default_factory=list)
    """The scores of the best finished texts, at most as many as there are beams."""

    def end(self, total: float, pieces: list[int], ended: Ending, options: GenerationOptions) -> None:
        """Keep a finished text if it is the best so far. The end piece counts for its length."""
        score = options.score(total, len(pieces) + (ended == "end"))
        self.finished = sorted([*self.finished, score], reverse=True)[: options.beams]
        # Also a score that is NaN, so that the caller sees it in the log-probability.
        if not score <= self.score:
            self.score = score
            self.best = WrittenRow(row=self.row, pieces=tuple(pieces), log_probability=total, ended=ended)

    def is_won(self, options: GenerationOptions) -> bool:
        """Return whether no open text can surpass the best one, since log-probabilities only decrease."""
        full = len(self.finished) >= options.beams
        if not self.open or (options.rules.stops == "first" and full):
            return True
        total, pieces = self.open[0]
        if options.rules.stops == "now":
            return full and self.finished[-1] >= options.score(total, len(pieces))
        # A positive penalty favours long texts: the bound is the score at the largest length.
        longest = options.most if options.length_penalty > 0 else len(pieces) + 1
        return self.best is not None and self.score >= options.score(total, longest)


def _by_beams(
    decoder: CachedDecoder, prompts: Sequence[Example], options: GenerationOptions, limits: Limits
) -> Iterator[WrittenRow | WrittenStep]:
    # (open beams of all searches, V); at first one beam for each prompt.
    log_probabilities = decoder.begin(prompts, most=options.most, beams=options.beams).float().log_softmax(dim=-1)
    searches = [_Search(row, [(0.0, [])]) for row in range(len(prompts))]
    for count in range(1, options.most + 1):
        allowed = _mask_forbidden(
            log_probabilities, [pieces for search in searches for _, pieces in search.open], options, limits
        )
        # Of each row the 2 * beams best suffice, whatever the other rows of its search have.
        candidates = likeliest(allowed, min(2 * options.beams, allowed.shape[1]))
        best = [list(zip(*row, strict=True)) for row in zip(*(part.tolist() for part in candidates), strict=True)]
        parents: list[int] = []
        owners: list[int] = []
        going: list[_Search] = []
        first = 0
        for search in searches:
            # The rows of this search in the batch: rows of a search are neighbours.
            here = slice(first, first + len(search.open))
            chosen = _advance(search, best[here], options, limits.end, last=count == options.most)
            if chosen:
                # Parents count within their search; `decoder.choose` needs rows of the batch.
                parents += [first + parent for parent in chosen]
                going.append(search)
            elif search.best is not None:
                yield search.best
            # The prompt of each old row, also of searches that have just ended.
            owners += [search.row] * (here.stop - here.start)
            first = here.stop
        if not going:
            return
        # If every row continues in its place, the cache stays as it is.
        if parents != list(range(first)):
            # If every search keeps its rows, the prompts stay in place in the cache, and only later columns move.
            related = owners == [search.row for search in going for _ in search.open]
            decoder.choose(torch.tensor(parents, device=allowed.device), related=related)
        searches = going
        pieces = [written[-1] for search in searches for _, written in search.open]
        log_probabilities = decoder.step(torch.tensor(pieces, device=allowed.device)).float().log_softmax(dim=-1)
        yield WrittenStep()


def likeliest(scores: Tensor, count: int, *, width: int = 32) -> tuple[Tensor, Tensor]:
    """Return the values and indices (rows, `count`) of the highest `scores` (rows, V), highest first.

    The `count` highest lie in the `count` groups of `width` columns with the highest maxima. Maxima take a quarter of
    the time of `topk`, which then has few columns left.
    """
    groups = scores.shape[1] // width
    if groups <= 2 * count:
        values, indices = scores.topk(count)
        return values, indices
    # (rows, V) -> (rows, groups, width), without the columns after the last whole group.
    grouped = scores[:, : groups * width].unflatten(1, (groups, width))
    chosen = grouped.amax(dim=-1).topk(count).indices  # (rows, count)
    # The scores of the chosen groups, (rows, count * width), and their columns in `scores`.
    few = grouped.gather(1, chosen[..., None].expand(-1, -1, width)).flatten(1)
    columns = (chosen[..., None] * width + torch.arange(width, device=scores.device)).flatten(1)
    # Columns after the last whole group.
    rest = torch.arange(groups * width, scores.shape[1], device=scores.device).expand(len(scores), -1)
    few, columns = torch.cat([few, scores[:, groups * width :]], dim=1), torch.cat([columns, rest], dim=1)
    values, few_indices = few.topk(count)
    return values, columns.gather(1, few_indices)


def _advance(
    search: _Search,
    best: Sequence[Sequence[tuple[float, int]]],
    options: GenerationOptions,
    end: int | None,
    *,
    last: bool,
) -> list[int]:
    """Advance a search by the best (log-probability, piece) of each open beam; return the new beams' parents.

    An empty list means that the search is over. Of the best 2 * beams continuations, those with the end piece among
    the first `beams` are finished texts, and the first `beams` of the others stay open.
    """
    every = [
        (total + log_probability, parent, piece)
        for parent, ((total, _), candidates) in enumerate(zip(search.open, best, strict=True))
        for log_probability, piece in candidates
    ]
    # All continuations of all beams compete. A stable sort: ties are in the order of the beams in every batch.
    every.sort(key=lambda continuation: -continuation[0])
    open_beams: list[tuple[float, list[int]]] = []
    parents: list[int] = []
    # 2 * beams: at most one continuation per beam has the end piece, so at least `beams` others remain.
    for rank, (total, parent, piece) in enumerate(every[: 2 * options.beams]):
        # Totals are descending: after the first forbidden continuation there are only forbidden ones.
        if total == NEVER or len(open_beams) == options.beams:
            break
        pieces = search.open[parent][1]
        if piece == end:
            if rank < options.beams:
                search.end(total, pieces, "end", options)
        else:
            open_beams.append((total, [*pieces, piece]))
            parents.append(parent)
    if last or (not open_beams and search.best is None):
        # At the largest length, or without any continuation, the open beams are results, too.
        for total, pieces in open_beams or search.open:
            search.end(total, pieces, "most", options)
        return []
    search.open = open_beams
    return [] if search.is_won(options) else parents
