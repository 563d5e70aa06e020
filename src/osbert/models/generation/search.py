"""Greedy choice, sampling and beam search over what a decoder scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from osbert.data.example import Example
from osbert.models.generation.contract import CachedDecoder
from osbert.models.generation.settings import GenerationOptions

Ending = Literal["end", "most"]
"""Why a text ends: the model wrote its end, or all pieces that it may write."""
NEVER = float("-inf")


@dataclass(frozen=True, kw_only=True)
class WrittenPiece:
    """An event: the next piece of a row, which nothing will change any more."""

    row: int
    piece: int


@dataclass(frozen=True, kw_only=True)
class WrittenRow:
    """An event: a row is written.

    `pieces`: without the end piece. `log_probability`: of all pieces together, that of the end piece included, in nats,
    by the model's own scores.
    """

    row: int
    pieces: tuple[int, ...]
    log_probability: float
    ended: Ending


@dataclass(frozen=True, kw_only=True)
class WrittenStep:
    """An event: a step was made in which nothing became certain, as those of a search."""


Written = WrittenPiece | WrittenRow | WrittenStep


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What no row may write: `end` ends it, None where nothing does; `never` (V,) bool: pieces that are not written."""

    end: int | None = None
    never: Tensor | None = None


def write(
    decoder: CachedDecoder,
    prompts: Sequence[Example],
    options: GenerationOptions,
    limits: Limits,
    *,
    numbers: Sequence[int] | None = None,
) -> Iterator[Written]:
    """Yield what is written after each prompt, while it is written; of beams only steps before a row is whole.

    `numbers`: of the rows in all that is written with one seed; with it and the seed each row draws for itself, so that
    it has the same text in any batch. The decoder's model is in evaluation mode.
    """
    if options.beams > 1:
        yield from _by_beams(decoder, prompts, options, limits)
    else:
        yield from _by_pieces(decoder, prompts, options, limits, numbers or range(len(prompts)))


@dataclass(eq=False)
class _Row:
    """A row that is being written: its number, its pieces, and what it draws from."""

    number: int
    draws: np.random.Generator | None = None
    pieces: list[int] = field(default_factory=list)
    total: float = 0.0

    def written(self, ended: Ending) -> WrittenRow:
        return WrittenRow(row=self.number, pieces=tuple(self.pieces), log_probability=self.total, ended=ended)


def _by_pieces(
    decoder: CachedDecoder,
    prompts: Sequence[Example],
    options: GenerationOptions,
    limits: Limits,
    numbers: Sequence[int],
) -> Iterator[Written]:
    rows = [
        _Row(row, np.random.default_rng([options.seed, number]) if options.sample else None)
        for row, number in enumerate(numbers)
    ]
    scores = decoder.begin(prompts, most=options.most)
    for count in range(1, options.most + 1):
        shares = scores.float().log_softmax(dim=-1)  # (rows, V)
        allowed = _allowed(shares, [row.pieces for row in rows], options, limits)
        if options.sample:
            pieces = _drawn(allowed, options, [row.draws.random() for row in rows if row.draws])
        else:
            pieces = allowed.argmax(dim=-1)
        columns = [column.gather(1, pieces[:, None]).squeeze(1).tolist() for column in (shares, allowed)]
        open_rows = []
        for place, (row, piece, chance, found) in enumerate(zip(rows, pieces.tolist(), *columns, strict=True)):
            if found == NEVER:  # no piece is left that may be written
                yield row.written("most")
                continue
            row.total += chance
            if piece == limits.end:
                yield row.written("end")
                continue
            row.pieces.append(piece)
            yield WrittenPiece(row=row.number, piece=piece)
            if count == options.most:
                yield row.written("most")
            else:
                open_rows.append(place)
        if not open_rows:
            return
        if len(open_rows) < len(rows):
            rows = [rows[place] for place in open_rows]
            chosen = torch.tensor(open_rows, device=pieces.device)
            decoder.choose(chosen)
            pieces = pieces[chosen]
        scores = decoder.step(pieces)


def _allowed(shares: Tensor, written: Sequence[Sequence[int]], options: GenerationOptions, limits: Limits) -> Tensor:
    """Return log-probabilities (rows, V), -inf for what may not be the next piece of the rows with `written` pieces."""
    early = limits.end is not None and len(written[0]) < options.least
    if limits.never is None and not early and not options.no_repeat:
        return shares
    allowed = shares.clone() if limits.never is None else shares.masked_fill(limits.never, NEVER)
    if early:
        allowed[:, limits.end] = NEVER
    if options.no_repeat:
        for row, pieces in enumerate(written):
            if again := repeated(pieces, options.no_repeat):
                allowed[row, again] = NEVER
    return allowed


def repeated(pieces: Sequence[int], length: int) -> list[int]:
    """Return the pieces that would make some run of `length` pieces appear for the second time.

    >>> repeated([1, 2, 3, 1, 2], 3)
    [3]
    >>> repeated([1, 2], 1)
    [1, 2]
    """
    if len(pieces) < length:
        return []
    last = tuple(pieces[len(pieces) - length + 1 :])
    starts = range(len(pieces) - length + 1)
    return [pieces[start + length - 1] for start in starts if tuple(pieces[start : start + length - 1]) == last]


