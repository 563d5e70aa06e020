"""A loaded model: texts in, vectors and predictions out, in the order given."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from osbert import components, recipe
from osbert.data.example import Example
from osbert.errors import UserError
from osbert.evaluation.forward import TOKENS
from osbert.evaluation.score import Score, require_labels
from osbert.inference.embedder import Embedder, embed_samples, vector_settings
from osbert.inference.model import LoadedModel, Text, TorchBackend, Vectors, samples, windows
from osbert.inference.vectors.settings import EmbeddingOptions, VectorSettings
from osbert.interop.files.weight_files import ONNX
from osbert.interop.folder import Folder, open_folder
from osbert.interop.opening import CAREFUL, Opening
from osbert.models.contract import Learner
from osbert.signatures import takes_settings_of
from osbert.training.processor import choose

if TYPE_CHECKING:
    from typing import Unpack

    from osbert.analysis.attention import TextAttention
    from osbert.analysis.explanation import Explanation
    from osbert.inference.onnx_backend import OnnxBackend
    from osbert.inference.pieces import MaskFill
    from osbert.keywords import AttributionKeywords, LikelihoodKeywords, NamingKeywords, VectorKeywords
    from osbert.tasks import Prediction, Record, Task

    EngineLabels = Iterable[str] | Mapping[str, str] | Sequence[Sequence[str]]

# What one call alone needs is imported by it, so that a model that embeds or predicts starts sooner.

LayerChoice = str | int | Sequence[int]
"""One layer or several: numbers, or a name that `osbert embed --layers` accepts."""


class Engine(LoadedModel):
    """A model with its tokenizer; made by `load`. `task` is None for an encoder that was not fine-tuned.

    >>> model = osbert.load("run")
    >>> model.task.name, model.folder.name, len(model.tokenizer.vocabulary)
    ('classify', 'run', 16)
    """

    if TYPE_CHECKING:  # what osbert_lab adds; with __getattr__, type checkers would take any misspelt name
        generate: Callable[..., Any]
        stream: Callable[..., Any]
    else:

        def __getattr__(self, name: str) -> Any:
            """Return a call that a package adds to models by an entry point in the group `osbert.inference.calls`."""
            if call := components.extension("inference.calls", name):
                return call.load().__get__(self)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        """Return the folder and the task, for notebooks."""
        return f"{type(self).__name__}({str(self.folder)!r}, task={self.task.name if self.task else None!r})"

    def __fspath__(self) -> str:
        """Return the folder, so that a model may be given in place of its path."""
        return str(self.folder)

    @cached_property
    def _embedders(self) -> dict[tuple[EmbeddingOptions, int], Embedder]:
        return {}

    @property
    def explains(self) -> bool:
        """Whether `explain` works: it needs a torch model, and a task that defines the scores to explain."""
        from osbert.analysis.attribution import can_be_weighed
        from osbert.tasks import Task

        known = self.masks is not None or (self.task is not None and type(self.task).explain is not Task.explain)
        return known and isinstance(self.backend, TorchBackend) and can_be_weighed(self.learner)

    @property
    def writes(self) -> bool:
        """Whether the model can generate text."""
        if self.task is not None and self.task.form == "text":
            return True
        return self.pieces is not None and self.learner.backbone.writes(self.pieces)

    @overload
    def predict(
        self,
        texts: Iterator[Text],
        *,
        labels: EngineLabels | None = None,
        tokens: int = TOKENS,
        **options: Unpack[NamingKeywords],
    ) -> Iterator[Prediction]: ...

    @overload
    def predict(
        self,
        texts: Collection[Text],
        *,
        labels: EngineLabels | None = None,
        tokens: int = TOKENS,
        **options: Unpack[NamingKeywords],
    ) -> list[Prediction]: ...

    @takes_settings_of("osbert.inference.label_settings:NamingOptions")
    def predict(
        self,
        texts: Iterator[Text] | Collection[Text],
        *,
        labels: EngineLabels | None = None,
        tokens: int = TOKENS,
        **options: Unpack[NamingKeywords],
    ) -> Iterator[Prediction] | list[Prediction]:
        """Return the task's prediction for each text, or for each tuple of texts that the task reads together.

        For an iterator, such as a generator or an open file, the result is an iterator, too, in the same order. It
        reads ahead by at most one window of texts (`windows`).

        `labels`: predict these classes, which the model was not trained for: names, or descriptions by name, or a list
        of names for each text (docs/classes-by-name.md). `options`, with labels alone: the fields of NamingOptions, as
        in `osbert predict`: multi, template and calibrate.

        `tokens`: most tokens in a batch. Raises UserError if the model was not fine-tuned, if a sample has the wrong
        number of texts (one instead of a pair, or a pair instead of one), and with labels if the model is none of
        entailment, sentences or masks.

        >>> model = osbert.load("run")
        >>> [prediction] = model.predict(["the good film"])
        >>> prediction.value, prediction.probabilities["pos"] > 0.5
        ('pos', True)
        >>> endless = model.predict(text for text in iter(lambda: "a bad film", None))
        >>> next(endless).value
        'neg'
        >>> [prediction] = osbert.load("encoder").predict(["the [MASK] film"], labels=["good", "bad"])
        >>> sorted(prediction.probabilities)
        ['bad', 'good']
        """
        if labels is not None or options:
            from osbert.inference.label_predictor import predict_names
            from osbert.inference.label_settings import NamingOptions

            chosen = recipe.settings(NamingOptions, options)
            return predict_names(self, texts, () if labels is None else labels, chosen, tokens=tokens)
        given = texts if isinstance(texts, Iterator) else samples(texts, "predict")
        task = self.fine_tuned
        if isinstance(given, Iterator):
            parts = ([task.record_of(sample) for sample in window] for _, window in windows(given, "predict"))
            return chain.from_iterable(self.predict_records(part, tokens=tokens) for part in parts)
        return self.predict_records([task.record_of(sample) for sample in given], tokens=tokens)

    def predict_records(self, records: Sequence[Record], *, tokens: int = TOKENS) -> list[Prediction]:
        """Return the task's prediction for each record. Labels are ignored."""
        return self._predict_records(self.fine_tuned, records, tokens)

    def evaluate(self, task: Task, records: Sequence[Record], *, tokens: int = TOKENS) -> Score:
        """Return predictions and metrics for records of `task`, which is the engine's task on other data.

        Raises UserError if a record has no label.
        """
        require_labels(records)
        predictions = self._predict_records(task, records, tokens)
        return Score(metrics=task.metrics(predictions, records), predictions=predictions)

    @takes_settings_of(EmbeddingOptions)
    def embed(
        self,
        texts: Iterator[Text] | Collection[Text],
        *,
        layers: LayerChoice = "-1",
        tokens: int = TOKENS,
        **options: Unpack[VectorKeywords],
    ) -> Any:
        """Return the vectors of texts, or of pairs: an array (n, D), in the order given.

        `options`: the fields of EmbeddingOptions, as in `osbert embed`: role, pooling, normalize, length, long and
        overlap. Options that are not given take the model's own settings if it was trained for sentence vectors.
        Otherwise a vector is the mean of the hidden states of the text's tokens, not normalised. `role`: "query",
        "document" or the name of one of the model's prompts, which is put before each text.
        `layers`: 0 is the embedding layer, 1 the first block, -1 the last; or a name that `osbert embed` accepts. The
        vectors of several layers are stacked: (n, layers, D). With pooling "tokens": a list of n arrays (tokens, D).
        A sparse model (SPLADE), and pooling "splade", gives a scipy.sparse.csr_array (n, V), with a weight for each
        piece of `tokenizer.vocabulary`; one of many vectors a text (ColBERT) a sequence of n arrays (tokens, D).
        `tokens`: most tokens in a batch. For an iterator the result is an iterator, as with `predict`.

        Raises UserError for invalid settings, a role that the model does not have, a model with parts that osbert does
        not support, and with long="error" if a text does not fit.

        >>> model = osbert.load("encoder")
        >>> model.embed(["a good film", "a bad film"]).shape
        (2, 16)
        >>> model.embed([("a good film", "a bad film")], pooling="cls", layers=[0, -1]).shape
        (1, 2, 16)
        """
        given = None if isinstance(texts, Iterator) else samples(texts, "embed")
        settings = EmbeddingOptions(layers=_spell(layers))
        if chosen := {name: value for name, value in options.items() if value is not None}:
            settings = recipe.settings(EmbeddingOptions, chosen | {"layers": settings.layers})
        embedder = self.embedder(settings, tokens=tokens)
        # Lazily: each window is encoded and embedded when its first vector is asked for.
        if given is None:
            return chain.from_iterable(embed_samples(embedder, *part) for part in windows(iter(texts), "embed"))
        return embed_samples(embedder, 0, given)

    def embedder(self, options: EmbeddingOptions, *, tokens: int = TOKENS) -> Embedder:
        """Return the Embedder for these options, cached. Its sequences are at most as long as the engine's."""
        if (options, tokens) not in self._embedders:
            settings = vector_settings(options, self)
            self._embedders[options, tokens] = make_embedder(self, settings, tokens=tokens)
        return self._embedders[options, tokens]

    def fill(self, text: str, *, top: int = 5) -> list[list[MaskFill]]:
        """Return the `top` likeliest pieces for each [MASK] in a text, the likeliest first, with their probabilities.

        Raises UserError if the model does not predict masked pieces (a fine-tuned, an exported or a left-to-right one
        does not), if the text has no [MASK], and if it is too long.

        >>> model = osbert.load("encoder")
        >>> [likeliest, *others] = model.fill("a [MASK] film")[0]
        >>> likeliest.piece in model.tokenizer.vocabulary, 0 < likeliest.probability < 1, len(others)
        (True, True, 4)
        """
        from osbert.inference.pieces import fill_masks

        return fill_masks(self, text, top=top)

    @takes_settings_of("osbert.analysis.scoring:ScoringOptions")
    def score(self, texts: Iterator[str] | Collection[str], **options: Unpack[LikelihoodKeywords]) -> Any:
        """Return the TextLikelihood of each text (osbert.analysis.scoring), in nats.

        It is the pseudo-log-likelihood for a masked language model, the log-likelihood for a left-to-right one.
        `options`: the fields of ScoringOptions: masking="word" masks the rest of a piece's word with it. For an
        iterator the result is an iterator, as with `predict`. Raises UserError if the model does not predict pieces,
        and if a text is empty or does not fit.

        >>> model = osbert.load("encoder")
        >>> [score] = model.score(["a good film"])
        >>> len(score.pieces), score.log_likelihood < 0
        (3, True)
        """
        from osbert.analysis.scoring import ScoringOptions
        from osbert.inference.pieces import language_model, score_samples

        score = partial(score_samples, language_model(self), self.packer, recipe.settings(ScoringOptions, options))
        if isinstance(texts, Iterator):
            return chain.from_iterable(score(*window) for window in windows(texts, "score"))
        return score(0, samples(texts, "score"))

    @takes_settings_of("osbert.analysis.settings:AttributionOptions")
    def explain(self, text: Text, *, label: str = "", **options: Unpack[AttributionKeywords]) -> list[Explanation]:
        """Return the contribution of each word of a text, or of a pair, to the scores of the model's predictions.

        One explanation for each prediction: a label, number, choice or answer; one each for several labels, entities
        or [MASK]s. `label`: explain the score of this label, or piece, instead of the predicted one. `options`: the
        fields of AttributionOptions, as in `osbert explain`: method, baseline, points, tolerance and check. Raises
        UserError if the model is exported or has no word embeddings.

        >>> model = osbert.load("run")
        >>> [explanation] = model.explain("the poor film", baseline="pad")
        >>> [word] = explanation.strongest(1)
        >>> explanation.label, word.word, (word.start, word.end)
        ('neg', 'poor', (4, 8))
        """
        from osbert.analysis.settings import AttributionOptions
        from osbert.inference.explain import explain_masks, explain_records

        chosen = recipe.settings(AttributionOptions, options)
        [sample] = samples([text], "explain")
        if not any(part.strip() for part in sample):
            raise UserError("The text is empty: there is nothing to explain.", code="empty-text")
        if self.task is None and len(sample) == 1:
            return explain_masks(self, sample[0], chosen, piece=label)
        [(_, explanations)] = explain_records(self, [self.fine_tuned.record_of(sample)], chosen, label=label)
        return explanations

    def attention(self, text: str, pair: str | None = None) -> TextAttention:
        """Return the attention weights of each head and layer for a text, or for a pair of texts.

        The result has `weights` (L, H, T, T), queries in rows, `pieces` (T), `words` (W), `offsets` (T, 2), `by_word`,
        `weighted` and `rollout`; `save` writes a page that shows them. A longer text is truncated. Raises UserError if
        the model is exported, has no attention, or cannot read pairs.

        >>> model = osbert.load("encoder")
        >>> attention = model.attention("a good film")
        >>> attention.weights.shape, attention.words
        ((1, 2, 5, 5), ('[CLS]', 'a', 'good', 'film', '[SEP]'))
        >>> attention.save("attention.html").name
        'attention.html'
        """
        [sample] = samples([(text,) if pair is None else (text, pair)], "attention")
        from osbert.inference.explain import attention_of

        return attention_of(self, sample)

    def states(self, text: Text, *, layers: LayerChoice = "-1") -> Vectors:
        """Return the hidden states (n, D) of the n tokens of a text, or of a pair, special tokens included.

        `layers`: as for `embed`; the states of several are stacked, (n, layers, D). A longer text is truncated.

        >>> model = osbert.load("encoder")
        >>> model.states("a good film").shape
        (5, 16)
        >>> model.states("a good film", layers=[0, 1]).shape
        (5, 2, 16)
        """
        embedder = self.embedder(EmbeddingOptions(layers=_spell(layers), pooling="tokens"))
        [sample] = samples([text], "states")
        [states] = embedder.vectors([embedder.sequences(sample, 0)])
        return states

    def states_of(self, examples: Sequence[Example]) -> list[Vectors]:
        """Return the hidden states (n, D) of the last layer for the n tokens of each sequence."""
        top = self.backend.architecture.layers
        layer_states = self.backend.vectors(examples, pooling="tokens", layers=[top], tokens=TOKENS)
        return [states.squeeze(-2) for states in layer_states]


