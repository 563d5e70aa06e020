"""Conversion of a model between osbert's form, Hugging Face's and those of other packages (foreign_forms.py).

    Folder -> ModelParts (a learner with all of its heads, a task, and a report on every tensor) -> folder

Tensors and config fields of every form are read by Hugging Face's names.

`differences` compares two models on the same inputs: hidden states, and the outputs of every head.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import osbert
from osbert.data.batch import Batch, collate
from osbert.data.example import Example
from osbert.data.pack import Packer
from osbert.errors import UserError
from osbert.evaluation.forward import evaluating
from osbert.files import write_json, write_text
from osbert.guarded import read_if_there
from osbert.interop import sentence_files
from osbert.interop.files.weight_files import SAFE, write_tensors
from osbert.interop.folder import GENERATION, Folder, open_folder, pretraining_heads
from osbert.interop.foreign_forms import FOLDERS, find_form, folder_forms
from osbert.interop.hub import ModelLocation
from osbert.interop.huggingface import folders, names
from osbert.interop.huggingface.configs import DECODER_FIELD
from osbert.interop.huggingface.folders import Report, TensorRow
from osbert.interop.opening import CAREFUL, Opening
from osbert.interop.sentence_files import (
    PROMPTS,
    TOKENIZER,
    SentenceModel,
    read_prompts,
    token_bound,
    write_sentence_model,
)
from osbert.interop.task_files import FIELD, LAYERS, NOT_NEEDED, FolderTask, TaskHint, as_field, as_recipe, task_of
from osbert.interop.tokenizers import write_any_tokenizer
from osbert.interop.tuned_files import has_weights
from osbert.models.contract import Head, Learner
from osbert.models.random_numbers import drawing
from osbert.tasks import Task
from osbert.training.run_folder import FACTS, RECIPE, RunFolder


@dataclass(frozen=True, kw_only=True)
class ModelParts:
    """The content of a folder, with every tensor accounted for.

    `sentences`: the settings of a sentence model, or None. `units`: the published last layer, "weight" and "bias", if
    it is stored in the user's unit beside ours. `report` has a row for each tensor, by Hugging Face's names or
    the foreign form's.
    """

    source: Folder
    learner: Learner
    task: Task | None
    sentences: SentenceModel | None
    report: Report
    units: Mapping[str, Tensor]


def open_any(path: Path, opening: Opening = CAREFUL) -> Folder:
    """Return a run folder, a Hugging Face folder, or a folder with a foreign checkpoint, which `path` may name.

    Raises UserError if it is none of them, or a checkpoint cannot be read.
    """
    has_config = (path / "config.json").is_file()
    forms = [] if has_config and has_weights(path) else folder_forms()
    for form in forms:
        checkpoint = form.find(path)
        if checkpoint is not None:
            foreign = form.read(checkpoint)
            return Folder(ModelLocation(path=foreign.folder, name=str(path)), opening, foreign=foreign)
    if path.exists() and not has_config:
        RunFolder(path).refuse_unended()
        raise UserError(
            f"{path} is not a model: it has no config.json, as run folders and Hugging Face folders have"
            f"{''.join(f', and no {form.content}' for form in forms)}.",
            code="not-a-model",
        )
    return open_folder(path, opening)


def model_of(source: Folder, hint: TaskHint | None = None) -> ModelParts:
    """Return the content of a folder.

    Raises UserError if a file is missing or damaged, or the parts do not fit together.
    """
    hint = hint or TaskHint()
    where, run_task = str(source), source.task
    if run_task and hint != TaskHint():
        raise UserError(
            f"{source.name} is a run of the task {run_task.name}: {NOT_NEEDED}.", code="options-exclude-each-other"
        )
    folder_task = FolderTask(task=run_task) if run_task else task_of(source.config, source.tensors, hint, where=where)
    if folder_task.task and not run_task:
        sentences = SentenceModel(pooling="cls", normalize=True, prompts=read_prompts(source.path))
        fitted = folder_task.task.for_model(
            source.architecture, source.tokenizer, writes=source.writes, read_sentences=lambda: sentences
        )
        folder_task = replace(folder_task, task=_with_length(fitted, source))
    tensors = source.tensors
    if order := list(folder_task.order):
        tensors = tensors | {name: tensor[order] for name, tensor in tensors.items() if name.startswith(LAYERS)}
    with drawing():
        heads: dict[str, Head] = {task.name: task.head(source.backbone)} if (task := folder_task.task) else {}
        if any(head.form in names.FIRST_TOKEN for head in heads.values()):
            _check_summary(source)
        # An objective may have the task's name: the task's head is no head of pretraining.
        unclaimed = {name: tensor for name, tensor in tensors.items() if name.split(".")[:2] != ["heads", *heads]}
        pretraining = pretraining_heads(source.backbone, unclaimed, writes=source.writes)
        forms = {head.form for head in heads.values()}  # the language head of sparse vectors is the task's
        heads |= {name: head for name, head in pretraining.items() if head.form not in forms}
    learner = Learner(source.backbone, heads).eval()
    filled = folders.fill_heads(tensors, learner)
    if run_task:
        Report(rows=tuple(filled)).require_complete(where)
    taken = {row.name for row in filled}
    others = [row for row in source.report.rows if row.name not in taken]
    rows = _add_head_remarks([*others, *filled], folder_task, filled)
    # A table of pieces may have more rows than the tokenizer has pieces.
    rows = [folders.of_pieces(row, len(source.tokenizer)) for row in rows]
    if foreign := source.foreign:
        for name, shape in foreign.unused.items():
            known = foreign.form.is_training_state(name)
            remark = "used in training only" if known else "unknown"
            rows.append(TensorRow(name=name, shape=shape, status="unused", expected=known, remark=remark))
        rows = [foreign.form.rename(row) for row in rows]
    units: dict[str, Tensor] = {}
    if task and f"heads.{task.name}.linear.weight" in tensors:
        units = {part: tensors[f"classifier.{part}"] for part in ("weight", "bias") if f"classifier.{part}" in tensors}
    # The backbone and the heads have the weights now: a large model should not be in memory twice.
    source.release()
    return ModelParts(
        source=source,
        learner=learner,
        task=task,
        sentences=source.sentences,
        report=Report(rows=tuple(rows)),
        units=units,
    )


def _with_length(task: Task, source: Folder) -> Task:
    """Return the task, for classes and choices with the length at which transformers' pipelines truncate texts."""
    longest = source.architecture.length
    length = min(token_bound(read_if_there(source.path / TOKENIZER)) or longest, longest)
    if (
        task.form not in names.FIRST_TOKEN
        or FIELD in source.config
        or length == min(task.length, longest)
        or length < 5
    ):
        return task
    return replace(task, length=length)


