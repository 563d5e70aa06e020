"""The loaded model on which all calls of an Engine stand: its torch backend, tokenizer, task and language head."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from osbert.data.example import Example
from osbert.data.pack import Packer
from osbert.errors import Problems, UserError
from osbert.evaluation import forward
from osbert.evaluation.forward import TOKENS
from osbert.evaluation.score import Encoded, decode_records, encode_records, refuse_long
from osbert.interop.folder import Folder
from osbert.interop.sentence_files import SentenceModel
from osbert.models.contract import Head, Learner, Sizes
from osbert.models.forms import pool_texts
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert.text.file_tokenizer import unknown_id

if TYPE_CHECKING:
    from osbert.inference.onnx_backend import OnnxBackend
    from osbert.tasks import Prediction, Record, Task

Vectors = NDArray[np.float32]


class TorchBackend:
    """Computes with a Learner in evaluation mode. Results are in the order of the examples, however they are batched.

    `architecture`: the encoder's sizes. `pooler`: whether its backbone has a trained pooler.
    """

    def __init__(self, learner: Learner, *, pooler: bool) -> None:
        self.learner = learner
        self.architecture: Sizes = learner.backbone.architecture
        self.pooler = pooler

    def outputs(self, task: Task, examples: Sequence[Example], *, tokens: int) -> list[Vectors]:
        """Return the output of the task's head for each example: (K,), or (n, K) for its n tokens if `per_token`.

        `tokens`: most tokens in a batch.
        """
        return forward.outputs(self.learner, task.name, examples, tokens=tokens, per_token=task.per_token)

    def decoding(self, task: Task) -> Callable[..., Prediction]:
        """Return the function that decodes outputs (`Task.decode_with`), with the values that the head has learnt."""
        return task.decode_with(self.learner.heads[task.name].decoding_values())

    def vectors(
        self, examples: Sequence[Example], *, pooling: str, layers: Sequence[int], tokens: int, skip: int = 0
    ) -> list[Vectors]:
        """Return the pooled states (layers, D) of each example, or (n, layers, D) for its n tokens without pooling.

        `pooling`: a Pooling, or several of models/forms.py joined by "+", whose vectors are concatenated. `layers`: 0
        is the embedding output, 1 the first block. `skip`: first tokens that are not pooled.
        """
        backbone = self.learner.backbone
        example_vectors: list[Vectors] = [np.empty(0, np.float32)] * len(examples)
        with forward.evaluating(backbone) as device:
            for cpu_batch in forward.batches(examples, tokens=tokens):
                batch = cpu_batch.to(device)
                if pooling == "pooler":
                    rows = list(backbone(batch).pooled.unsqueeze(1).unbind())
                else:
                    # `layers` yields one layer after the other: only the chosen ones are kept in memory.
                    chosen: dict[int, Tensor] = {}
                    for number, layer_states in enumerate(backbone.layers(batch)):
                        if number in layers:
                            chosen[number] = layer_states
                    states = torch.stack(list(map(chosen.__getitem__, layers)), dim=1)  # (N, layers, D)
                    if pooling == "tokens":
                        rows = list(states.split(list(batch.lengths)))
                    else:
                        rows = pool_texts(states, batch, pooling, backbone.summaries(batch), skip=skip)
                # Batches do not keep the order of the examples; `records` has the index of each row among them.
                for index, row in zip(cpu_batch.records.tolist(), rows, strict=True):
                    example_vectors[index] = row.float().cpu().numpy()
        return example_vectors


def _no_heads() -> tuple[dict[str, Head], dict[str, str]]:  # no lambda, which could not be pickled
    return {}, {}


class LoadedModel:
    """A model with its tokenizer, and what all calls of an `Engine` need of it.

    `packer`: lays out ids as sequences with special tokens, at most as long as the model or its task allows.
    `generation_config`: the folder's settings of text generation, for calls that write. `prepared`: what a call of
    another package keeps for its next one, by a name of its own.
    """

    def __init__(self, backend: TorchBackend | OnnxBackend, source: Folder) -> None:
        self.backend = backend
        self.source = source
        self.folder = source.path
        self.tokenizer = source.tokenizer
        self.task = source.task
        self.generation_config = source.generation_config
        self.prepared: dict[str, Any] = {}
        # The heads of pretraining are made when one is first used: vectors need none.
        self._make_heads = (
            source.defer_heads() if isinstance(backend, TorchBackend) and source.task is None else _no_heads
        )
        longest = backend.architecture.length
        self.packer = Packer(tokenizer=self.tokenizer, length=min(self.task.length, longest) if self.task else longest)
        # Read now: the folder may have been removed or replaced when vectors are computed.
        self._sentences: SentenceModel | UserError | None
        try:
            self._sentences = source.sentences
        except UserError as error:
            self._sentences = error

    @cached_property
    def _pretraining_heads(self) -> tuple[dict[str, Head], dict[str, str]]:
        with torch.inference_mode(False):  # their weights may need gradients later, as in attributions
            return self._make_heads()

    @cached_property
    def pieces(self) -> MaskedLanguageHead | None:
        """The language head, or that of sparse vectors; None without one, as in exports and other fine-tuned runs."""
        trained = self.learner.heads if isinstance(self.backend, TorchBackend) else {}
        heads = (self._pretraining_heads[0].get("mlm"), *(head for head in trained.values() if head.pooling))
        head = next((head for head in heads if isinstance(head, MaskedLanguageHead)), None)
        if head is None:
            return None
        return head.eval().to(next(self.learner.parameters()).device)

    @property
    def masks(self) -> MaskedLanguageHead | None:
        """The language head if it predicts masked pieces; None for left-to-right models and encoder-decoders."""
        sizes = self.backend.architecture
        return self.pieces if sizes.direction == "both" and not sizes.has_decoder else None

    @property
    def unusable_head(self) -> str:
        """Why the folder's language head is not used; "" if it is, or if there is none."""
        return self._pretraining_heads[1].get("mlm", "")

    @property
    def remarks(self) -> tuple[str, ...]:
        """The remarks on the folder, for the user."""
        return self.source.remarks

    @property
    def learner(self) -> Learner:
        """The torch model. Raises UserError for an exported model, which runs in onnxruntime."""
        if isinstance(self.backend, TorchBackend):
            return self.backend.learner
        raise UserError(
            f"{self.folder} is exported and has no torch model. Use the run that it was exported from.",
            code="unsupported-model",
        )

    def predict_encoded(self, records: Iterable[Encoded], *, tokens: int = TOKENS) -> list[Prediction]:
        """Return the task's prediction for each record, given the sequences that it made with the engine's packer."""
        return self._predict_encoded(self.fine_tuned, records, tokens)

    @property
    def fine_tuned(self) -> Task:
        """The task. Raises UserError if the model was not fine-tuned."""
        if self.task is None:
            raise UserError(
                f"{self.folder} holds an encoder without a task: it can embed texts (osbert embed), and it can be "
                f"fine-tuned (osbert finetune classify --model {self.folder} ...), but not predict"
                f"{', except for the [MASK] in a text' if self.masks else ''}. osbert convert makes a run "
                "of a classifier of another library.",
                code="not-a-model",
            )
        return self.task

    def sentence_model(self, pooling: str | None = None) -> SentenceModel | None:
        """Return the prompts, pooling, length and so on of a sentence model; None for other models.

        Raises UserError if osbert lacks something that the model asks for, unless `pooling` names one for the encoder.
        """
        if not isinstance(self._sentences, UserError):
            return self._sentences
        if pooling is None:
            raise self._sentences
        return None

    def _predict_records(self, task: Task, records: Sequence[Record], tokens: int) -> list[Prediction]:
        refuse_long(task, records, self.packer)
        return self._predict_encoded(task, encode_records(task, records, self.packer), tokens)

    def _predict_encoded(self, task: Task, records: Iterable[Encoded], tokens: int) -> list[Prediction]:
        def compute(examples: Sequence[Example]) -> Sequence[Any]:
            if task.form == "text":
                return task.write(self.learner, self.tokenizer, examples)
            outputs = self.backend.outputs(task, examples, tokens=tokens)
            require_finite_scores(outputs, self.folder)
            return outputs

        decode = self.backend.decoding(task)
        return decode_records(records, outputs=compute, decode=decode, unknown=unknown_id(self.tokenizer))


