"""Sentence vectors: pooling, layers, windows for long texts, normalisation; NaN and infinity are errors.

The model's training decides the defaults: its pooling, its length, and whether vectors are normalised.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Example
from osbert.data.long_texts import lay_out
from osbert.errors import Problems, UserError
from osbert.evaluation.forward import TOKENS
from osbert.inference.model import LoadedModel
from osbert.inference.vectors.settings import EmbeddingOptions, Layers, VectorSettings, normalize_vectors
from osbert.interop.sentence_files import SentenceModel

SHORTEST = 5
"""Fewest tokens of a sequence: a pair has three special tokens and a piece of each text."""


def vector_settings(options: EmbeddingOptions, engine: LoadedModel) -> VectorSettings:
    """Return the settings for vectors. Options that are None take the model's own pooling, length or normalisation.

    Raises UserError that lists every setting which the model does not support.
    """
    model = _own(engine, options)
    longest = engine.packer.length
    usual = model or SentenceModel(pooling="mean", normalize=False)
    pooling = options.pooling or usual.pooling
    length = options.length or min(usual.length or longest, longest)
    normalize = usual.normalize and pooling != "tokens" if options.normalize is None else options.normalize
    settings = VectorSettings(
        pooling=pooling, layers=options.layers, normalize=normalize, length=length, long=options.long,
        overlap=options.overlap,
    )  # fmt: skip
    problems = Problems(heading="These vectors cannot be made")
    for problem in settings.problems():
        problems.add(problem, code="invalid-value")
    if not SHORTEST <= length <= longest:
        problems.add(
            f"--length must be from {SHORTEST} to {longest:,}, the most that the model reads: not {length}.",
            code="invalid-value",
        )
    problems.stop_if_any()
    return settings


def remarks(options: EmbeddingOptions, engine: LoadedModel) -> list[str]:
    """Return remarks for the user: the source of the settings, and uses that the model was not trained for."""
    settings, model = vector_settings(options, engine), _own(engine, options)
    return [*_list_remarks(engine.folder, settings, model), *_fewer(settings, engine)]


def _own(engine: LoadedModel, options: EmbeddingOptions) -> SentenceModel | None:
    return None if options.pooling == "tokens" else engine.sentence_model(options.pooling)


def _list_remarks(folder: Path, settings: VectorSettings, model: SentenceModel | None) -> Iterator[str]:
    if model is not None:
        yield from model.remarks
        yield f"{folder} was trained for sentence vectors: {describe(settings)}"
    elif settings.pooling != "tokens":
        yield (
            f"{folder} was not trained for sentence vectors: nothing has taught it that alike texts get near vectors "
            f"(osbert finetune contrastive teaches it). {describe(settings).capitalize()}"
        )


def _fewer(settings: VectorSettings, engine: LoadedModel) -> Iterator[str]:
    blocks = engine.backend.architecture.layers
    if settings.layers.endswith("-last-four") and blocks < 4:
        yield f"{engine.folder} has only {blocks} of the four layers that --layers {settings.layers} takes"


def describe(settings: VectorSettings) -> str:
    """Describe settings for the user."""
    length = "of length 1" if settings.normalize else "as they come"
    return f"pooling {settings.pooling}, layers {settings.layers}, at most {settings.length} tokens, vectors {length}"


class Embedder:
    """Computes vectors for the library, the commands and the server; `tokens`: most tokens in a batch."""

    def __init__(self, engine: LoadedModel, settings: VectorSettings, *, tokens: int = TOKENS) -> None:
        """Check the settings. Raises UserError if the model lacks the layers or the pooler."""
        self.engine = engine
        self.settings = settings
        self.tokens = tokens
        self.layers = Layers.read(settings.layers, engine.backend.architecture.layers)
        self.packer = replace(engine.packer, length=settings.length)
        if settings.pooling == "pooler":
            self._require_pooler()
        # One vector now: an error of the model is reported before the work, not in the middle of it.
        self.vectors([self.sequences(("",), 0)])

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a vector: (D,), (layers, D) for stacked layers, or (layers * D,) for concatenated ones."""
        width, count = self.engine.backend.architecture.width, len(self.layers.numbers)
        if self.layers.joined == "stack":
            return (count, width)
        return (count * width,) if self.layers.joined == "concat" else (width,)

    def sequences(self, texts: Sequence[str], record: int) -> list[Example]:
        """Return the sequences of a text or a pair: one, or several windows of a long text.

        `truncated` of each counts the pieces that were left out. Raises UserError for a pair if the model cannot read
        pairs, and for more than two texts.
        """
        if len(texts) > 2:
            raise UserError(
                f"A text or a pair can be embedded, not {len(texts)} texts at once.", code="wrong-number-of-texts"
            )
        if len(texts) == 2 and self.engine.backend.architecture.segments == 1:
            raise UserError(
                f"The model in {self.engine.folder} was trained without a second segment (segments = 1): it reads no "
                "pairs.",
                code="unsupported-model",
            )
        runs = [self.packer.run(text) for text in texts]
        long, overlap = self.settings.long, self.settings.overlap
        return lay_out(runs, self.packer, long=long, overlap=overlap, record=record)

    def vectors(self, groups: Sequence[Sequence[Example]]) -> Any:
        """Return the vectors (n, *shape) of n texts, given as their sequences.

        The vector of a text with several sequences is their mean. Without pooling: a list of n arrays
        (tokens, *shape). Raises UserError if a number is NaN or infinite.
        """
        flat = [example for group in groups for example in group]
        backend, pooling = self.engine.backend, self.settings.pooling
        # L blocks give L + 1 layers, the embedding output included: the modulus makes negative numbers positive.
        layers = [number % (backend.architecture.layers + 1) for number in self.layers.numbers]
        rows = backend.vectors(flat, pooling=pooling, layers=layers, tokens=self.tokens)  # (layers, D) each
        if pooling == "tokens":
            return [self._require_finite(self._join_layers(row)) for row in rows]
        if not rows:
            return np.empty((0, *self.shape), np.float32)
        joined = self._join_layers(np.stack(rows))
        counts = np.array([len(group) for group in groups])
        if len(groups) != len(flat):
            # Mean over windows: reduceat sums the rows from each text's first window to the next text's.
            firsts = np.concatenate([[0], np.cumsum(counts)[:-1]])
            joined = np.add.reduceat(joined, firsts, axis=0) / counts.reshape(-1, *[1] * (joined.ndim - 1))
        return self._require_finite(
            normalize_vectors(joined) if self.settings.normalize else joined.astype(np.float32, copy=False)
        )

    def _require_pooler(self) -> None:
        """Raise UserError if the model has no trained pooler, or other layers than the last are chosen."""
        if not self.engine.backend.pooler:
            raise UserError(
                f"{self.engine.folder} has no pooler (it was trained without one): take --pooling mean, cls, max or "
                "tokens.",
                code="unsupported-model",
            )
        if self.layers.joined != "alone" or self.layers.numbers[0] not in (-1, self.engine.backend.architecture.layers):
            raise UserError(
                "The pooler stands on the last layer; other layers cannot be chosen with it.",
                code="options-exclude-each-other",
            )

    def _join_layers(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Join the layers (n, layers, D) as the settings say: stacked, averaged, or concatenated to (n, layers * D)."""
        if self.layers.joined == "stack":
            return rows
        if self.layers.joined == "mean":
            return rows.mean(axis=1, dtype=np.float32)
        return rows.reshape(len(rows), -1)

    def _require_finite(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        if not np.isfinite(values).all():
            raise UserError(
                f"The model in {self.engine.folder} gives vectors with infinite or undefined numbers. Its weights are "
                "damaged, or its training has failed; nothing of them was written.",
                code="not-finite",
            )
        return values


def embed_samples(embedder: Embedder, first: int, given: Sequence[Sequence[str]]) -> Any:
    """Return the vectors of samples; the first is texts[first]. Raises UserError for long texts if long="error"."""
    groups = [embedder.sequences(sample, index) for index, sample in enumerate(given)]
    if embedder.settings.long == "error":
        _refuse_cut(groups, embedder.settings.length, first)
    return embedder.vectors(groups)


def _refuse_cut(groups: Sequence[Sequence[Example]], length: int, first: int) -> None:
    problems = Problems(heading='These texts are too long (long="error")')
    for index, group in enumerate(groups, first):
        if cut := sum(example.truncated for example in group):
            problems.add(f"texts[{index}]: {cut:,} pieces more than fit into {length} tokens.", code="text-too-long")
    problems.stop_if_any()
