"""A model in one of three forms becomes the same model in another: ours, Hugging Face's or google-research/bert's.

    folder -> ModelParts (a learner with its heads, a tokenizer, a task, and what became of every tensor) -> folder

Whatever the form of a folder, its tensors are read by Hugging Face's names, and its config in their words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

import osbert
from osbert import components
from osbert.errors import UserError
from osbert.files import write_json, write_text
from osbert.interop import sentence_files
from osbert.interop.huggingface import names
from osbert.interop.huggingface.folders import (
    assemble,
    closed_to_others,
    fill_heads,
    laid_out,
    named,
    read_fitting_tokenizer,
)
from osbert.interop.huggingface.tokenizers import write_any_tokenizer
from osbert.interop.opening import CAREFUL, Opening
from osbert.interop.sentence_files import SentenceModel, read_sentence_model, write_sentence_model
from osbert.interop.task_files import (
    FIELD,
    LAYERS,
    RECIPE,
    TOLD,
    FolderTask,
    TaskHint,
    as_field,
    as_recipe,
    read_task,
    task_of,
)
from osbert.interop.tensor_report import Report, TensorRow, of_pieces
from osbert.interop.tensorflow import checkpoint as google
from osbert.interop.tuned_files import has_weights, read_whole
from osbert.interop.weight_files import SAFE, read_json, write_tensors
from osbert.models.contract import Backbone, Head, Learner
from osbert.models.heads.predictions import MaskedLanguageHead, SequenceHead
from osbert.objectives import Objective
from osbert.tasks import Task
from osbert.text.file_tokenizer import AnyTokenizer
from osbert.training.run_folder import FACTS, RunFolder

Form = Literal["osbert", "huggingface", "google"]

DISCRIMINATOR = "discriminator_predictions."
"""How the names of ELECTRA's pretraining head begin."""


@dataclass(frozen=True, kw_only=True)
class ModelParts:
    """What a folder holds. `pooled`: whether it has a pooler; without, the learner's is a fresh one.

    `sentences`: how it makes a vector of a text, None where it was not trained for that.
    `units`: the last layer as others read it, "weight" and "bias", where it is kept beside ours in the user's unit.
    `report` has a row for each tensor, by Hugging Face's names of BERT's, or by TensorFlow's.
    """

    form: Form
    folder: Path
    learner: Learner
    tokenizer: AnyTokenizer
    task: Task | None
    sentences: SentenceModel | None
    pooled: bool
    report: Report
    units: Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class _Content:
    """Config and tensors of a folder in Hugging Face's words, and shapes of variables that they have no name for."""

    form: Form
    folder: Path
    config: Mapping[str, Any]
    tensors: dict[str, Tensor]
    others: Mapping[str, tuple[int, ...]]


def open_model(path: Path, asked: TaskHint | None = None, opening: Opening = CAREFUL) -> ModelParts:
    """Open a run folder, a Hugging Face folder, or a folder (or prefix) of a TensorFlow checkpoint.

    Raises UserError when it is none of them, when a file is missing or damaged, or when the parts do not fit together.
    """
    asked = asked or TaskHint()
    content = _content(path, opening)
    where = str(content.folder)
    architecture = names.architecture(content.config, where=where)
    tokenizer = read_fitting_tokenizer(content.folder, architecture)
    own = read_task(content.folder, opening)
    if own and asked != TaskHint():
        raise UserError(f"{path} is a run of the task {own.name}: {TOLD}.")
    found = FolderTask(task=own) if own else task_of(content.config, content.tensors, asked, where=where)
    tensors = _ordered(content.tensors, found.order)
    loaded = assemble(architecture, tensors, where=content.folder)
    learner = Learner(loaded.backbone, _heads(loaded.backbone, tensors, found.task)).eval()
    filled = fill_heads(tensors, learner)
    if own:
        Report(rows=tuple(filled)).require_complete(where)
    rows = _judged([*_without(loaded.report.rows, filled), *filled], found, filled)
    rows = [of_pieces(row, len(tokenizer)) for row in rows]
    rows += [_other(name, shape) for name, shape in content.others.items()]
    if content.form == "google":
        rows = [_spelled(row) for row in rows]
    return ModelParts(
        form=content.form,
        folder=content.folder,
        learner=learner,
        tokenizer=tokenizer,
        task=found.task,
        sentences=_sentences(content),
        pooled=not any(row.status == "new" for row in loaded.report.rows),
        report=Report(rows=tuple(rows)),
        units=_units(tensors, found.task),
    )


