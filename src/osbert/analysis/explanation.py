"""Explanations: the words of a record with their weights in a score, and checks of these weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from osbert.analysis.attribution import (
    Attribution,
    BatchScore,
    Interpolation,
    attribute,
    end_points,
    evenly_spaced,
    occlusion,
    require_table,
)
from osbert.analysis.settings import AttributionOptions, Baseline
from osbert.analysis.words import TokenWords
from osbert.data.batch import Batch
from osbert.data.example import Example
from osbert.errors import UserError
from osbert.models.contract import Learner
from osbert.models.forms import pair_blocks
from osbert.models.heads.contrastive import ApartHead
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert.models.initialisation import copy_modules
from osbert.text.file_tokenizer import AnyTokenizer


class PairScore:
    """A weighted sum of the scores of pairs of separately encoded texts, split between the two texts of each pair.

    Such a score F(u, v) is no sum of one term for each text. The part of a text is its Shapley value in a game of two
    players (Shapley 1953): half of what it adds beside the whole other text, plus half of what it adds beside one
    without words. The parts sum to F. The two texts of a pair are consecutive examples.

    `weights`: for each example the weights (K,) of the scores of its pair. Call `meet` before the first call.
    """

    def __init__(self, head: ApartHead, weights: Sequence[NDArray[np.floating]]) -> None:
        self.head = copy_modules(head)  # without gradients for its weights
        self.weights = torch.from_numpy(np.stack(weights)).double()  # (E, K)
        self.ends = torch.empty(0, dtype=torch.float64)

    def meet(self, line: Interpolation) -> None:
        """Compute the vector of every text with all words and with none, for the partner in its pair."""
        reading = replace(line, score=self._vectors)
        indices = range(len(line.examples))
        whole, empty = (reading.scores([line.at(index, part) for index in indices]) for part in (1.0, 0.0))
        self.ends = torch.from_numpy(np.stack([whole, empty]))  # (2, E, D)

    def __call__(self, learner: Learner, batch: Batch) -> Tensor:
        """Return the part (B,) of each text of a batch in the score of its pair."""
        indices = batch.records.cpu()
        others = indices ^ 1  # examples 0 and 1 are a pair, 2 and 3
        vectors = self._vectors(learner, batch).double()
        ends = self.ends.to(vectors.device)
        # F(x, whole other) and F(x, empty other), each (B,).
        beside = [self._score_pairs(vectors, end[others], indices) for end in ends]
        alone = [
            self._score_pairs(ends[end_index, indices], ends[1 - end_index, others], indices) for end_index in (0, 1)
        ]
        # What both parts have too much of F(whole, empty) and F(empty, whole), a half of each.
        return (beside[0] + beside[1] - (alone[0] + alone[1]) / 2) / 2

    def _vectors(self, learner: Learner, batch: Batch) -> Tensor:
        states = learner.states(batch, learner.backbone.readable(batch))
        return self.head.outputs(states, batch)

    def _score_pairs(self, vectors: Tensor, partners: Tensor, indices: Tensor) -> Tensor:
        """Return the scores (B,) of pairs of vectors; `vectors` is the first text of its pair if its index is even."""
        second = (indices % 2 == 1).to(vectors.device)[:, None]
        # The head is not symmetric: put both vectors into the order of the pair.
        blocks = torch.cat(
            pair_blocks(torch.where(second, partners, vectors), torch.where(second, vectors, partners)), dim=1
        )
        layer = self.head.linear
        scores = blocks @ layer.weight.double().T + layer.bias.double()  # (B, K)
        return (scores * self.weights[indices].to(vectors.device)).sum(dim=1)


@dataclass(frozen=True, kw_only=True)
class WordWeight:
    """A word with its weight: the characters `start` to `end` of input text number `text`, from 0.

    `weight`: its contribution to the score, positive for it and negative against it. `occlusion`: the drop of the score
    without the word; None if not computed, as for most words of a long text.
    """

    word: str
    start: int
    end: int
    weight: float
    occlusion: float | None = None
    text: int = 0


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """The words of a record with their weights in one score.

    `label`: the label, answer type or piece whose score it is. `text`: the answer, choice, entity or piece, "" if the
    label says all. `score`, `baseline_score`: the scores of the record with all words and with none. `words`: in text
    order. `error`: the completeness error of gradients, |sum of weights - (score - baseline_score)| / |score -
    baseline_score|; None for occlusion. `agreement`: the rank correlation (Spearman) of gradients and occlusion over
    the words that have both; None if unknown. `points`: the number of points of the integral, 0 for occlusion.
    `baseline`: the kind of vector that replaces a missing word: mask, pad or zero. `truncated`: the number of pieces
    that the model did not read, because they did not fit: their words have no weight.
    """

    label: str
    text: str
    score: float
    baseline_score: float
    words: tuple[WordWeight, ...]
    error: float | None
    agreement: float | None
    points: int
    baseline: str
    truncated: int = 0

    def strongest(self, count: int = 5) -> list[WordWeight]:
        """Return the `count` words of largest absolute weight, largest first."""
        return sorted(self.words, key=lambda word: -abs(word.weight))[:count]

    def lines(self, most: int = 20) -> Iterator[str]:
        """Yield the score, the words of largest weight, the completeness error and any cut, as lines of text."""
        about = f"{self.label} ({self.text})" if self.text else self.label
        yield f"{about}: {self.score:+.3f}, {self.baseline_score:+.3f} without words ({self.baseline} baseline)"
        for word in self.strongest(most):
            yield f"  {word.weight:+8.3f}  {word.word}  ({word.start}-{word.end} of text {word.text + 1})"
        if self.error is not None:
            yield f"  completeness error {self.error:.2%} at {self.points} points{self._describe_agreement()}"
        if self.truncated:
            yield f"  {self.truncated:,} pieces did not fit and were not read: their words have no weight"

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values, ready for JSON."""
        return asdict(self)

    def _describe_agreement(self) -> str:
        if self.agreement is None:
            return ""
        checked = sum(word.occlusion is not None for word in self.words)
        over = f" over {checked} of {len(self.words)} words" if checked < len(self.words) else ""
        return f"; rank correlation with occlusion {self.agreement:.2f}{over}"


