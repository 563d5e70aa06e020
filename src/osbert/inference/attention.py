"""A text, or a pair, read by a model: what its heads attend to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from osbert.analysis.attention import PlacedText, TextAttention, TextPieces, place_text, read_attention
from osbert.data.pack import Packer
from osbert.errors import UserError
from osbert.inference.backend import Backend
from osbert.inference.fill import masked_pieces
from osbert.inference.torch_backend import TorchBackend
from osbert.models.contract import Learner
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert.text.file_tokenizer import AnyTokenizer


class AttentionSource(Protocol):
    """What attention is read of: an `inference.engine.Engine`, or another object with these."""

    folder: Path
    masks: MaskedLanguageHead | None
    packer: Packer
    tokenizer: AnyTokenizer

    @property
    def learner(self) -> Learner:
        """Return torch's model."""
        ...


def attends(backend: Backend) -> bool:
    """Return whether there is attention to be read of a model: torch computes it, and its family has some."""
    return isinstance(backend, TorchBackend) and backend.learner.backbone.attends


def attention_of(engine: AttentionSource, texts: Sequence[str], *, name: str = "") -> TextAttention:
    """Return what the heads attend to in a text or in two; `name`: the model's, else its folder's.

    Raises UserError as `placed` does, if the model is exported, and if it has no attention.
    """
    backbone = engine.learner.backbone
    return read_attention(backbone, placed(engine, texts), name or engine.folder.name)


def placed(engine: AttentionSource, texts: Sequence[str]) -> PlacedText:
    """Return a text or two as the model reads them, [MASK] as its mask where it fills masks.

    Raises UserError if a text holds nothing to read, and at two where the model knows no second segment.
    """
    form = engine.tokenizer.form
    if len(texts) == 2 and form.second_segment >= engine.learner.backbone.architecture.segments:
        raise UserError(
            f"The model in {engine.folder} was trained without a second segment: it reads no pairs.",
            code="unsupported-model",
        )
    found = [_pieces(engine, text) for text in texts]
    for number, pieces in enumerate(found, 1):
        if not len(pieces.ids):
            raise UserError(f"Text {number} is empty: there is nothing to attend to.", code="empty-text")
    return place_text(texts, engine.packer, found)


def _pieces(engine: AttentionSource, text: str) -> TextPieces:
    if engine.masks is not None:
        return TextPieces(*map(np.asarray, masked_pieces(text, engine.tokenizer)))
    found = engine.tokenizer.encode_with_offsets(text)
    return TextPieces(found.ids, found.starts, found.ends)