def write_model_as(model: ModelParts, folder: Path, form: Form) -> None:
    """Write a model in a form. Raises UserError when the form has no such model; nothing is then written."""
    closed = closed_to_others(model.learner.backbone.architecture, model.learner)
    if closed and form == "huggingface":
        raise UserError(closed)
    config, tensors = laid_out(model.learner, pooler=model.pooled, **(model.task.published() if model.task else {}))
    if model.task and form != "osbert":
        config[FIELD] = as_field(model.task)
    if form == "google":
        if model.sentences:
            config[sentence_files.FIELD] = sentence_files.as_field(model.sentences)
        google.write_google(config, tensors, model.tokenizer, folder)
        return
    folder.mkdir(parents=True, exist_ok=True)
    sizes = model.learner.backbone.architecture
    write_any_tokenizer(model.tokenizer, folder, length=sizes.length, segments=sizes.segments)
    write_tensors(tensors, folder / SAFE)
    write_json(folder / "config.json", config)
    if model.sentences:
        write_sentence_model(folder, model.sentences, width=sizes.width)
    if form == "osbert":
        _write_run(model, folder)


def notes(model: ModelParts, form: Form | Literal["onnx"]) -> Iterator[str]:
    """Yield what others will not see of a model in a form, a sentence each."""
    if form == "osbert":
        return
    if form == "onnx":
        left = [name for name in model.learner.heads if model.task is None or name != model.task.name]
        if left:
            yield f"Not in the ONNX file: {', '.join(left)} (pretraining's heads)."
        return
    _, tensors = laid_out(model.learner)
    for name in model.learner.heads:
        own = [tensor for tensor in tensors if tensor.startswith(f"heads.{name}.")]
        if own:
            whole = len(own) == len(model.learner.heads[name].state_dict())
            part = "" if whole else f" ({', '.join(one.removeprefix(f'heads.{name}.') for one in own)})"
            yield f"Only osbert reads the head '{name}'{part}: one that others make in its place has random weights."


def _content(path: Path, opening: Opening) -> _Content:
    if (path / "config.json").is_file() and (has_weights(path) or google.checkpoint(path) is None):
        ours = (path / RECIPE).is_file() or (path / FACTS).is_file()
        tensors = named(read_whole(path, opening))
        form: Form = "osbert" if ours else "huggingface"
        return _Content(form=form, folder=path, config=read_json(path / "config.json"), tensors=tensors, others={})
    prefix = google.checkpoint(path)
    if prefix is None:
        raise UserError(_nothing(path))
    found = google.read_google(prefix)
    config = {"architectures": ["ForSequenceClassification"], **found.config}  # what run_classifier.py trains
    return _Content(form="google", folder=found.folder, config=config, tensors=found.tensors, others=found.unused)


def _sentences(content: _Content) -> SentenceModel | None:
    if content.form == "google":
        return sentence_files.of_field(content.config, where=str(content.folder))
    return read_sentence_model(content.folder)


def _nothing(path: Path) -> str:
    if not path.exists():
        return f"{path} is not there."
    return RunFolder(path).unended or (
        f"{path} is no model: it has neither config.json, as run folders and Hugging Face's have, nor a TensorFlow "
        f"checkpoint such as {google.PREFIX}.index."
    )