@dataclass(frozen=True, kw_only=True)
class ScoredRecord:
    """A score to explain: the `texts` of a record, the `examples` that the model reads, and their words."""

    label: str
    texts: Sequence[str]
    examples: Sequence[Example]
    words: TokenWords
    text: str = ""


def explain(
    learner: Learner,
    records: Sequence[ScoredRecord],
    score: BatchScore,
    options: AttributionOptions,
    tokenizer: AnyTokenizer,
) -> list[Explanation]:
    """Return the explanation of each record's score; `score` maps batches of the examples of all records to numbers.

    Raises UserError if the model has no embedding of pieces, if the tokenizer lacks the piece of the baseline, or if an
    option is out of range.
    """
    options.require_possible()
    groups: list[range] = []
    for record in records:
        begin = groups[-1].stop if groups else 0
        groups.append(range(begin, begin + len(record.examples)))
    tokens = [word_indices for record in records for word_indices in record.words.tokens]
    name, vector = baseline_vector(learner, tokenizer, options.baseline)
    line = Interpolation(
        learner=learner,
        examples=[example for record in records for example in record.examples],
        score=score,
        baseline=vector,
        # Tokens outside words, such as [CLS] and [SEP], keep their vectors in the baseline.
        fixed=[word_indices < 0 for word_indices in tokens],
    )
    if isinstance(score, PairScore):
        # The part of a text in the score of a pair needs the vectors of the other text, so they are computed first.
        score.meet(line)
    by_gradients = options.method == "gradients"
    if by_gradients:
        attributions = attribute(line, groups, points=options.points, tolerance=options.tolerance)
    else:
        attributions = end_points(line, groups)
    weighed = [
        _by_word(tokens[group.start : group.stop], attribution, record)
        for record, group, attribution in zip(records, groups, attributions)
    ]
    chosen: list[NDArray[np.integer]] = [np.arange(0)] * len(records)
    drops = [np.zeros(0)] * len(records)
    if options.check or not by_gradients:
        # A pass a word: over all words of a long text the check would take longer than what it checks.
        chosen = [evenly_spaced(word_weights, options.check_words if by_gradients else 0) for word_weights in weighed]
        drops = occlusion(line, groups, tokens, chosen)
    explained = []
    for record, attribution, weights, checked_words, drop in zip(records, attributions, weighed, chosen, drops):
        weights = weights if by_gradients else drop
        explained.append(
            Explanation(
                label=record.label,
                text=record.text,
                score=attribution.score,
                baseline_score=attribution.baseline,
                words=_weigh_words(record, weights, dict(zip(checked_words.tolist(), drop.tolist()))),
                error=attribution.error if by_gradients else None,
                agreement=rank_correlation(weights[checked_words], drop) if by_gradients else None,
                points=attribution.points,
                baseline=name,
                truncated=sum(example.truncated for example in record.examples),
            )
        )
    return explained