def _check_summary(source: Folder) -> None:
    """Raise UserError if the pooled state, which a head reads, is another in transformers or lacks its weights."""
    of_others = source.config.get("model_type") != names.OWN
    if of_others and source.config.get(DECODER_FIELD) is True:
        raise UserError(
            f"{source}: {DECODER_FIELD} is true in config.json. transformers classifies by a decoder's first token, "
            "which depends on no other, and osbert by its last, so the results would differ. Fine-tune the model "
            "anew: osbert finetune.",
            code="unsupported-model",
        )
    source.report.require_complete(str(source))


def write_model_as(model: ModelParts, folder: Path, form: str) -> None:
    """Write a model in a form. Raises UserError, before writing anything, if the form has no such model."""
    closed = folders.osbert_only_reason(model.learner.backbone.architecture, model.learner)
    if closed and form == "huggingface":
        raise UserError(closed, code="not-convertible")
    published = model.task.export_metadata() if model.task else {}
    config, tensors = folders.to_huggingface(
        model.learner, pooler=model.source.has_pooler, tokenizer=model.source.tokenizer, **published
    )
    if model.task and form != "osbert":
        config[FIELD] = as_field(model.task)
    if form not in ("osbert", "huggingface"):
        if model.sentences:
            config[sentence_files.FIELD] = sentence_files.as_field(model.sentences)
        find_form(FOLDERS, form).write(config, tensors, model.source.tokenizer, folder)
        return
    folder.mkdir(parents=True, exist_ok=True)
    sizes = model.learner.backbone.architecture
    write_any_tokenizer(model.source.tokenizer, folder, length=sizes.length, segments=sizes.segments)
    write_tensors(tensors, folder / SAFE)
    write_json(folder / "config.json", config)
    if model.sentences:
        write_sentence_model(folder, model.sentences, width=sizes.width)
    elif prompts := read_if_there(model.source.path / PROMPTS):
        write_json(folder / PROMPTS, prompts)
    if model.source.generation_config:
        write_json(folder / GENERATION, model.source.generation_config)
    if form == "osbert":
        recipe_path = model.source.path / RECIPE
        if recipe_path.is_file():
            write_text(folder / RECIPE, recipe_path.read_text(encoding="utf-8"))
        elif model.task:
            write_text(folder / RECIPE, as_recipe(model.task))
        facts = {"command": "convert", "source": str(model.source), "form": model.source.form, "settings": {}}
        write_json(folder / FACTS, {"osbert": osbert.__version__, **facts})
        RunFolder(folder).finish({})


def notes(model: ModelParts, form: str) -> Iterator[str]:
    """Yield a sentence for what is not applied, and for each part that other libraries will not see in this form."""
    yield from model.source.ignored
    if (
        model.task
        and not model.source.task
        and model.task.length == token_bound(read_if_there(model.source.path / TOKENIZER))
    ):
        yield f"Texts of more than {model.task.length} tokens are truncated, as {TOKENIZER} states (model_max_length)."
    if form == "osbert":
        return
    if form == "onnx":
        left = [name for name in model.learner.heads if model.task is None or name != model.task.name]
        if left:
            yield f"Not in the ONNX file: {', '.join(left)} (pretraining's heads)."
        return
    _, tensors = folders.to_huggingface(model.learner)
    for name in model.learner.heads:
        prefix = f"heads.{name}."
        parts = [tensor.removeprefix(prefix) for tensor in tensors if tensor.startswith(prefix)]
        if parts and not model.learner.heads[name].pooling:  # a sentence model's files have what vectors need
            part = "" if len(parts) == len(model.learner.heads[name].state_dict()) else f" ({', '.join(parts)})"
            yield f"Only osbert reads the head '{name}'{part}: one that others make in its place has random weights."


