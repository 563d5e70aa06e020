"""Many vectors a text: the states of its tokens after the model's Dense parts, without those that its mask skips.

Queries can be filled up with [MASK], whose states count as well (query augmentation, Khattab & Zaharia 2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Example
from osbert.data.long_texts import insert_run
from osbert.data.multi_vectors import MultiVectors
from osbert.data.pack import PieceRun
from osbert.errors import UserError
from osbert.evaluation.forward import TOKENS, batches, evaluating
from osbert.inference.embedder import Embedder
from osbert.inference.model import LoadedModel
from osbert.inference.vectors.settings import VectorSettings, normalize_vectors
from osbert.interop.colbert_files import LateInteraction
from osbert.interop.sentence_files import QUERY
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
        self.late: LateInteraction = model.late
        self.is_query = settings.role == QUERY
        ids = {piece: number for number, piece in enumerate(engine.tokenizer.vocabulary)}
        masks = [part for part in model.parts if isinstance(part, TokenMask) and settings.role in part.roles]
        # Words that are no single piece are not skipped: theirs is [UNK], and so is that of words that count.
        self.skipped = np.array([ids[word] for mask in masks for word in mask.skipped if word in ids], np.int64)
        self.filler = ids.get(self.late.piece) if self.late.piece else engine.tokenizer.mask
        if self.filler is None:
            raise UserError(
                f"{engine.folder}: queries are filled up with {self.late.piece!r:.40}, which is no piece of the "
                "tokenizer.",
                code="mismatched-tokenizer",
            )
        prefix = self.late.prefixes.get(settings.role or "", "")
        self.prefix = [ids[prefix]] if prefix in ids and settings.prompt.startswith(prefix) else []
        rest = settings.prompt.removeprefix(prefix) if self.prefix else settings.prompt
        shorter = replace(settings, prompt=rest, length=settings.length - len(self.prefix))
        self.is_ready = False  # the empty text of the first trial may have no token that counts
        super().__init__(engine, shorter, tokens=tokens)
        self.settings, self.is_ready = settings, True

    def sequences(self, texts: Sequence[str], record: int) -> list[Example]:
        """Return the sequences of a text or a pair, as `Embedder` does, each with its prefix, and filled up.

        Raises UserError if none of the text's tokens counts.
        """
        begin = len(self.packer.form.before)
        prefix = PieceRun.of(np.array(self.prefix, np.int32), self.packer.tokenizer)
        laid_out = super().sequences(texts, record)
        examples = [self._fill_up(insert_run(example, begin, prefix)) for example in laid_out]
        if self.is_ready and not any(self.counted(example).any() for example in examples):
            raise UserError(
                f"All tokens of the text {' '.join(texts)!r:.60} are among those that the model skips.",
                code="empty-text",
            )
        return examples

    def counted(self, example: Example) -> NDArray[np.bool_]:
        """Return which tokens (n,) of a sequence have vectors."""
        return ~np.isin(example.ids, self.skipped)

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
                    rows[index] = row[self.counted(flat[index])]
        pieces = (example.ids[self.counted(example)] for example in flat)
        by_window = MultiVectors.of(rows, pieces)
        self._require_finite(by_window.vectors)
        windows = np.cumsum([0, *map(len, groups)])
        return replace(by_window, starts=by_window.starts[windows])

    def _fill_up(self, example: Example) -> Example:
        missing = self.late.expansion - len(example) if self.is_query else 0
        if missing <= 0:
            return example
        unseen = None if self.late.attend else np.arange(len(example) + missing) >= len(example)
        return replace(
            example,
            ids=np.append(example.ids, np.full(missing, self.filler, example.ids.dtype)),
            segments=np.append(example.segments, np.zeros(missing, example.segments.dtype)),
            words=np.append(example.words, np.zeros(missing, np.bool_)),
            special=np.append(example.special, np.ones(missing, np.bool_)),
            unseen=unseen,
        )
