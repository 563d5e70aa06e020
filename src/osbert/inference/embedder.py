"""Sentence vectors: pooling, layers, windows for long texts, normalisation; NaN and infinity are errors.

The model's training decides the defaults: its pooling, its length, and whether vectors are normalised.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Example
from osbert.data.long_texts import lay_out_texts
from osbert.errors import Problems, UserError
from osbert.evaluation.forward import TOKENS
from osbert.inference.model import LoadedModel
from osbert.inference.vectors.settings import EmbeddingOptions, Layers, VectorSettings, normalize_vectors
from osbert.interop.sentence_files import DOCUMENT, Prompts, SentenceModel
from osbert.interop.sentence_parts import VectorPart, apply_parts, hash_parts
from osbert.models.forms import vector_kind

SHORTEST = 5
"""Fewest tokens of a sequence: a pair has three special tokens and a piece of each text."""
PROMPTS_NAMED = 3
"""Most prompts that a remark names: some models have one for each task."""


def vector_settings(options: EmbeddingOptions, engine: LoadedModel) -> VectorSettings:
    """Return the settings for vectors. Options that are None take the model's own prompt, pooling, length and so on.

    Raises UserError that lists every setting which the model does not support.
    """
    longest = engine.packer.length
    model = engine.sentence_model(options.pooling) or SentenceModel(pooling="mean", normalize=False)
    per_token = options.pooling == "tokens"  # the states of the encoder itself, but for a role that is named
    pooling = options.pooling or model.pooling
    role = DOCUMENT if vector_kind(pooling) == "multi" and options.role is None else options.role
    length = options.length or min((not per_token and model.length_of(role)) or longest, longest)
    normalize = (model.normalize and not per_token) if options.normalize is None else options.normalize
    has_parts = pooling == model.pooling and options.layers in ("-1", "last", str(engine.backend.architecture.layers))
    problems = Problems(heading="These settings of vectors cannot be used")
    prompt = ""
    try:
        prompt = "" if per_token and options.role is None else model.prompts.of(role)
    except UserError as error:
        problems.add(str(error), code="invalid-value")
    settings = VectorSettings(
        pooling=pooling, layers=options.layers, normalize=normalize, length=length, long=options.long,
        overlap=options.overlap, role=role, prompt=prompt, prompt_pooled=model.prompts.pooled or not prompt,
        lower_case=model.lower_case and not (per_token and options.role is None),
        parts=hash_parts(model.parts) if has_parts else "",
        dimensions=options.dimensions or (model.dimensions if has_parts and not per_token else 0),
    )  # fmt: skip
    for problem in settings.problems():
        problems.add(problem, code="invalid-value")
    if not SHORTEST <= length <= longest:
        problems.add(
            f"--length must be from {SHORTEST} to {longest:,}, the model's length, not {length}.",
            code="invalid-value",
        )
    problems.stop_if_any()
    return settings


def remarks(options: EmbeddingOptions, engine: LoadedModel) -> list[str]:
    """Return remarks for the user: the source of the settings, and uses that the model was not trained for."""
    settings = vector_settings(options, engine)
    model = None if options.pooling == "tokens" else engine.sentence_model(options.pooling)
    lines = [*_list_remarks(engine, settings, model)]
    if settings.layers.endswith("-last-four") and (blocks := engine.backend.architecture.layers) < 4:
        lines.append(f"{engine.folder} has fewer layers ({blocks}) than the four of --layers {settings.layers}")
    trained = engine.sentence_model()
    known = (0, trained.dimensions if trained else 0)
    if settings.dimensions not in known and settings.dimensions not in engine.source.matryoshka:
        lines.append(
            f"{engine.folder} does not say that it was trained for vectors of {settings.dimensions} numbers "
            "(Matryoshka): compare a search with one of the full vectors"
        )
    return lines


def _list_remarks(engine: LoadedModel, settings: VectorSettings, model: SentenceModel | None) -> Iterator[str]:
    folder = engine.folder
    if engine.backend.architecture.layers == 0 and settings.pooling != "tokens":
        yield f"{folder} is a table of static vectors, one a piece: {describe(settings)}"
    elif model is not None:
        kind = "sentence" if model.kind == "dense" else model.kind
        yield f"{folder} was trained for {kind} vectors: {describe(settings)}"
        if model.parts and not settings.parts:
            kinds = ", ".join(part.kind for part in model.parts)
            yield f"{folder} has further parts ({kinds}) for its own pooling of the last layer: not applied here"
        if settings.role is None and not settings.prompt:
            yield from name_prompts(model.prompts)
        if settings.kind == "dense" and not settings.normalize and model.similarity != "cosine":
            yield (
                f"{folder} was trained for vectors that are compared by {model.similarity}; osbert search compares "
                "their cosines"
            )
    elif settings.kind == "sparse":
        yield f"{folder} does not say that it was trained for sparse vectors (SPLADE): most weights may not be 0"
    elif settings.pooling != "tokens":
        yield (
            f"{folder} was not trained for sentence vectors, so similar texts need not have similar vectors (train it "
            f"with osbert finetune contrastive). {describe(settings).capitalize()}"
        )


def name_prompts(prompts: Prompts) -> Iterator[str]:
    """Yield a remark on the prompts of a model if there are some, of which no role has named one."""
    listed = [f"{name[:60]}: {prompt[:60]!r}" for name, prompt in prompts.texts.items() if prompt]
    if listed:
        more = f" and {len(listed) - PROMPTS_NAMED} more" if len(listed) > PROMPTS_NAMED else ""
        yield (
            f"The model was trained with prompts ({', '.join(listed[:PROMPTS_NAMED])}{more}), and none is applied "
            "without a role. Give one, such as document or query."
        )


def describe(settings: VectorSettings) -> str:
    """Describe settings for the user."""
    length = "of length 1" if settings.normalize else "as they come"
    role = "" if settings.role is None else f"role {settings.role}, "
    prompt = f"prompt {settings.prompt[:60]!r}, " if settings.prompt or role else ""
    parts = "then its Dense parts, " if settings.parts else ""
    cut = f"the first {settings.dimensions} numbers, " if settings.dimensions else ""
    return (
        f"{role}{prompt}pooling {settings.pooling}, layers {settings.layers}, {parts}{cut}at most {settings.length} "
        f"tokens, vectors {length}"
    )


class Embedder:
    """Computes vectors for the library, the commands and the server; `tokens`: most tokens in a batch."""

    def __init__(self, engine: LoadedModel, settings: VectorSettings, *, tokens: int = TOKENS) -> None:
        """Check the settings. Raises UserError if the model lacks the layers or the pooler."""
        self.engine = engine
        self.settings = settings
        self.tokens = tokens
        self.layers = Layers.read(settings.layers, engine.backend.architecture.layers)
        self.packer = replace(engine.packer, length=settings.length)
        self.width = engine.backend.architecture.width * (settings.pooling.count("+") + 1)
        self.prompt = settings.prompt.lower() if settings.lower_case else settings.prompt
        self.skip = 0
        if not settings.prompt_pooled:  # sentence-transformers then leaves out the special tokens before it, too
            self.skip = len(self.packer.form.before) + len(self.packer.run(self.prompt).ids)
        self.parts = self._find_parts()
        if settings.dimensions > self.shape[-1]:
            raise UserError(
                f"The vectors of {engine.folder} have {self.shape[-1]} numbers: dimensions must be from 1 to "
                f"{self.shape[-1]}, not {settings.dimensions}.",
                code="invalid-value",
            )
        if settings.pooling == "pooler" and not engine.backend.pooler:
            raise UserError(
                f"{engine.folder} has no trained pooler. Use --pooling mean, cls, max or tokens.",
                code="unsupported-model",
            )
        top = (-1, engine.backend.architecture.layers)
        if settings.pooling == "pooler" and (self.layers.joined != "alone" or self.layers.numbers[0] not in top):
            raise UserError(
                "The pooler reads the last layer. Remove --layers, or choose another --pooling.",
                code="options-exclude-each-other",
            )
        # One vector now: an error of the model is reported before the work, not in the middle of it.
        self.vectors([self.sequences(("",), 0)])

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a vector: (D,), (layers, D) for stacked layers, or (layers * D,) for concatenated ones."""
        width, count, most = self.width, len(self.layers.numbers), self.settings.dimensions or None
        if self.layers.joined == "stack":
            return (count, len(range(width)[:most]))
        return (len(range(count * width if self.layers.joined == "concat" else width)[:most]),)

    def sequences(self, texts: Sequence[str], record: int) -> list[Example]:
        """Return the sequences of a text or a pair: one, or several windows of a long text.

        `truncated` of each counts the pieces that were left out. Raises UserError for a pair if the model cannot read
        pairs, and for more than two texts.
        """
        if len(texts) > 2:
            raise UserError(
                f"A vector is of one text or of a pair, not of {len(texts)} texts.", code="wrong-number-of-texts"
            )
        if len(texts) == 2 and self.engine.backend.architecture.segments == 1:
            raise UserError(
                f"The model in {self.engine.folder} was trained without a second segment (segments = 1) and cannot "
                "read pairs.",
                code="unsupported-model",
            )
        settings = self.settings
        if settings.lower_case:
            texts = [text.lower() for text in texts]
        return lay_out_texts(
            texts, self.packer, prompt=self.prompt, long=settings.long, overlap=settings.overlap, record=record
        )

    def vectors(self, groups: Sequence[Sequence[Example]]) -> Any:
        """Return the vectors (n, *shape) of n texts, given as their sequences.

        The vector of a text with several sequences is their mean. Without pooling: a list of n arrays
        (tokens, *shape). Raises UserError if a number is NaN or infinite.
        """
        flat = [example for group in groups for example in group]
        backend, pooling = self.engine.backend, self.settings.pooling
        # L blocks give L + 1 layers, the embedding output included: the modulus makes negative numbers positive.
        layers = [number % (backend.architecture.layers + 1) for number in self.layers.numbers]
        rows = backend.vectors(flat, pooling=pooling, layers=layers, tokens=self.tokens, skip=self.skip)  # (layers, D)
        if pooling == "tokens":
            return [self._require_finite(self._join_layers(row)) for row in rows]
        if not rows:
            return np.empty((0, *self.shape), np.float32)
        joined = apply_parts(self.parts, self._join_layers(np.stack(rows)))
        counts = np.array([len(group) for group in groups])
        if len(groups) != len(flat):
            # Mean over windows: reduceat sums the rows from each text's first window to the next text's.
            firsts = np.concatenate([[0], np.cumsum(counts)[:-1]])
            joined = np.add.reduceat(joined, firsts, axis=0) / counts.reshape(-1, *[1] * (joined.ndim - 1))
        joined = joined[..., : self.settings.dimensions or None]
        return self._require_finite(
            normalize_vectors(joined) if self.settings.normalize else joined.astype(np.float32, copy=False)
        )

    def _find_parts(self) -> tuple[VectorPart, ...]:
        """Return the parts that follow the pooling, and set the width of their vectors.

        Raises UserError if they are not those of the settings, or read vectors of another width.
        """
        if not self.settings.parts:
            return ()
        model = self.engine.sentence_model()
        if model is None or hash_parts(model.parts) != self.settings.parts:
            raise UserError(
                f"The vectors were made with other parts after the pooling, such as Dense, than {self.engine.folder} "
                "has.",
                code="mismatched-base",
            )
        try:
            for part in model.parts:
                self.width = part.width(self.width)
        except ValueError as error:
            raise UserError(f"{self.engine.folder}: {error}. Copy it again.", code="damaged-file") from error
        return model.parts

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
                f"The model in {self.engine.folder} gives vectors with NaN or infinite numbers: its weights are "
                "damaged, or its training diverged. No vectors were written.",
                code="not-finite",
            )
        return values


def embed_samples(embedder: Embedder, first: int, given: Sequence[Sequence[str]]) -> Any:
    """Return the vectors of samples; the first is texts[first]. Raises UserError for long texts if long="error"."""
    groups = [embedder.sequences(sample, index) for index, sample in enumerate(given)]
    if embedder.settings.long == "error":
        problems, length = Problems(heading='These texts are too long (long="error")'), embedder.settings.length
        for index, group in enumerate(groups, first):
            if cut := sum(example.truncated for example in group):
                problems.add(f"texts[{index}]: {cut:,} pieces too many for {length} tokens.", code="text-too-long")
        problems.stop_if_any()
    return embedder.vectors(groups)