def _add_head_remarks(rows: list[TensorRow], folder_task: FolderTask, filled: list[TensorRow]) -> list[TensorRow]:
    """Return the rows with remarks on tensors of heads that no head of ours uses."""
    published = any(row.name.startswith("heads.") for row in filled)
    judged = []
    for row in rows:
        if row.status == "unused" and row.expected and row.name.startswith(names.HEAD_PREFIXES):
            if row.name == names.DECODER:
                row = replace(row, remark="the piece embeddings once more")
            elif published and row.name.startswith(LAYERS):
                row = replace(row, remark="the same scores, as others read them")
            else:
                row = replace(row, expected=False, remark=folder_task.reason or "of a head that osbert does not have")
        elif row.status == "new" and row in filled:
            row = replace(row, expected=False)
        judged.append(row)
    return judged


BOUND = 2e-5
"""Largest difference that rounding can explain for equal weights."""

TEXTS = (
    "The quick brown fox jumps over the lazy dog.",
    "In 1998, 37% of U.S. households hadn't paid $9.50!",
    "我们正在比较两个模型。",
    "Où est la bibliothèque, s'il vous plaît?",
)
HIDDEN, POOLED = "hidden states", "pooled states"
SECOND = "It does, and so does the other one."
LENGTH = 128
"""Most tokens in a compared sequence."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The largest difference of one output, `what`, over all compared sequences.

    It is absolute; for outputs in the user's unit, which may be large, it is relative to the largest number.
    """

    what: str
    largest: float
    bound: float = BOUND

    @property
    def small(self) -> bool:
        """Return whether it is within the bound; False for NaN."""
        return self.largest <= self.bound


def differences(first: ModelParts, second: ModelParts) -> list[Difference]:
    """Return the differences of two models. Raises ValueError if heads, vocabularies or poolings differ."""
    if first.source.tokenizer != second.source.tokenizer:
        raise ValueError("the tokenizers cut texts differently")
    if first.learner.heads.keys() != second.learner.heads.keys():
        raise ValueError(f"the heads are {', '.join(first.learner.heads)} and {', '.join(second.learner.heads)}")
    if first.sentences != second.sentences:
        raise ValueError(f"the vectors of texts are computed differently: {first.sentences} and {second.sentences}")
    batch = collate(sequences(first))
    first_outputs, again = _outputs(first, batch), _outputs(second, batch)
    output_differences = [
        Difference(
            what=what, largest=float((first_outputs[what] - again[what]).abs().max()) if what in again else float("inf")
        )
        for what in first_outputs
    ]
    if second.task and second.units:
        name = f"scores of {second.task.name}"
        unit = {"center": 0.0, "scale": 1.0, **second.task.export_metadata()}
        wanted = first_outputs[name] * unit["scale"] + unit["center"]
        others = again[POOLED] @ second.units["weight"].double().T + second.units["bias"].double()
        size = max(1.0, float(wanted.abs().max()))
        output_differences.append(
            Difference(what=f"{name} as others read them", largest=float((others - wanted).abs().max()) / size)
        )
    return output_differences


def sequences(model: ModelParts) -> list[Example]:
    """Return the compared inputs: some texts, a pair if the model reads pairs, and pieces of the whole vocabulary."""
    sizes = model.learner.backbone.architecture
    packer = Packer(tokenizer=model.source.tokenizer, length=min(sizes.length, LENGTH))
    runs = [packer.run(text) for text in (*TEXTS, SECOND)]
    examples = [packer.single(run.ids, run.words, record=record) for record, run in enumerate(runs)]
    spread = np.linspace(0, sizes.vocabulary - 1, packer.length - 2).astype(np.int32)
    examples.append(packer.single(spread, np.ones(len(spread), bool), record=len(examples)))
    if sizes.segments > 1:
        examples.append(packer.pair(runs[0], runs[-1], record=len(examples)))
    return [replace(example, head_words=example.words) for example in examples]


def _outputs(model: ModelParts, batch: Batch) -> dict[str, Tensor]:
    outputs: dict[str, Tensor] = {}
    with evaluating(model.learner):
        states = model.learner.backbone(batch)
        outputs[HIDDEN] = states.hidden
        if model.source.has_pooler:
            outputs[POOLED] = states.pooled
        for name, head in model.learner.heads.items():
            outputs[f"scores of {name}"] = head.every(states, batch)
    return {what: torch.as_tensor(values).double() for what, values in outputs.items()}
