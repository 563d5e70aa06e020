"""Explanations: the contribution of each word to the scores of predictions, and the attention weights of a text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from osbert.analysis.attention import PlacedText, TextAttention, place_text, read_attention
from osbert.analysis.attribution import BatchScore, require_table
from osbert.analysis.explanation import Explanation, MaskScore, OutputScore, PairScore, ScoredRecord, explain
from osbert.analysis.settings import AttributionOptions
from osbert.analysis.words import TextWord, in_order, token_words, words_of_pieces
from osbert.errors import UserError, nearest
from osbert.evaluation.score import encode_records, refuse_long
from osbert.inference.model import LoadedModel, TorchBackend
from osbert.inference.pieces import encode_with_masks, fill_masks, pack_with_masks
from osbert.interop.hub import display_name
from osbert.models.heads.contrastive import ApartHead
from osbert.tasks import Prediction, Record


def explain_records(
    engine: LoadedModel, records: Sequence[Record], options: AttributionOptions, *, label: str = ""
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
            scored.append(
                ScoredRecord(label=target.label, text=target.text, texts=record.texts, examples=examples, words=words)
            )
            owners.append(index)
            weights += target.weights
    head = engine.learner.heads[task.name]
    score: BatchScore = PairScore(head, weights) if isinstance(head, ApartHead) else OutputScore(task.name, weights)
    explanations: list[list[Explanation]] = [[] for _ in records]
    for index, explained in zip(owners, explain(engine.learner, scored, score, options, engine.tokenizer)):
        explanations[index].append(explained)
    return list(zip(predictions, explanations))


def explain_masks(engine: LoadedModel, text: str, options: AttributionOptions, *, piece: str = "") -> list[Explanation]:
    """Return for each [MASK] of a text an explanation of the log-odds of its likeliest piece.

    `piece`: explain this piece instead. Raises UserError if the model does not fill masks, or lacks the piece.
    """
    likeliest = [likely[0].piece for likely in fill_masks(engine, text, top=1)]
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


def attends(engine: LoadedModel) -> bool:
    """Return whether attention weights are available: a torch model of a family with attention."""
    return isinstance(engine.backend, TorchBackend) and engine.learner.backbone.attends


def attention_of(engine: LoadedModel, texts: Sequence[str], *, name: str = "") -> TextAttention:
    """Return the attention weights for a text or a pair; `name`: of the model, by default its folder's name.

    Raises UserError as `encode_texts` does, if the model is exported, and if it has no attention.
    """
    backbone = engine.learner.backbone
    return read_attention(backbone, encode_texts(engine, texts), name or display_name(engine.folder))


def encode_texts(engine: LoadedModel, texts: Sequence[str]) -> PlacedText:
    """Return the sequence of a text or a pair. If the model fills masks, [MASK] becomes its mask piece.

    Raises UserError if a text has no pieces, and for a pair if the model has one segment.
    """
    form = engine.tokenizer.form
    if len(texts) == 2 and form.second_segment >= engine.learner.backbone.architecture.segments:
        raise UserError(
            f"The model in {engine.folder} was trained without a second segment: it reads no pairs.",
            code="unsupported-model",
        )
    if engine.masks is not None:
        text_pieces = [encode_with_masks(text, engine.tokenizer) for text in texts]
    else:
        encodings = map(engine.tokenizer.encode_with_offsets, texts)
        text_pieces = [(encoding.ids, encoding.starts, encoding.ends) for encoding in encodings]
    for number, (ids, _, _) in enumerate(text_pieces, 1):
        if not len(ids):
            raise UserError(f"Text {number} is empty: there is nothing to attend to.", code="empty-text")
    return place_text(texts, engine.packer, text_pieces)
