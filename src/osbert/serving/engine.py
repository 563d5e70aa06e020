"""A finished run at work: texts in; vectors and predictions out, in the order given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from osbert.data.example import Example
from osbert.data.pack import Packer
from osbert.errors import UserError
from osbert.evaluation.forward import TOKENS
from osbert.evaluation.score import Encoded, Score, decoded, encoded, refuse_long, require_labels
from osbert.interop.huggingface import read_encoder, read_fitting_tokenizer, read_heads, require_config
from osbert.interop.huggingface_names import PIECES, architecture
from osbert.interop.onnx_files import ONNX
from osbert.interop.opening import CAREFUL, Opening
from osbert.interop.report import Report, Row, of_pieces
from osbert.interop.task_files import read_task
from osbert.interop.tuned_files import has_weights
from osbert.interop.weight_files import read_json
from osbert.models.heads import Learner
from osbert.serving.backend import Backend, Pooling, Vectors
from osbert.serving.onnx_backend import OnnxBackend
from osbert.serving.torch_backend import TorchBackend
from osbert.tasks import Prediction, Record, Task
from osbert.text.file_tokenizer import AnyTokenizer
from osbert.training.processor import choose

Text = str | tuple[str, ...]
"""One text, or two that make a pair; for a task that reads more, all of them in its order."""


class Engine:
    """A model and its tokenizer, ready for texts; made by `load`. `task` is None where there is only an encoder.

    `remarks`: what was odd about the folder, for the user.
    """

    def __init__(
        self,
        backend: Backend,
        tokenizer: AnyTokenizer,
        *,
        task: Task | None = None,
        folder: Path,
        remarks: tuple[str, ...] = (),
    ) -> None:
        """Stand for the model in `folder`, which `backend` computes."""
        self.backend = backend
        self.tokenizer = tokenizer
        self.task = task
        self.folder = folder
        self.remarks = remarks
        longest = backend.architecture.length
        self.packer = Packer(tokenizer=tokenizer, length=min(task.length, longest) if task else longest)

    @property
    def learner(self) -> Learner:
        """Return torch's model. Raises UserError where onnxruntime computes."""
        if isinstance(self.backend, TorchBackend):
            return self.backend.learner
        raise UserError(f"{self.folder} is exported: its model is not torch's. Take the run that it was exported from.")

    def predict(self, texts: Sequence[Text], *, tokens: int = TOKENS) -> list[Prediction]:
        """Return what the task says of each text, or pair of texts, or as many texts as it reads together.

        `tokens`: most tokens in a batch. Raises UserError when the run was not fine-tuned, or reads pairs where there
        is one text, or the other way round.
        """
        if isinstance(texts, str):
            raise TypeError("predict takes a list of texts: predict([text])")
        task = self.fine_tuned
        records = [task.asked((text,) if isinstance(text, str) else tuple(text)) for text in texts]
        return self.predict_records(records, tokens=tokens)

    def predict_records(self, records: Sequence[Record], *, tokens: int = TOKENS) -> list[Prediction]:
        """Return what the task says of each record; labels are not looked at."""
        return self._predicted(self.fine_tuned, records, tokens)

    def predict_encoded(self, records: Iterable[Encoded], *, tokens: int = TOKENS) -> list[Prediction]:
        """Return what the task says of each record, for sequences that it made of them with the engine's packer."""
        return self._decoded(self.fine_tuned, records, tokens)

    def score(self, task: Task, records: Sequence[Record], *, tokens: int = TOKENS) -> Score:
        """Return predictions and metrics for records of `task`, the engine's own on other data (`Task.moved`).

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
                "files hold a classifier, osbert convert makes a run of them."
            )
        return self.task

    def embed(
        self,
        texts: Sequence[Text],
        *,
        pooling: Pooling = "mean",
        layers: int | Sequence[int] = -1,
        tokens: int = TOKENS,
    ) -> Any:
        """Return vectors of texts, or of pairs: an array (n, D), one row a text, in the order given.

        `pooling`: "cls", the state of [CLS], or of the last [SEP] where each token sees only what is before it; "mean"
        and "max" over all tokens of the text, [CLS] and [SEP] included; "weighted", a mean in which the token at place
        i weighs i; "pooler", BERT's tanh layer on the last layer's "cls"; "tokens", no pooling: a list of n arrays
        (tokens, D).
        `layers`: 0 is the embedding layer, 1 the first block, -1 the last. Several layers are stacked, (n, layers, D).
        """
        if isinstance(texts, str):
            raise TypeError("embed takes a list of texts: embed([text])")
        return self.vectors(self.examples(texts), pooling=pooling, layers=layers, tokens=tokens)

    def examples(self, texts: Sequence[Text]) -> list[Example]:
        """Return the sequences that the model reads; `truncated` of each counts the pieces that did not fit."""
        return [self._example(text) for text in texts]

    def vectors(
        self,
        examples: Sequence[Example],
        *,
        pooling: Pooling = "mean",
        layers: int | Sequence[int] = -1,
        tokens: int = TOKENS,
    ) -> Any:
        """Return vectors as `embed`, for sequences made by `examples`."""
        chosen = self._layers([layers] if isinstance(layers, int) else layers)
        if pooling == "pooler" and not self.backend.pooler:
            raise UserError(
                f"{self.folder} has no pooler (it was trained without one): take --pooling mean, cls, max or tokens."
            )
        sizes = self.backend.architecture
        if pooling == "pooler" and chosen != [sizes.layers]:
            raise UserError("The pooler stands on the last layer; other layers cannot be chosen with it.")
        found = self.backend.vectors(examples, pooling=pooling, layers=chosen, tokens=tokens)
        found = [row.squeeze(-2) for row in found] if isinstance(layers, int) else found
        if pooling == "tokens":
            return found
        return np.stack(found) if found else np.empty((0, sizes.width), np.float32)

    def _predicted(self, task: Task, records: Sequence[Record], tokens: int) -> list[Prediction]:
        refuse_long(task, records, self.packer)
        return self._decoded(task, encoded(task, records, self.packer), tokens)

    def _decoded(self, task: Task, records: Iterable[Encoded], tokens: int) -> list[Prediction]:
        outputs = partial(self._outputs, task, tokens)
        return decoded(records, outputs=outputs, decode=self.backend.decoding(task))

    def _outputs(self, task: Task, tokens: int, examples: Sequence[Example]) -> list[Vectors]:
        found = self.backend.outputs(task, examples, tokens=tokens)
        if not all(np.isfinite(row).all() for row in found):
            raise UserError(
                f"The model in {self.folder} gives scores that are NaN or infinite: its weights are damaged, or its "
                "training has failed. Copy it again, or train it again."
            )
        return found

    def _layers(self, layers: Sequence[int]) -> list[int]:
        top = self.backend.architecture.layers
        wrong = [layer for layer in layers if not -top - 1 <= layer <= top]
        if wrong or not layers:
            raise UserError(
                f"There is no layer {wrong[0] if wrong else '(none was given)'}: the model has 0 (embeddings) to "
                f"{top}, or from the end -1 to {-top - 1}."
            )
        return [layer % (top + 1) for layer in layers]

    def _example(self, text: Text) -> Example:
        runs = [self.packer.run(part) for part in ((text,) if isinstance(text, str) else text)]
        if len(runs) == 1:
            return self.packer.single(runs[0].ids, runs[0].words)
        if len(runs) == 2 and self.backend.architecture.segments == 1:
            raise UserError(
                f"The model in {self.folder} was trained without a second segment (segments = 1): it reads no pairs."
            )
        if len(runs) == 2:
            return self.packer.pair(runs[0], runs[1])
        raise UserError(f"A text or a pair can be embedded, not {len(runs)} texts at once.")


def load(folder: str | Path, *, device: str = "auto", opening: Opening = CAREFUL) -> Engine:
    """Load a run folder of ours or a Hugging Face folder, onto "cpu", "cuda", "cuda:N", or a GPU if there is one.

    Where there are no weights but an ONNX file, as `osbert export` writes it, onnxruntime computes, on the CPU. Raises
    UserError when it is no model, when a fine-tuned run lacks weights, and where `opening` does not let it pass.
    """
    folder = Path(folder)
    require_config(folder)
    opening.check(folder)
    task = read_task(folder, opening)
    if (folder / ONNX).is_file() and not has_weights(folder):
        return _load_exported(folder, task, device)
    encoder = read_encoder(folder, opening.again)
    learner = Learner(encoder.backbone, {task.name: task.head(encoder.backbone)} if task else {})
    if task:
        encoder.report.require_complete(str(folder), but="pooler." if task.per_token else "")
        read_heads(folder, learner, opening.again).require_complete(str(folder))
    learner.eval().to(choose(device).device)
    pooler = not any(name.startswith("pooler.") for name in encoder.report.named("new"))
    backend = TorchBackend(learner, pooler=pooler)
    return Engine(backend, encoder.tokenizer, task=task, folder=folder, remarks=encoder.report.remarks)


def _load_exported(folder: Path, task: Task | None, device: str) -> Engine:
    """Open a folder that `osbert export` wrote."""
    if device not in ("auto", "cpu"):
        raise UserError(f"{folder} is exported: it runs on the CPU, not on '{device}'. Take the run for that.")
    path = folder / "config.json"
    sizes = architecture(read_json(path), where=str(path))
    backend = OnnxBackend(folder / ONNX, sizes)
    tokenizer = read_fitting_tokenizer(folder, sizes)
    backend.check(task, tokenizer)
    table = Row(name=PIECES, shape=(sizes.vocabulary, sizes.embedding or sizes.width), status="loaded")
    remarks = Report(rows=(of_pieces(table, len(tokenizer)),)).remarks
    return Engine(backend, tokenizer, task=task, folder=folder, remarks=remarks)