def require_finite_scores(scores: Iterable[NDArray[np.floating]], folder: Path) -> None:
    """Raise UserError if one of the scores of the model in `folder` is not a number, or infinite."""
    if not all(np.isfinite(row).all() for row in scores):
        raise UserError(
            f"The model in {folder} gives scores that are NaN or infinite: its weights are damaged, or its "
            "training diverged. Copy it again, or train it again.",
            code="not-finite",
        )


ROWS, CHARACTERS = 1024, 2**19
"""Most texts in a window, and about the most characters: how far the input is read ahead of the output."""

Text = str | tuple[str, ...]
"""One text, a pair, or all texts that a task reads together, in the task's order."""
Sample = tuple[str, ...]
"""The texts that are read together, as a tuple."""


def samples(texts: Iterable[Text], call: str) -> list[Sample]:
    """Return the samples. Raises TypeError if `texts` is not a list, UserError that lists every item without text.

    >>> samples(["a", ("b", "c")], "predict")
    [('a',), ('b', 'c')]
    """
    is_table = isinstance(texts, bytes | Mapping) or hasattr(texts, "columns")
    if is_table or isinstance(texts, str | Set) or not isinstance(texts, Iterable):
        what = "of one column, table['text']" if is_table else "[text]"
        raise TypeError(f"{call} takes a list of texts, not {type(texts).__name__}: {call}({what})")
    valid_samples, problems = [], Problems(heading=f"{call} takes texts, or tuples of texts")
    values = texts.to_pylist() if hasattr(texts, "to_pylist") else texts  # pyarrow, whose items are scalars
    for index, given in enumerate(values):
        sample, problem = _sample(given)
        if problem:
            problems.add(f"texts[{index}] {problem}", code="invalid-value")
        valid_samples.append(sample)
    problems.stop_if_any()
    return valid_samples


def windows(texts: Iterator[Text], call: str) -> Iterator[tuple[int, list[Sample]]]:
    """Yield (index of the first sample, samples) for each window of an iterator.

    If the iterator raises, or an item is not a text (UserError), the samples before it are yielded first.

    >>> list(windows(iter(["a", ("b", "c")]), "predict"))
    [(0, [('a',), ('b', 'c')])]
    """
    window: list[Sample] = []
    first = size = 0
    try:
        for index, given in enumerate(texts):
            sample, problem = _sample(given)
            if problem:
                raise UserError(
                    f"{call} takes texts, or tuples of texts: texts[{index}] {problem}", code="invalid-value"
                )
            window.append(sample)
            size += sum(map(len, sample))
            if len(window) >= ROWS or size >= CHARACTERS:
                whole, window, size = window, [], 0
                yield first, whole
                first = index + 1
    except Exception:
        if window:
            yield first, window
        raise
    if window:
        yield first, window


def _sample(given: Any) -> tuple[Sample, str]:
    """Return a sample as a tuple, and a problem with it, "" for none."""
    group = isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping)
    sample: tuple[Any, ...] = tuple(given) if group else (given,)
    is_text = sample and all(isinstance(text, str) for text in sample)
    return sample, "" if is_text else f"is {given!r:.60}, no text."
