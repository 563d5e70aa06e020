"""Many vectors a text: the states of its tokens after the model's Dense parts, without those that its mask skips.

Queries can be filled up with [MASK], whose states count as well (query augmentation, Khattab & Zaharia 2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Example
from osbert.data.late_interaction import RoleLayout
from osbert.data.multi_vectors import MultiVectors
from osbert.errors import UserError
from osbert.evaluation.forward import TOKENS, batches, evaluating
from osbert.inference.embedder import Embedder
from osbert.inference.model import LoadedModel
from osbert.inference.vectors.settings import VectorSettings, normalize_vectors
from osbert.interop.sentence_parts import TokenMask, apply_parts


class MultiEmbedder(Embedder):
    """Computes the vectors (tokens, D) of texts."""

    def __init__(self, engine: LoadedModel, settings: VectorSettings, *, tokens: int = TOKENS) -> None:
        """Check the settings. Raises UserError if the model was not trained for many vectors a text."""
        model = engine.sentence_model()
        if model is None or model.late is None:
            raise UserError(
                f"{engine.folder} was not trained for many vectors a text (--pooling {settings.pooling}).",
                code="unsupported-model",
            )
        self.learner = engine.learner
        masks = [part for part in model.parts if isinstance(part, TokenMask) and settings.role in part.roles]
        self.layout = RoleLayout.of(
            model.late,
            engine.tokenizer,
            role=settings.role or "",
            prompt=settings.prompt,
            skipped=[word for mask in masks for word in mask.skipped],
        )
        length = settings.length - len(self.layout.marker.ids)
        self.is_ready = False  # the empty text of the first trial may have no token that counts
        super().__init__(engine, replace(settings, prompt=self.layout.prompt, length=length), tokens=tokens)
        self.settings, self.is_ready = settings, True

    def sequences(self, texts: Sequence[str], record: int) -> list[Example]:
        """Return the sequences of a text or a pair, as `Embedder` does, each with its prefix, and filled up.

        Raises UserError if none of the text's tokens counts.
        """
        begin = len(self.packer.form.before)
        examples = [self.layout.complete(example, begin) for example in super().sequences(texts, record)]
        if self.is_ready and not any(counted(example).any() for example in examples):
            raise UserError(
                f"All tokens of the text {' '.join(texts)!r:.60} are among those that the model skips.",
                code="empty-text",
            )
        return examples

    def vectors(self, groups: Sequence[Sequence[Example]]) -> MultiVectors:
        """Return the vectors of n texts, given as their sequences: those of all windows of a text.

        Raises UserError if a number is NaN or infinite.
        """
        flat = [example for group in groups for example in group]
        if not flat:
            return MultiVectors(np.empty((0, *self.shape), np.float32), np.zeros(1, np.int64), np.empty(0, np.int64))
        rows: list[NDArray[np.float32]] = [np.empty(0, np.float32)] * len(flat)
        with evaluating(self.learner) as device:
            for batch in batches(flat, tokens=self.tokens):
                states = self.learner.backbone(batch.to(device)).hidden.float().cpu().numpy()
                projected = apply_parts(self.parts, states)
                projected = normalize_vectors(projected) if self.settings.normalize else projected
                ends = np.cumsum(batch.lengths)[:-1]
                for index, row in zip(batch.records.tolist(), np.split(projected, ends), strict=True):
                    rows[index] = row[counted(flat[index])]
        pieces = (example.ids[counted(example)] for example in flat)
        by_window = MultiVectors.of(rows, pieces)
        self._require_finite(by_window.vectors)
        windows = np.cumsum([0, *map(len, groups)])
        return replace(by_window, starts=by_window.starts[windows])


def counted(example: Example) -> NDArray[np.bool_]:
    """Return which tokens (n,) of a sequence have vectors."""
    assert example.head_words is not None  # `RoleLayout.complete` has set them
    return example.head_words
