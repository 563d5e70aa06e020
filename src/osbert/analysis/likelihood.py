"""Log-probabilities of the pieces of texts by a language model, masked or left-to-right.

A masked language model scores a piece in a copy of the text in which that piece is masked (Salazar et al. 2020,
equation 2); a left-to-right model scores all pieces of a text in one pass. Copies are made lazily as sequences of flat
batches, so memory does not grow with the length or the number of texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from osbert.analysis.scoring import Masking, hidden_pieces
from osbert.data.batch import micro_batches
from osbert.data.example import Booleans, Example, Target
from osbert.evaluation.forward import TOKENS, evaluating, gather
from osbert.models.contract import Learner
from osbert.models.heads.predictions import MaskedLanguageHead

WINDOW = 8 * TOKENS
"""Tokens of copies that are sorted by length together, into batches of nearly one length."""
SCORES = 512
"""Most tokens whose logits over the vocabulary are in memory at a time."""


@dataclass(frozen=True)
class LanguageModel:
    """A backbone with its language head. `mask`: the id of [MASK], unused by left-to-right models."""

    learner: Learner
    head: MaskedLanguageHead
    mask: int

    @property
    def causal(self) -> bool:
        """Return whether the model is left-to-right."""
        return self.learner.backbone.architecture.direction == "left_to_right"

    def log_probabilities(
        self, examples: Sequence[Example], *, masking: Masking = "piece", scored: Sequence[Booleans] | None = None
    ) -> list[NDArray[np.float64]]:
        """Return the log-probability of each piece (n,) of some texts, without specials, in nats; NaN if not scored.

        `scored`: for each text, which of its n pieces to score (default: all). Pieces that are not scored cost a masked
        language model nothing. The first piece of a text is NaN if nothing stands before it in a left-to-right model.
        """
        sizes = [int((~example.special).sum()) for example in examples]
        firsts = np.cumsum([0, *sizes])
        # One array for the pieces of all texts. A copy carries the index of its (first) piece here as its record.
        flat = np.full(int(firsts[-1]), np.nan)
        every = scored if scored is not None else [np.ones(size, bool) for size in sizes]
        copies = (
            copy
            for example, first, chosen in zip(examples, firsts[:-1].tolist(), every, strict=True)
            for copy in (
                self._whole(example, first) if self.causal else self._mask_copies(example, first, chosen, masking)
            )
        )

        def log_probability(hidden: Tensor, labels: Tensor) -> Tensor:
            return -functional.cross_entropy(self.head.scores(hidden).float(), labels, reduction="none")

        for records, piece_scores in self._each(copies, log_probability):
            begins = np.flatnonzero(np.diff(records, prepend=-1))  # the labels of one text have consecutive numbers
            # Position of each label within its text: the index less that of the first label of the same record.
            ranks = np.arange(len(records)) - np.repeat(begins, np.diff(begins, append=len(records)))
            flat[records + ranks] = piece_scores
        bounds = zip(pairwise(firsts.tolist()), every, strict=True)
        return [np.where(chosen, flat[first:last], np.nan) for (first, last), chosen in bounds]

    def candidates(self, examples: Sequence[Example], pieces: NDArray[np.integer]) -> NDArray[np.float64]:
        """Return the log-probabilities (n, K) of K pieces at the mask, for n texts with one mask each.

        They are normalised over the whole vocabulary.
        """
        candidate_scores = np.empty((len(examples), len(pieces)))
        masked = (
            self._label_tokens(example, index, np.flatnonzero(example.ids == self.mask))
            for index, example in enumerate(examples)
        )

        def log_probabilities(hidden: Tensor, _: Tensor) -> Tensor:
            scores = self.head.scores(hidden).float().log_softmax(-1)
            return scores[:, torch.from_numpy(pieces).to(scores.device)]

        for records, rows in self._each(masked, log_probabilities):
            candidate_scores[records] = rows
        return candidate_scores

    def _mask_copies(self, example: Example, first: int, chosen: Booleans, masking: Masking) -> Iterator[Example]:
        """Yield a masked copy of the text for each chosen piece. `first`: index of its first piece in `flat`."""
        tokens = np.flatnonzero(~example.special)
        words = example.words[tokens]
        for piece_index in np.flatnonzero(chosen).tolist():
            ids = example.ids.copy()
            ids[tokens[hidden_pieces(words, piece_index, masking)]] = self.mask
            # With masking = "word" later pieces of the word are hidden too, but only this one is a label.
            token = tokens[piece_index : piece_index + 1]
            yield self._label_tokens(replace(example, ids=ids), first + piece_index, token, example.ids[token])

    def _whole(self, example: Example, first: int) -> Iterator[Example]:
        """Yield the text with each piece as the label of the token before it."""
        index = np.flatnonzero(~example.special[1:])
        unscored = int((~example.special).sum()) - len(index)  # the first, where nothing stands before it
        yield self._label_tokens(example, first + unscored, index, example.ids[index + 1])

    def _label_tokens(
        self, example: Example, record: int, index: NDArray[np.integer], labels: NDArray[np.integer] | None = None
    ) -> Example:
        target = Target(labels=example.ids[index] if labels is None else labels, index=index)
        return replace(example, record=record, targets={self.head.target: target} if len(index) else {})

    def _each(
        self, examples: Iterable[Example], read: Callable[[Tensor, Tensor], Tensor]
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
        """Yield for each batch the record of each label, and `read` of the states and the labels."""
        for window in gather((example for example in examples if example.targets), WINDOW, len):
            for batch in micro_batches(window, TOKENS):
                with evaluating(self.learner) as device:
                    device_batch = batch.to(device)
                    target = device_batch.targets[self.head.target]
                    states = self.learner.states(device_batch, self.learner.backbone.readable(device_batch)).hidden
                    parts = zip(target.index.split(SCORES), target.labels.split(SCORES), strict=True)
                    values = torch.cat([read(states[index], labels) for index, labels in parts]).double().cpu().numpy()
                    # The sequence of each label: the last start that is not beyond its index in the flat batch.
                    sequences = torch.searchsorted(device_batch.starts, target.index, right=True) - 1
                    records = device_batch.records[sequences].cpu().numpy()
                yield records, values
