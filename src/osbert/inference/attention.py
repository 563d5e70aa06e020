"""Attention weights of a model for a text or a pair."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from osbert.analysis.attention import PlacedText, TextAttention, TextPieces, place_text, read_attention
from osbert.data.pack import Packer
from osbert.errors import UserError
from osbert.inference.backend import Backend
from osbert.inference.fill import encode_with_masks
from osbert.inference.torch_backend import TorchBackend
from osbert.interop.hub import display_name
from osbert.models.contract import Learner
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert.text.file_tokenizer import AnyTokenizer


class AttentionSource(Protocol):
    """The model: an `inference.engine.Engine`, or another object with these members."""

    folder: Path
    masks: MaskedLanguageHead | None
    packer: Packer
    tokenizer: AnyTokenizer

    @property
    def learner(self) -> Learner:
        """The torch model."""
        ...


def attends(backend: Backend) -> bool:
    """Return whether attention weights are available: a torch model of a family with attention."""
    return isinstance(backend, TorchBackend) and backend.learner.backbone.attends


def attention_of(engine: AttentionSource, texts: Sequence[str], *, name: str = "") -> TextAttention:
    """Return the attention weights for a text or a pair; `name`: of the model, by default its folder's name.

    Raises UserError as `encode_texts` does, if the model is exported, and if it has no attention.
    """
    backbone = engine.learner.backbone
    return read_attention(backbone, encode_texts(engine, texts), name or display_name(engine.folder))


def encode_texts(engine: AttentionSource, texts: Sequence[str]) -> PlacedText:
    """Return the sequence of a text or a pair. If the model fills masks, [MASK] becomes its mask piece.

    Raises UserError if a text has no pieces, and for a pair if the model has one segment.
    """
    form = engine.tokenizer.form
    if len(texts) == 2 and form.second_segment >= engine.learner.backbone.architecture.segments:
        raise UserError(
            f"The model in {engine.folder} was trained without a second segment: it reads no pairs.",
            code="unsupported-model",
        )
    text_pieces = [_pieces(engine, text) for text in texts]
    for number, pieces in enumerate(text_pieces, 1):
        if not len(pieces.ids):
            raise UserError(f"Text {number} is empty: there is nothing to attend to.", code="empty-text")
    return place_text(texts, engine.packer, text_pieces)


def _pieces(engine: AttentionSource, text: str) -> TextPieces:
    if engine.masks is not None:
        return TextPieces(*map(np.asarray, encode_with_masks(text, engine.tokenizer)))
    encoding = engine.tokenizer.encode_with_offsets(text)
    return TextPieces(encoding.ids, encoding.starts, encoding.ends)
