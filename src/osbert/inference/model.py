"""The loaded model on which all calls of an Engine stand: its backend, tokenizer, task and language head."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

from osbert.data.example import Example
from osbert.data.pack import Packer
from osbert.errors import UserError
from osbert.evaluation.forward import TOKENS
from osbert.evaluation.score import Encoded, decode_records, encode_records, refuse_long
from osbert.inference.backend import Backend, TorchBackend
from osbert.interop.folder import Folder
from osbert.interop.sentence_files import SentenceModel
from osbert.models.contract import CachedDecoder, Learner
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert.tasks import Prediction, Record, Task


class LoadedModel:
    """A model with its tokenizer, and what all calls of an `Engine` need of it.

    `packer`: lays out ids as sequences with special tokens, at most as long as the model or its task allows.
    `unusable_head`: why the folder's language head is not used, "" if it is, or if there is none. `writing`: how the
    model writes if a call does not say: the defaults of its folder.
    """

    def __init__(self, backend: Backend, source: Folder, *, pieces: MaskedLanguageHead | None = None) -> None:
        """Use the model in `source`, computed by `backend`; `pieces` is its language head, if it has one."""
        self.backend = backend
        self.source = source
        self.folder = source.path
        self.tokenizer = source.tokenizer
        self.task = source.task
        self.remarks = source.remarks
        self.writing = source.writing
        self.pieces = pieces
        self.unusable_head = source.unusable_heads.get("mlm", "")
        self.masks = (
            pieces if backend.architecture.direction == "both" and not backend.architecture.has_decoder else None
        )
        longest = backend.architecture.length
        self.packer = Packer(tokenizer=self.tokenizer, length=min(self.task.length, longest) if self.task else longest)
        self._sentences = _read_sentences(source)  # now: the folder may be gone, or another's, when they are wanted

    @property
    def learner(self) -> Learner:
        """The torch model. Raises UserError for an exported model, which runs in onnxruntime."""
        if isinstance(self.backend, TorchBackend):
            return self.backend.learner
        raise UserError(
            f"{self.folder} is exported: its model is not torch's. Take the run that it was exported from.",
            code="unsupported-model",
        )

    @cached_property
    def _decoders(self) -> dict[MaskedLanguageHead, CachedDecoder | None]:
        """The decoders of all calls so far: the weights that one has prepared for steps are kept."""
        return {}

    def decoder(self, head: MaskedLanguageHead) -> CachedDecoder | None:
        """Return the decoder that generates with a head's logits, cached for all calls; None if the model cannot."""
        if head not in self._decoders:
            self._decoders[head] = self.learner.backbone.decoder(head)
        return self._decoders[head]

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
                f"{', except for the [MASK] in a text' if self.masks else ''}. Where others' files hold a "
                "classifier, osbert convert makes a run of them.",
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
        outputs = partial(self._outputs, task, tokens)
        return decode_records(records, outputs=outputs, decode=self.backend.decoding(task))

    def _outputs(self, task: Task, tokens: int, examples: Sequence[Example]) -> Sequence[Any]:
        if task.form == "text":
            from osbert.evaluation.writing import write_texts

            return write_texts(self.learner, task, self.tokenizer, examples)
        outputs = self.backend.outputs(task, examples, tokens=tokens)
        if not all(np.isfinite(row).all() for row in outputs):
            raise UserError(
                f"The model in {self.folder} gives scores that are NaN or infinite: its weights are damaged, or its "
                "training has failed. Copy it again, or train it again.",
                code="not-finite",
            )
        return outputs


def _read_sentences(source: Folder) -> SentenceModel | UserError | None:
    try:
        return source.sentences
    except UserError as error:
        return error
