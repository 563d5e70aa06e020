"""Classes by name with a masked-language model: how well does a name fill the gap in "This text is about ...".

Schick and Schütze 2021 ("Exploiting cloze questions", section 3): the pattern is the template behind the text, the
verbalizer of a class its own name. A name of k pieces has k masks, which are predicted in one pass; its score is the
mean of the log-probabilities of its pieces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from osbert.data.example import Example, Integers
from osbert.data.pack import PieceRun
from osbert.evaluation.forward import batches, evaluating
from osbert.inference.label_scorer import ClassScorer, Logits
from osbert.inference.label_settings import SLOT, LabelName, LabelNames, NamingOptions
from osbert.inference.model import LoadedModel
from osbert.inference.pieces import SCORES
from osbert.text.file_tokenizer import unknown_id


class Gap(NamedTuple):
    """The pattern of a class: its pieces with masks in place of those of the name (`answer`)."""

    pattern: tuple[int, ...]
    answer: tuple[int, ...]


class ClozeScorer(ClassScorer):
    """Scores a class by the mean log-probability of the pieces of its name at the masks of a pattern."""

    template = f"This text is about {SLOT}."
    calibrated = True

    def __init__(self, engine: LoadedModel, options: NamingOptions, *, tokens: int) -> None:
        super().__init__(engine, options, tokens=tokens)
        assert engine.masks is not None
        self.head = engine.masks
        self._gaps: dict[LabelName, Gap] = {}
        self._columns: dict[int, int] = {}
        """The column of each piece of a name in the outputs; it grows with the classes that are asked for."""

    def describe(self, labels: LabelNames) -> str:
        """Describe the pattern, and the score of a name of several pieces."""
        return (
            f'the mean log-probability of the pieces of a name at the masks of "{self.before}{SLOT}{self.behind}" '
            "behind the text"
        )

    def reads(self, label: LabelName) -> str:
        """Return the pattern of a class: with its name, as a description would be a long gap."""
        return f" {self.before}{label.name.replace('_', ' ')}{self.behind}"

    def problems(self, label: LabelName) -> Iterator[str]:
        """Yield why a class cannot be asked for, such as a name that the vocabulary cannot spell."""
        gap = self._gap(label)
        if not gap.answer:
            yield "the model's tokenizer finds nothing to read in it"
        elif unknown_id(self.packer.tokenizer) in gap.answer:
            yield "a part of it is not in the model's vocabulary"
        if len(gap.pattern) > self.packer.room(1) // 2:
            yield f"its pattern has {len(gap.pattern):,} pieces, more than half of a sequence"

    def _gap(self, label: LabelName) -> Gap:
        """Return the pattern of a class, and remember the pieces of its name."""
        if label not in self._gaps:
            pattern = self.reads(label)
            encoding = self.packer.tokenizer.encode_with_offsets(pattern)
            first, last = 1 + len(self.before), len(pattern) - len(self.behind)
            inside = (np.asarray(encoding.starts) < last) & (np.asarray(encoding.ends) > first)
            ids = np.asarray(encoding.ids)
            for piece in ids[inside].tolist():
                self._columns.setdefault(piece, len(self._columns))
            masked = np.where(inside, self.packer.tokenizer.mask, ids)
            self._gaps[label] = Gap(tuple(masked.tolist()), tuple(ids[inside].tolist()))
        return self._gaps[label]

    def passes(self, labels: LabelNames) -> int:
        return len(self._patterns(labels))

    def sequences(self, text: str, labels: LabelNames) -> list[Example]:
        """Return the text with each pattern, once for all names with as many pieces."""
        tokenizer = self.packer.tokenizer
        text_ids = tokenizer.encode(text)
        examples: list[Example] = []
        for pattern in self._patterns(labels):
            beginning = text_ids[: self.packer.room(1) - len(pattern)]
            ids: Integers = np.concatenate([beginning, np.array(pattern, np.int32)]).astype(np.int32)
            cut = 0 if examples else len(text_ids) - len(beginning)
            examples.append(replace(self.packer.single(*PieceRun.of(ids, tokenizer)), truncated=cut))
        return examples

    def _patterns(self, labels: LabelNames) -> list[tuple[int, ...]]:
        """Return the distinct patterns, the longest first: it is the one that cuts most of a text."""
        return sorted({self._gap(label).pattern for label in labels}, key=lambda pattern: (-len(pattern), pattern))

    def outputs(self, examples: Sequence[Example]) -> list[NDArray[np.float32]]:
        """Return for each sequence the log-probabilities (masks, columns) of the pieces of all names."""
        learner, mask = self.engine.learner, self.packer.tokenizer.mask
        rows: list[NDArray[np.float32]] = [np.empty(0, np.float32)] * len(examples)
        with evaluating(learner) as device:
            columns = torch.tensor([*self._columns], device=device)
            for batch in batches(examples, tokens=self.tokens):
                device_batch = batch.to(device)
                index = (device_batch.ids == mask).nonzero().squeeze(1)  # (M,)
                hidden = learner.backbone(device_batch).hidden
                parts = [
                    self.head.scores(hidden[positions]).float().log_softmax(dim=-1)[:, columns].cpu()
                    for positions in index.split(SCORES)
                ]
                log_probabilities = torch.cat(parts)  # (M, columns)
                # The batch is flat: a mask at position p belongs to the last sequence that starts at or before p.
                sequences = torch.searchsorted(device_batch.starts, index, right=True) - 1
                counts = torch.bincount(sequences, minlength=len(batch.records)).tolist()
                for number, part in zip(batch.records.tolist(), log_probabilities.split(counts), strict=True):
                    rows[number] = part.numpy()
        return rows

    def logits(self, outputs: Sequence[Any], labels: LabelNames, examples: Sequence[Example]) -> Logits:
        by_pattern = dict(zip(self._patterns(labels), outputs, strict=True))
        scores = []
        for label in labels:
            pattern, answer = self._gap(label)
            columns = [self._columns[piece] for piece in answer]
            # A text may have masks of its own: those of the pattern are the last ones.
            at_masks = by_pattern[pattern][-len(answer) :]
            scores.append(at_masks[np.arange(len(answer)), columns].mean(dtype=np.float64))
        return np.array(scores)
