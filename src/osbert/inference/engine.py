"""A finished run at work: texts in; vectors and predictions out, in the order given."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import chain
from numbers import Integral
from pathlib import Path
from typing import Any, overload

import numpy as np

from osbert import recipe
from osbert.analysis.attention import TextAttention
from osbert.analysis.explanation import Explanation
from osbert.analysis.interpolation import can_be_weighed
from osbert.analysis.settings import AttributionOptions
from osbert.data.example import Example
from osbert.data.pack import Packer
from osbert.errors import UserError
from osbert.evaluation.forward import TOKENS
from osbert.evaluation.score import Encoded, Score, decoded, encoded, refuse_long, require_labels
from osbert.evaluation.writing import written_for
from osbert.inference.attention import attention_of
from osbert.inference.backend import Backend, Vectors
from osbert.inference.embedder import Embedder, embedded, vector_settings
from osbert.inference.explain import explain_masks, explain_records
from osbert.inference.onnx_backend import OnnxBackend
from osbert.inference.piece_model import PieceModel
from osbert.inference.text_windows import Text, samples, windows
from osbert.inference.torch_backend import TorchBackend
from osbert.inference.vectors.settings import EmbeddingOptions
from osbert.interop.folder import Folder, open_folder
from osbert.interop.onnx.files import ONNX
from osbert.interop.opening import CAREFUL, Opening
from osbert.interop.sentence_files import SentenceModel
from osbert.models.contract import Learner
from osbert.models.generation.contract import CachedDecoder
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert.tasks import Prediction, Record, Task
from osbert.training.processor import choose

LayerChoice = str | int | Sequence[int]
"""One layer or several, by their numbers, or as `osbert embed --layers` has them."""


class Engine(PieceModel):
    """A model and its tokenizer, ready for texts; made by `load`. `task` is None where there is only an encoder.

    `remarks`: what was odd about the folder, for the user. `pieces`: what predicts pieces, if the model was pretrained
    so and its folder has that part, as ours has; None for an export and a fine-tuned run. `masks`: the same of a model
    that predicts masked pieces; None for one that looks to the left alone, of which it predicts the next piece.

    >>> import osbert
    >>> model = osbert.load("run")
    >>> model.task.name, model.folder.name, len(model.tokenizer.vocabulary)
    ('classify', 'run', 16)
    """

    def __init__(self, backend: Backend, source: Folder, *, pieces: MaskedLanguageHead | None = None) -> None:
        """Stand for the model in `source`, which `backend` computes."""
        self.backend = backend
        self.source = source
        self.folder = source.path
        self.tokenizer = source.tokenizer
        self.task = source.task
        self.remarks = source.remarks
        self.pieces = pieces
        self.masks = (
            pieces if backend.architecture.direction == "both" and not backend.architecture.has_decoder else None
        )
        longest = backend.architecture.length
        self.packer = Packer(tokenizer=self.tokenizer, length=min(self.task.length, longest) if self.task else longest)
        self._sentences = _read_sentences(source)  # now: the folder may be gone, or another's, when they are wanted
        self._embedders: dict[tuple[EmbeddingOptions, int], Embedder] = {}
        self._decoders: dict[MaskedLanguageHead, CachedDecoder | None] = {}

    @property
    def learner(self) -> Learner:
        """Return torch's model. Raises UserError where onnxruntime computes."""
        if isinstance(self.backend, TorchBackend):
            return self.backend.learner
        raise UserError(
            f"{self.folder} is exported: its model is not torch's. Take the run that it was exported from.",
            code="unsupported-model",
        )

    @property
    def explains(self) -> bool:
        """Return whether `explain` answers: it needs torch's model, and a task that says what predictions rest on."""
        known = self.masks is not None or (self.task is not None and self.task.explains)
        return known and isinstance(self.backend, TorchBackend) and can_be_weighed(self.learner)

    @property
    def writes(self) -> bool:
        """Return whether the model writes texts: after a text, from a source, or as it was fine-tuned to."""
        if self.task is not None and self.task.form == "text":
            return True
        return self.pieces is not None and self.decoder(self.pieces) is not None

    @overload
    def predict(self, texts: Iterator[Text], *, tokens: int = TOKENS) -> Iterator[Prediction]: ...

    @overload
    def predict(self, texts: Sequence[Text], *, tokens: int = TOKENS) -> list[Prediction]: ...

    def predict(
        self, texts: Iterator[Text] | Sequence[Text], *, tokens: int = TOKENS
    ) -> Iterator[Prediction] | list[Prediction]:
        """Return what the task says of each text, or pair of texts, or as many texts as it reads together.

        Of an iterator, such as a generator or an open file, the predictions come one by one, too, in its order; it is
        read ahead by a window of texts at most (`text_windows`), whatever their number.

        `tokens`: most tokens in a batch. Raises UserError when the run was not fine-tuned, or reads pairs where there
        is one text, or the other way round.

        >>> import osbert
        >>> model = osbert.load("run")
        >>> [prediction] = model.predict(["the good film"])
        >>> prediction.value, prediction.probabilities["pos"] > 0.5
        ('pos', True)
        >>> endless = model.predict(text for text in iter(lambda: "a bad film", None))
        >>> next(endless).value
        'neg'
        """
        given = texts if isinstance(texts, Iterator) else samples(texts, "predict")
        task = self.fine_tuned
        if isinstance(given, Iterator):
            parts = ([task.record_of(one) for one in window] for _, window in windows(given, "predict"))
            return chain.from_iterable(self.predict_records(part, tokens=tokens) for part in parts)
        return self.predict_records([task.record_of(one) for one in given], tokens=tokens)

    def predict_records(self, records: Sequence[Record], *, tokens: int = TOKENS) -> list[Prediction]:
        """Return what the task says of each record; labels are not looked at."""
        return self._predicted(self.fine_tuned, records, tokens)

    def predict_encoded(self, records: Iterable[Encoded], *, tokens: int = TOKENS) -> list[Prediction]:
        """Return the task's prediction for each record, given the sequences that it made with the engine's packer."""
        return self._decoded(self.fine_tuned, records, tokens)

    def evaluate(self, task: Task, records: Sequence[Record], *, tokens: int = TOKENS) -> Score:
        """Return predictions and metrics for records of `task`, the engine's own on other data (`Source.moved`).

        Raises UserError when a record has no label.
        """
        require_labels(records)
        predictions = self._predicted(task, records, tokens)
        return Score(metrics=task.metrics(predictions, records), predictions=predictions)

    @property
    def fine_tuned(self) -> Task:
        """Return the task; raises UserError when there is none."""
        if self.task is None:
            raise UserError(
                f"{self.folder} holds an encoder without a task: it can embed texts (osbert embed), and it can be "
                f"fine-tuned (osbert finetune classify --model {self.folder} ...), but not predict. Where others' "
                "files hold a classifier, osbert convert makes a run of them.",
                code="not-a-model",
            )
        return self.task

    def embed(
        self,
        texts: Iterator[Text] | Sequence[Text],
        *,
        layers: LayerChoice = "-1",
        tokens: int = TOKENS,
        **options: Any,
    ) -> Any:
        """Return vectors of texts, or of pairs: an array (n, D), one row a text, in the order given.

        `options`: the fields of EmbeddingOptions, which are those of `osbert embed`: pooling, normalize, length, long
        and overlap. What is left open is the model's own, if it was trained for sentence vectors; else a text's vector
        is the mean of its tokens' states as it comes.
        `layers`: 0 is the embedding layer, 1 the first block, -1 the last; or a name that `osbert embed` knows. Of
        several the vectors are stacked, (n, layers, D). With pooling "tokens": a list of n arrays (tokens, D).
        `tokens`: most tokens in a batch. Of an iterator the vectors come one by one, as with `predict`.

        Warns of what the model's files ask for and osbert does not do, such as a Dense layer on the vectors. Raises
        UserError at settings that cannot be, and with long "error" at every text that does not fit.

        >>> import osbert
        >>> model = osbert.load("encoder")
        >>> model.embed(["a good film", "a bad film"]).shape
        (2, 16)
        >>> model.embed([("a good film", "a bad film")], pooling="cls", layers=[0, -1]).shape
        (1, 2, 16)
        """
        given = None if isinstance(texts, Iterator) else samples(texts, "embed")
        for remark in self.not_applied:
            warnings.warn(remark, stacklevel=2)
        said = {"layers": _spell(layers)} | {name: value for name, value in options.items() if value is not None}
        embedder = self.embedder(recipe.settings(EmbeddingOptions, said), tokens=tokens)
        if given is None:
            return chain.from_iterable(embedded(embedder, *part) for part in windows(iter(texts), "embed"))
        return embedded(embedder, 0, given)

    def embedder(self, options: EmbeddingOptions, *, tokens: int = TOKENS) -> Embedder:
        """Return an Embedder with these options. Its sequences are no longer than the engine's own."""
        if (options, tokens) not in self._embedders:
            self._embedders[options, tokens] = Embedder(self, vector_settings(options, self), tokens=tokens)
        return self._embedders[options, tokens]

    @cached_property
    def not_applied(self) -> tuple[str, ...]:
        """Return the steps in a sentence model's files that its vectors leave out."""
        return self._sentences.remarks if isinstance(self._sentences, SentenceModel) else ()

    def sentence_model(self, pooling: str | None = None) -> SentenceModel | None:
        """Return the pooling, length and normalisation that the model was trained for, None where it was for none.

        Raises UserError when its own pooling is not here, unless another one is given as `pooling`.
        """
        if not isinstance(self._sentences, UserError):
            return self._sentences
        if pooling is None:
            raise self._sentences
        return None

    def explain(self, text: Text, *, label: str = "", **options: Any) -> list[Explanation]:
        """Return why the model says what it says of a text, or of a pair: each word with its weight in the score.

        One explanation for each prediction: a label, a number, a choice, an answer; of several labels, entities
        or [MASK]s one each. `label`: explain the score of this label, or piece, instead of what is predicted.
        `options`: the fields of AttributionOptions, which are those of `osbert explain`: method, baseline, points,
        tolerance and check. Raises UserError where the model is exported or reads no word vectors.

        >>> import osbert
        >>> model = osbert.load("run")
        >>> [explanation] = model.explain("the poor film", baseline="pad")
        >>> [word] = explanation.strongest(1)
        >>> explanation.label, word.word, (word.start, word.end)
        ('neg', 'poor', (4, 8))
        """
        chosen = recipe.settings(AttributionOptions, options)
        [sample] = samples([text], "explain")
        if not any(part.strip() for part in sample):
            raise UserError("The text is empty: there is nothing to explain.", code="empty-text")
        if self.task is None and len(sample) == 1:
            return explain_masks(self, sample[0], chosen, piece=label)
        [(_, found)] = explain_records(self, [self.fine_tuned.record_of(sample)], chosen, label=label)
        return found

    def attention(self, text: str, pair: str | None = None) -> TextAttention:
        """Return what each head of each layer attends to in a text, or in a pair of them.

        The result has `weights` (L, H, T, T), queries in rows, `pieces` (T), `words` (W), `offsets` (T, 2), `by_word`,
        `weighted` and `rollout`, and `save` writes a page that shows them. What does not fit is cut off. Raises
        UserError if the model is exported, has no attention, or reads no pairs.

        >>> import osbert
        >>> model = osbert.load("encoder")
        >>> attention = model.attention("a good film")
        >>> attention.weights.shape, attention.words
        ((1, 2, 5, 5), ('[CLS]', 'a', 'good', 'film', '[SEP]'))
        >>> attention.save("attention.html").name
        'attention.html'
        """
        [sample] = samples([(text,) if pair is None else (text, pair)], "attention")
        return attention_of(self, sample)

    def states(self, text: Text, *, layers: LayerChoice = "-1") -> Vectors:
        """Return the states (n, D) of the n tokens of a text, or of a pair, specials included.

        `layers`: as for `embed`; of several the states are stacked, (n, layers, D). What does not fit is cut off.

        >>> import osbert
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
        """Return the last layer's states (n, D) of each sequence's n tokens."""
        top = self.backend.architecture.layers
        found = self.backend.vectors(examples, pooling="tokens", layers=[top], tokens=TOKENS)
        return [states.squeeze(-2) for states in found]

    def _predicted(self, task: Task, records: Sequence[Record], tokens: int) -> list[Prediction]:
        refuse_long(task, records, self.packer)
        return self._decoded(task, encoded(task, records, self.packer), tokens)

    def _decoded(self, task: Task, records: Iterable[Encoded], tokens: int) -> list[Prediction]:
        outputs = partial(self._outputs, task, tokens)
        return decoded(records, outputs=outputs, decode=self.backend.decoding(task))

    def _outputs(self, task: Task, tokens: int, examples: Sequence[Example]) -> Sequence[Any]:
        if task.form == "text":
            return written_for(self.learner, task, self.tokenizer, examples)
        found = self.backend.outputs(task, examples, tokens=tokens)
        if not all(np.isfinite(row).all() for row in found):
            raise UserError(
                f"The model in {self.folder} gives scores that are NaN or infinite: its weights are damaged, or its "
                "training has failed. Copy it again, or train it again.",
                code="not-finite",
            )
        return found


def _read_sentences(source: Folder) -> SentenceModel | UserError | None:
    try:
        return source.sentences
    except UserError as error:
        return error


def _spell(layers: LayerChoice) -> str:
    """Return numbers of layers as the command line has them; a list of one keeps its comma, and so its axis."""
    if isinstance(layers, str | int | Integral):  # Integral: numpy's
        return str(layers)
    return ",".join(map(str, layers)) + ("," if len(layers) == 1 else "")


def load(source: str | Path | Folder, *, device: str = "auto", opening: Opening = CAREFUL) -> Engine:
    """Load a model's folder onto "cpu", "cuda", "cuda:N", or a GPU if there is one.

    An exported folder runs in onnxruntime, on the CPU. `opening` is for a path; a Folder has its own. Raises UserError
    when it is no model, when a fine-tuned run lacks weights, and where `opening` does not let it pass.
    """
    folder = source if isinstance(source, Folder) else open_folder(source, opening)
    task = folder.task
    if folder.is_exported:
        return Engine(_exported(folder, device), folder)
    learner = Learner(folder.backbone, folder.heads if task else {})
    pieces = None if task else folder.heads.get("mlm")
    place = choose(device).device
    backend = TorchBackend(learner.eval().to(place), pooler=folder.has_pooler)
    engine = Engine(backend, folder, pieces=pieces.eval().to(place) if isinstance(pieces, MaskedLanguageHead) else None)
    folder.release()
    return engine


def _exported(folder: Folder, device: str) -> OnnxBackend:
    """Return what computes an exported folder. Raises UserError when its files are not of one export."""
    if device not in ("auto", "cpu"):
        raise UserError(
            f"{folder} is exported: it runs on the CPU, not on '{device}'. Take the run for that.",
            code="unavailable-device",
        )
    backend = OnnxBackend(folder.path / ONNX, folder.architecture)
    backend.check(folder.task, folder.tokenizer)
    return backend