def _ordered(tensors: dict[str, Tensor], order: tuple[int, ...]) -> dict[str, Tensor]:
    """Return the tensors with the rows of the last layer in another order."""
    if not order:
        return tensors
    turned = {name: tensors[name][list(order)] for name in tensors if name.startswith(LAYERS)}
    return tensors | turned


def _heads(backbone: Backbone, tensors: Mapping[str, Tensor], task: Task | None) -> dict[str, Head]:
    """Return fresh heads of the kinds that there are tensors for, and the task's."""
    heads: dict[str, Head] = {task.name: task.head(backbone)} if task else {}
    if all(one in tensors for one in names.HEADS["mlm"].values()):
        heads["mlm"] = MaskedLanguageHead(backbone)
    if any(one in tensors for one in names.HEADS["nsp"].values()):
        heads["nsp"] = SequenceHead(backbone, target="nsp", form="nsp")
    known = components.names("objectives")
    for name in sorted({name.split(".")[1] for name in tensors if name.startswith("heads.")} - heads.keys()):
        if name in known:
            heads[name] = components.find("objectives", name, base=Objective)().head(backbone)
    return heads


def _units(tensors: Mapping[str, Tensor], task: Task | None) -> dict[str, Tensor]:
    """Return the last layer in the unit of others where it is another tensor than ours."""
    if task is None or f"heads.{task.name}.linear.weight" not in tensors:
        return {}
    return {part: tensors[f"classifier.{part}"] for part in ("weight", "bias") if f"classifier.{part}" in tensors}


def _without(rows: tuple[TensorRow, ...], filled: list[TensorRow]) -> Iterator[TensorRow]:
    taken = {row.name for row in filled}
    return (row for row in rows if row.name not in taken)


def _judged(rows: list[TensorRow], found: FolderTask, filled: list[TensorRow]) -> list[TensorRow]:
    """Return the rows with what is to be said of heads that no head of ours was made of."""
    published = any(row.name.startswith("heads.") for row in filled)
    judged = []
    for row in rows:
        if row.status == "unused" and row.expected and row.name.startswith(names.HEAD_PREFIXES):
            if row.name == names.DECODER:
                row = replace(row, remark="the piece embeddings once more")
            elif row.name.startswith(DISCRIMINATOR):
                row = replace(row, remark="ELECTRA's own head, which its encoder is used without")
            elif published and row.name.startswith(LAYERS):
                row = replace(row, remark="the same scores, as others read them")
            else:
                row = replace(row, expected=False, remark=found.reason or "of a head that osbert does not have")
        elif row.status == "new" and row in filled:
            row = replace(row, expected=False)
        judged.append(row)
    return judged


def _other(name: str, shape: tuple[int, ...]) -> TensorRow:
    if google.of_optimizer(name):
        return TensorRow(name=name, shape=shape, status="unused", remark="of use in training alone")
    return TensorRow(name=name, shape=shape, status="unused", expected=False, remark="unknown")


def _spelled(row: TensorRow) -> TensorRow:
    """Return a row by the name and shape that a tensor has in a TensorFlow checkpoint; those that are its own stay."""
    if "/" in row.name or "." not in row.name:
        return row
    name = google.theirs(row.name)
    return replace(row, name=name, shape=row.shape[::-1] if name.endswith("/kernel") else row.shape)


def _write_run(model: ModelParts, folder: Path) -> None:
    """Write how the run folder came to be, and the task if there is one."""
    source = model.folder / RECIPE
    if source.is_file():
        write_text(folder / RECIPE, source.read_text(encoding="utf-8"))
    elif model.task:
        write_text(folder / RECIPE, as_recipe(model.task))
    facts = {"osbert": osbert.__version__, "command": "convert", "source": str(model.folder), "form": model.form}
    write_json(folder / FACTS, {**facts, "settings": {}})
    RunFolder(folder).finish({})