def _drawn(allowed: Tensor, options: GenerationOptions, draws: Sequence[float]) -> Tensor:
    """Return a piece for each row (rows,), at the place in the cumulated probabilities where its draw in [0, 1) falls.

    The likeliest pieces come first, and sums are taken in float64: rounding that depends on the batch moves a piece's
    bounds by so little that a draw falls beside it about once in ten million.
    """
    scores = allowed.double()
    best = scores.amax(dim=-1, keepdim=True)  # taken off first: a small temperature makes infinities of large scores
    scores = torch.where(scores == NEVER, NEVER, (scores - best) / options.temperature)
    ordered, pieces = scores.sort(dim=-1, descending=True, stable=True)
    if options.top_k:
        ordered[:, options.top_k :] = NEVER
    shares = ordered.softmax(dim=-1)
    reached = shares.cumsum(dim=-1)
    if options.top_p < 1:  # a piece stays if those before it do not reach top_p
        shares = shares.masked_fill(reached - shares >= options.top_p, 0)
        reached = shares.cumsum(dim=-1)
    at = torch.tensor(draws, dtype=torch.float64, device=allowed.device)[:, None] * reached[:, -1:]
    place = torch.searchsorted(reached, at, right=True)
    place = place.minimum((shares > 0).sum(dim=-1, keepdim=True) - 1).clamp(min=0)  # all are 0 where none is allowed
    return pieces.gather(1, place).squeeze(1)


def normalised(total: float, pieces: int, penalty: float) -> float:
    """Return the score of a text: its log-probability over ((5 + pieces) / 6)^penalty (Wu et al. 2016, equation 14).

    >>> normalised(-6.0, 7, 0.0), normalised(-6.0, 7, 1.0)
    (-6.0, -3.0)
    """
    return total / ((5 + pieces) / 6) ** penalty


@dataclass(eq=False)
class _Search:
    """The beams of one prompt: those that are open, with their log-probabilities, and the best that has ended."""

    row: int
    open: list[tuple[float, list[int]]]
    best: WrittenRow | None = None
    score: float = NEVER

    def end(self, total: float, pieces: list[int], ended: Ending, penalty: float) -> None:
        """Keep a text that has ended if it is the best so far; the end piece counts as one of its pieces."""
        score = normalised(total, len(pieces) + (ended == "end"), penalty)
        if score > self.score:
            self.score = score
            self.best = WrittenRow(row=self.row, pieces=tuple(pieces), log_probability=total, ended=ended)

    def is_won(self, options: GenerationOptions) -> bool:
        """Return whether no open text can become better than the best: none becomes likelier by more pieces."""
        if not self.open:
            return True
        total, pieces = self.open[0]
        longest = options.most if options.length_penalty > 0 else len(pieces) + 1
        return self.best is not None and self.score >= normalised(total, longest, options.length_penalty)


def _by_beams(
    decoder: CachedDecoder, prompts: Sequence[Example], options: GenerationOptions, limits: Limits
) -> Iterator[WrittenRow | WrittenStep]:
    shares = decoder.begin(prompts, most=options.most).float().log_softmax(dim=-1)
    searches = [_Search(row, [(0.0, [])]) for row in range(len(prompts))]
    for count in range(1, options.most + 1):
        allowed = _allowed(shares, [pieces for one in searches for _, pieces in one.open], options, limits)
        parents: list[int] = []
        owners: list[int] = []
        going: list[_Search] = []
        first = 0
        for one in searches:
            here = slice(first, first + len(one.open))
            chosen = _advanced(one, allowed[here], options, limits.end, last=count == options.most)
            if chosen:
                parents += [first + parent for parent in chosen]
                going.append(one)
            elif one.best is not None:
                yield one.best
            owners += [one.row] * (here.stop - here.start)
            first = here.stop
        if not going:
            return
        if parents != list(range(first)):
            # Where each search keeps its places, prompts need not be moved, only what was written.
            related = owners == [one.row for one in going for _ in one.open]
            decoder.choose(torch.tensor(parents, device=allowed.device), related=related)
        searches = going
        pieces = [written[-1] for one in searches for _, written in one.open]
        shares = decoder.step(torch.tensor(pieces, device=allowed.device)).float().log_softmax(dim=-1)
        yield WrittenStep()


def _advanced(search: _Search, shares: Tensor, options: GenerationOptions, end: int | None, *, last: bool) -> list[int]:
    """Make one step of a search by the log-probabilities (open, V), and return the places of the new beams' parents.

    None are returned where the search is over. Of the 2 beams best continuations those that end among the first
    `beams` are texts, and the first `beams` others stay open.
    """
    totals = torch.tensor([total for total, _ in search.open], dtype=shares.dtype, device=shares.device)
    every = (totals[:, None] + shares).flatten()
    found = every.topk(min(2 * options.beams, len(every)))
    kept: list[tuple[float, list[int]]] = []
    parents: list[int] = []
    for rank, (total, place) in enumerate(zip(found.values.tolist(), found.indices.tolist(), strict=True)):
        parent, piece = divmod(place, shares.shape[1])
        if total == NEVER or len(kept) == options.beams:
            break
        pieces = search.open[parent][1]
        if piece == end:
            if rank < options.beams:
                search.end(total, pieces, "end", options.length_penalty)
        else:
            kept.append((total, [*pieces, piece]))
            parents.append(parent)
    if last or (not kept and search.best is None):
        for total, pieces in kept or search.open:
            search.end(total, pieces, "most", options.length_penalty)
        return []
    search.open = kept
    return [] if search.is_won(options) else parents
