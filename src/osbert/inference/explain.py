"""Explanations: predictions with the contribution of each word to their scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from osbert.analysis.explanation import Explanation, MaskScore, OutputScore, ScoredRecord, explain
from osbert.analysis.interpolation import BatchScore, require_table
from osbert.analysis.pair_score import PairScore
from osbert.analysis.settings import AttributionOptions
from osbert.analysis.words import TextWord, in_order, token_words, words_of_pieces
from osbert.data.pack import Packer
from osbert.errors import UserError, nearest
from osbert.evaluation.score import Encoded, encode_records, refuse_long
from osbert.inference.fill import MaskFill, encode_with_masks, pack_with_masks
from osbert.models.contract import Learner
from osbert.models.heads.contrastive import ApartHead
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert.tasks import Prediction, Record, Task
from osbert.text.file_tokenizer import AnyTokenizer


class PredictionSource(Protocol):
    """The model: an `inference.engine.Engine`, or another object with these members."""

    masks: MaskedLanguageHead | None
    packer: Packer
    tokenizer: AnyTokenizer

    @property
    def learner(self) -> Learner:
        """The torch model."""
        ...

    @property
    def fine_tuned(self) -> Task:
        """The task. Raises UserError if the model was not fine-tuned."""
        ...

    def predict_encoded(self, records: Iterable[Encoded]) -> list[Prediction]:
        """Return the task's prediction for each record, given its sequences."""
        ...

    def fill(self, text: str, *, top: int) -> list[list[MaskFill]]:
        """Return the `top` likeliest pieces for each mask."""
        ...


def explain_records(
    engine: PredictionSource, records: Sequence[Record], options: AttributionOptions, *, label: str = ""
) -> list[tuple[Prediction, list[Explanation]]]:
    """Return for each record the prediction, and an explanation of each score behind it.

    `label`: explain the score of this label instead of the predicted one. Raises UserError for an unknown label, and if
    the model or its kind of task does not support explanations.
    """
    task = engine.fine_tuned
    require_table(engine.learner)
    refuse_long(task, records, engine.packer)
    laid_out = list(encode_records(task, records, engine.packer))
    predictions = engine.predict_encoded(laid_out)
    # All scores of all records go into one flat list, so that they share batches; `owners` maps each to its record.
    scored: list[ScoredRecord] = []
    owners: list[int] = []
    weights: list[NDArray[np.float64]] = []
    for index, ((record, examples), prediction) in enumerate(zip(laid_out, predictions)):
        words = token_words(task, record, engine.packer)
        for target in task.explain(prediction, record, examples, label):
            scored_record = ScoredRecord(
                label=target.label, text=target.text, texts=record.texts, examples=examples, words=words
            )
            scored.append(scored_record)
            owners.append(index)
            weights += target.weights
    head = engine.learner.heads[task.name]
    score: BatchScore = PairScore(head, weights) if isinstance(head, ApartHead) else OutputScore(task.name, weights)
    explanations: list[list[Explanation]] = [[] for _ in records]
    for index, explained in zip(owners, explain(engine.learner, scored, score, options, engine.tokenizer)):
        explanations[index].append(explained)
    return list(zip(predictions, explanations))


def explain_masks(
    engine: PredictionSource, text: str, options: AttributionOptions, *, piece: str = ""
) -> list[Explanation]:
    """Return for each [MASK] of a text an explanation of the log-odds of its likeliest piece.

    `piece`: explain this piece instead. Raises UserError if the model does not fill masks, or lacks the piece.
    """
    likeliest = [likely[0].piece for likely in engine.fill(text, top=1)]
    tokenizer, head = engine.tokenizer, engine.masks
    assert head is not None
    if piece and piece not in tokenizer.vocabulary:
        raise UserError(
            f"There is no piece '{piece}' in the vocabulary.{nearest(piece, tokenizer.vocabulary)}",
            code="invalid-value",
        )
    example = pack_with_masks(text, engine.packer)
    bounds, words = words_of_pieces(text, *encode_with_masks(text, tokenizer)[1:])
    # The word of each token; -1 for special tokens and for the masks themselves, which get no weight.
    tokens = np.full(len(example), -1)
    tokens[~example.special] = words
    masks = np.flatnonzero(example.ids == tokenizer.mask)
    tokens[masks] = -1
    held = in_order([TextWord(0, *bound) for bound in bounds], [tokens])
    pieces = [piece or top_piece for top_piece in likeliest]
    records = [
        ScoredRecord(label=target_piece, texts=(text,), examples=[example], words=held) for target_piece in pieces
    ]
    ids = [tokenizer.vocabulary.index(target_piece) for target_piece in pieces]
    score = MaskScore(head, masks.tolist(), ids)
    return explain(engine.learner, records, score, options, tokenizer)