def make_embedder(engine: LoadedModel, settings: VectorSettings, *, tokens: int = TOKENS) -> Embedder:
    """Return what computes vectors of the settings' kind. Raises UserError if the model does not give such vectors."""
    if settings.kind == "sparse":
        from osbert.inference.sparse_embedder import SparseEmbedder  # loads scipy, which the others do not need

        return SparseEmbedder(engine, settings, tokens=tokens)
    if settings.kind == "multi":
        from osbert.inference.multi_embedder import MultiEmbedder

        return MultiEmbedder(engine, settings, tokens=tokens)
    return Embedder(engine, settings, tokens=tokens)


def _spell(layers: LayerChoice) -> str:
    """Return layers as written on the command line. A list of one keeps a comma, so that its axis is kept, too."""
    if isinstance(layers, str | int | Integral):  # Integral: numpy's
        return str(layers)
    return ",".join(map(str, layers)) + ("," if len(layers) == 1 else "")


def load(source: str | Path | Folder, *, device: str = "auto", opening: Opening = CAREFUL) -> Engine:
    """Load a model's folder onto "cpu", "cuda", "cuda:N", or a GPU if there is one.

    An exported folder runs in onnxruntime, on the CPU. `opening` applies to a path; a Folder is already open. Raises
    UserError if the folder holds no model, if a fine-tuned run lacks weights, and if `opening` refuses it.
    """
    folder = source if isinstance(source, Folder) else open_folder(source, opening)
    task = folder.task
    if folder.is_exported:
        return Engine(_open_exported(folder, device), folder)
    learner = Learner(folder.backbone, folder.heads if task else {})
    engine = Engine(TorchBackend(learner.eval().to(choose(device).device), pooler=folder.has_pooler), folder)
    # The engine has what it needs; the weights that were read must not stay in memory a second time.
    folder.release()
    return engine


def _open_exported(folder: Folder, device: str) -> OnnxBackend:
    """Return the backend of an exported folder. Raises UserError if its files are not from one export."""
    if device not in ("auto", "cpu"):
        raise UserError(
            f"{folder} is exported and runs on the CPU, not on '{device}'. Use the run that it was exported from.",
            code="unavailable-device",
        )
    from osbert.inference.onnx_backend import OnnxBackend

    backend = OnnxBackend(folder.path / ONNX, folder.architecture)
    backend.check(folder.task, folder.tokenizer)
    return backend
