"""Texts -> how likely a pretrained model holds them, piece by piece."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from osbert.analysis.likelihood import LanguageModel
from osbert.analysis.scoring import Masking, PieceLikelihood, ScoringOptions, TextLikelihood
from osbert.data.pack import Packer, PieceRun
from osbert.errors import Problems, UserError
from osbert.models.contract import Learner
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert.text.file_tokenizer import AnyTokenizer


class PieceSource(Protocol):
    """What scores come from: an `inference.engine.Engine`, or another object with these."""

    folder: Path
    pieces: MaskedLanguageHead | None
    masks: MaskedLanguageHead | None
    tokenizer: AnyTokenizer

    @property
    def learner(self) -> Learner:
        """Return torch's model."""


def predicts_pieces(engine: PieceSource) -> bool:
    """Return whether a model predicts the pieces of a text that it reads; an encoder-decoder those of another text."""
    return engine.pieces is not None and not engine.learner.backbone.architecture.has_decoder


def language_model(engine: PieceSource) -> LanguageModel:
    """Return what predicts pieces in a model. Raises UserError where nothing does."""
    if engine.pieces is None or not predicts_pieces(engine):
        raise UserError(
            f"The model in {engine.folder} does not predict pieces of a text that it reads: that needs a pretrained "
            "encoder or a left-to-right model with its language head, which no exported or fine-tuned model has, and "
            "no encoder-decoder.",
            code="unsupported-model",
        )
    return LanguageModel(engine.learner, engine.pieces, engine.tokenizer.mask if engine.masks else -1)


def score_samples(
    model: LanguageModel, packer: Packer, options: ScoringOptions, first: int, given: Sequence[Sequence[str]]
) -> list[TextLikelihood]:
    """Return how likely each of some texts is, the first of which is texts[first] of a call.

    Raises UserError that lists every one that is empty, too long, or more than a text.
    """
    problems = Problems(heading="These texts cannot be scored")
    for place, sample in enumerate(given, first):
        if len(sample) > 1:
            problems.add(f"texts[{place}]: {len(sample)} texts, not one.", code="wrong-number-of-texts")
        refuse_unscorable(packer, sample[0], f"texts[{place}]", problems)
    problems.stop_if_any()
    return score_texts(model, packer, [sample[0] for sample in given], options.masking)


def score_texts(model: LanguageModel, packer: Packer, texts: Sequence[str], masking: Masking) -> list[TextLikelihood]:
    """Return how likely each text is. Raises UserError where the scores are not finite.

    The texts fit: `refuse_unscorable` has passed.
    """
    tokenizer = packer.tokenizer
    cut = [tokenizer.encode_with_offsets(text) for text in texts]
    runs = [PieceRun.of(one.ids.astype(np.int32), tokenizer) for one in cut]
    found = model.log_probabilities([packer.single(*run) for run in runs], masking=masking)
    scores = []
    for text, offsets, run, values in zip(texts, cut, runs, found, strict=True):
        unscored = model.causal and not packer.form.before
        if not np.isfinite(values[int(unscored) :]).all():
            raise UserError(
                "The model gives scores that are NaN or infinite: its weights are damaged, or its training has failed. "
                "Copy it again, or train it again.",
                code="not-finite",
            )
        bounds = zip(tokenizer.tokens(run.ids.tolist()), offsets.starts.tolist(), offsets.ends.tolist(), strict=True)
        pieces = [
            PieceLikelihood(piece=piece, start=start, end=end, log_probability=None if np.isnan(value) else value)
            for (piece, start, end), value in zip(bounds, values.tolist(), strict=True)
        ]
        unknown = int((run.ids == _unknown(tokenizer)).sum())
        scores.append(TextLikelihood.of(text, pieces, starts=run.words.tolist(), unknown=unknown))
    return scores


def _unknown(tokenizer: AnyTokenizer) -> int:
    """Return the piece for what no other piece spells, -1 where bytes spell everything."""
    try:
        return tokenizer.unknown
    except UserError:
        return -1


def refuse_unscorable(packer: Packer, text: str, place: str, problems: Problems) -> None:
    """Note a text of which the tokenizer leaves nothing, and one that does not fit; `place` names it."""
    count = len(packer.tokenizer.encode(text))
    if not count:
        problems.add(f"{place}: the text is empty: there is nothing to score.", code="empty-text")
    elif count > packer.room(1):
        problems.add(
            f"{place}: {count:,} pieces, and the model reads {packer.room(1):,} at most. Cut the text into sentences.",
            code="text-too-long",
        )
