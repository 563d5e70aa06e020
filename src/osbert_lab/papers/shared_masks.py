"""The encoders of a table on the same masked text: the held-out text of one row, with the masks of that row.

Held-out losses of rows that mask in other ways cannot be compared: a piece beside the rest of its word is easier to
predict than a whole word. Here the encoders of one seed predict the same positions of the same sequences.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from osbert.corpus.shards import Corpus
from osbert.errors import UserError
from osbert.files import read_own, write_sealed
from osbert.training.run_folder import RunFolder

# Modules that need torch are imported where they are needed: the settings of verbs are read without it.
SCORES = "shared-masks.json"
TARGET = "mlm"


@dataclass(frozen=True, kw_only=True)
class SharedMaskScore:
    """How well an encoder predicts `pieces` masked positions: mean `loss` in nats, and `accuracy` as a fraction."""

    loss: float
    accuracy: float
    pieces: int


def require_same_text(common: Path, other: Path) -> None:
    """Raise UserError if two corpora have other pieces: one would then train on what the other holds out."""
    corpora = [Corpus.open(folder) for folder in (common, other)]
    sizes = [(corpus.fingerprint, corpus.documents, corpus.tokens) for corpus in corpora]
    if sizes[0] != sizes[1] or not np.array_equal(corpora[0].counts, corpora[1].counts):
        raise UserError(
            f"{other} must hold the text of {common}, since the encoders of both are compared on the same held-out "
            "text. Build both from the same files with the same tokenizer and --documents.",
            code="invalid-setting",
        )


def score_masks(encoder: Path, masks: Path) -> SharedMaskScore | None:
    """Return the score of an encoder on the held-out text of the run `masks`; None if one of both is not finished.

    It is kept beside the encoder's folder. Raises UserError for a damaged file.
    """
    from osbert.runs.pretrain.start import KEPT_OUT

    if not (RunFolder(encoder).finished and RunFolder(masks).finished and (masks / KEPT_OUT).is_file()):
        return None
    path = encoder.with_name(SCORES)
    if path.is_file():
        return SharedMaskScore(**read_own(path, "Remove it and give the same command again."))
    score = _measure(encoder, masks / KEPT_OUT)
    write_sealed(path, asdict(score))
    return score


def _measure(encoder: Path, text: Path) -> SharedMaskScore:
    from osbert.data.batch import read_batches
    from osbert.evaluation.forward import evaluating
    from osbert.interop.folder import open_folder
    from osbert.models.contract import Learner

    opened, batches = open_folder(encoder), read_batches(text)
    learner = Learner(opened.backbone, {TARGET: opened.heads[TARGET]})
    with evaluating(learner) as device:
        losses = [learner(batch.to(device))[TARGET] for batch in batches]
    pieces = sum(len(batch.targets[TARGET].labels) for batch in batches)
    return SharedMaskScore(
        loss=sum(float(loss.total) for loss in losses) / pieces,
        accuracy=sum(float(loss.hits) for loss in losses if loss.hits is not None) / pieces,
        pieces=pieces,
    )