def baseline_vector(learner: Learner, tokenizer: AnyTokenizer, baseline: Baseline) -> tuple[str, Tensor]:
    """Return the kind of baseline (mask, pad or zero) and its vector (D',), which replaces missing words."""
    table = require_table(learner)
    for name in ("mask", "pad") if baseline == "auto" else (baseline,):
        if name == "zero":
            break
        try:
            index = getattr(tokenizer, name)
        except UserError:
            if baseline != "auto":
                raise
            continue
        with torch.no_grad():
            return name, table(torch.tensor([index], device=table.weight.device))[0]
    return "zero", torch.zeros_like(table.weight[0])


def rank_correlation(first: NDArray[np.floating], second: NDArray[np.floating]) -> float | None:
    """Return Spearman's correlation of two columns (n,); None if n < 3 or if one of them is constant."""
    from scipy.stats import rankdata

    if len(first) < 3 or not (np.ptp(first) and np.ptp(second)):
        return None
    return float(np.corrcoef(rankdata(first), rankdata(second))[0, 1])


class OutputScore:
    """Score of a sequence: the sum of its outputs times `weights`, which are (K,) or (n, K) for each example."""

    def __init__(self, name: str, weights: Sequence[NDArray[np.floating]]) -> None:
        self.name = name
        self.weights = weights

    def __call__(self, learner: Learner, batch: Batch) -> Tensor:
        """Return the score (B,) of each sequence of a batch; `batch.records` are indices of examples."""
        head = learner.heads[self.name]
        per_token = head.per_token
        read = None if per_token else learner.backbone.readable(batch)
        outputs = head.outputs(learner.states(batch, read), batch)
        rows = [self.weights[index] for index in batch.records.tolist()]
        weights = torch.from_numpy(np.concatenate(rows) if per_token else np.stack(rows)).to(outputs)
        # Per token: (N, K) of the flat batch, summed by sequence below. Otherwise one row for each sequence, (B, K).
        sums = (outputs * weights).sum(dim=1)  # (N,) or (B,)
        return torch.stack([part.sum() for part in sums.split(list(batch.lengths))]) if per_token else sums


class MaskScore:
    """Score of a masked sequence: the log-odds of a piece at the mask, `tokens` and `pieces` for each example."""

    def __init__(self, head: MaskedLanguageHead, tokens: Sequence[int], pieces: Sequence[int]) -> None:
        self.head = copy_modules(head)  # without gradients for its weights
        self.tokens = tokens
        self.pieces = pieces

    def __call__(self, learner: Learner, batch: Batch) -> Tensor:
        """Return log(p / (1 - p)) (B,), with p the probability of the piece at the mask of each sequence."""
        indices = batch.records.tolist()
        masks = batch.starts + torch.tensor([self.tokens[index] for index in indices], device=batch.starts.device)
        pieces = torch.tensor([[self.pieces[index]] for index in indices], device=batch.starts.device)  # (B, 1)
        scores = self.head.scores(learner.backbone(batch).hidden[masks]).float()  # (B, V)
        # log p - log(1 - p) = logit - logsumexp of all other logits: exact even if p is close to 1.
        others = scores.scatter(1, pieces, -torch.inf)
        return scores.gather(1, pieces)[:, 0] - others.logsumexp(dim=1)


def _by_word(
    tokens: Sequence[NDArray[np.integer]], attribution: Attribution, record: ScoredRecord
) -> NDArray[np.float64]:
    """Return the sum (W,) of the weights (n,) of each word's tokens over all sequences of a record."""
    sums = np.zeros(len(record.words.words))
    for word_indices, weights in zip(tokens, attribution.weights):  # without any weights: occlusion alone
        # add.at, since a word with several tokens occurs several times in the index.
        np.add.at(sums, word_indices[word_indices >= 0], weights[word_indices >= 0])
    return sums


def _weigh_words(
    record: ScoredRecord, weights: NDArray[np.float64], drops: Mapping[int, float]
) -> tuple[WordWeight, ...]:
    return tuple(
        WordWeight(
            word=record.texts[word.text][word.start : word.end],
            weight=weight,
            occlusion=drops.get(index),
            **word._asdict(),
        )
        for index, (word, weight) in enumerate(zip(record.words.words, weights.tolist(), strict=True))
    )
