"""osbert convert: a model in the form of others becomes a run folder, or a run folder a model in theirs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from osbert.commands.opening_options import ModelFolder, OpeningOptions
from osbert.errors import Problems, UserError
from osbert.files import require_free, whole_folder
from osbert.interop.opening import CAREFUL, Opening
from osbert.lock import claim

if TYPE_CHECKING:
    from osbert.interop.conversion import ModelParts
    from osbert.interop.conversion_check import Difference
    from osbert.interop.folder import Form
    from osbert.interop.task_files import TaskHint
    from osbert.interop.tensor_report import TensorRow

LAYER = re.compile(r"\blayer[._](\d+)\b")


def convert(
    source: ModelFolder,
    target: Path,
    /,
    *,
    to: Literal["osbert", "huggingface", "google", "onnx"],
    task: str | None = None,
    labels: str = "",
    anyway: Annotated[bool, Parameter(negative=())] = False,
    opening: OpeningOptions = CAREFUL,
) -> None:
    """Convert a model between osbert's run folders, Hugging Face's and google-research/bert's (TensorFlow).

    Every tensor is listed with what became of it. Then both folders are loaded anew and must say the same of a few
    fixed texts. The target is there whole or not at all. The exit status is 1 at any PROBLEM.

    Parameters
    ----------
    source
        A run folder, a Hugging Face folder, a folder with bert_config.json, vocab.txt and bert_model.ckpt.*, or the
        prefix of one of several checkpoints in such a folder; or a name (docs/models-by-name.md).
    target
        The folder to write, which is not there yet, or empty.
    to
        osbert: a run folder, which predict, embed, finetune --model and pretrain --from take. huggingface: what
        AutoModel or SentenceTransformer reads, and nothing else. google: what google-research/bert reads. onnx: what
        osbert export writes.
    task
        What the last layer of a model is for, where its config does not tell: classify, regress, tag, span, choose, or
        a kind of your own by its dotted name.
    labels
        Names of its outputs in their order, with commas: no,yes. They replace those of the config.
    anyway
        Write the target also when a tensor is a PROBLEM; the exit status stays 1.
    """
    from osbert.interop.conversion import notes, write_model_as
    from osbert.interop.task_files import TaskHint

    with claim(target) as place:
        check_target(source, place)
        asked = TaskHint(kind=task, labels=tuple(label.strip() for label in labels.split(",")) if labels else ())
        model = opened(source, asked, opening)
        problems = list(model.report.problems)
        if problems and not anyway:
            raise UserError(f"{count(problems)} above; nothing was written. --anyway writes {target} without them.")
        if to == "onnx":
            from osbert.commands import convert_onnx

            convert_onnx.refuse(model)
        with whole_folder(place) as folder:
            if to == "onnx":
                convert_onnx.write_exported(model, source, folder, asked, opening.again)
            else:
                write_model_as(model, folder, to)
                compare(source, folder, asked, opening.again)
        print(f"{target}: written as {to}")
        for note in notes(model, to):
            print(note)
        if problems:
            raise UserError(f"{count(problems)} above.")


def opened(source: Path, asked: TaskHint, opening: Opening) -> ModelParts:
    """Open a model and print what was found. Raises UserError when there is no layer that `asked` is about."""
    from osbert.interop.conversion import model_of, open_any

    model = model_of(open_any(source, opening), asked)
    if model.task is None and (asked.kind or asked.labels):
        raise UserError(f"{source} has no layer of a task that --task and --labels could be about: leave them out.")
    print(f"{source}: {described(model)}", flush=True)
    for remark in model.sentences.remarks if model.sentences else ():
        print(remark)
    tell_rows(model)
    return model


def check_target(source: Path, target: Path) -> None:
    """Raise UserError when the target cannot be written, or there is no source."""
    require_free(target)
    if not source.exists() and not list(source.parent.glob(f"{source.name}.*")):
        raise UserError(f"{source} is not there.")


def compare(source: Path, written: Path, asked: TaskHint, opening: Opening) -> None:
    """Load both anew and compare what they say; raises UserError at a difference above the bound."""
    from osbert.interop.conversion import model_of, open_any
    from osbert.interop.conversion_check import differences, sequences

    first, second = model_of(open_any(source, opening), asked), model_of(open_any(written, opening))
    try:
        found = differences(first, second)
    except ValueError as error:
        raise UserError(f"The forward check has failed: {error}. Nothing was written.") from error
    tell_differences(found, of=f"Both loaded anew, on {len(sequences(first))} sequences")


def tell_differences(found: Sequence[Difference], *, of: str) -> None:
    """Print the differences of two models; raises UserError where one is above its bound."""
    print(f"{of}, largest differences (bound {found[0].bound:g}):")
    problems = Problems(heading="The forward check has failed; nothing was written")
    for one in found:
        print(f"  {one.what}: {one.largest:.2g}{'' if one.small else '  PROBLEM'}")
        if not one.small:
            problems.add(f"{one.what} differ by {one.largest:g}, more than {one.bound:g}")
    problems.stop_if_any()


def described(model: ModelParts) -> str:
    """Return in a line what was found."""
    sizes = model.learner.backbone.architecture
    forms: dict[Form, str] = {"osbert": "a run of osbert's", "huggingface": "Hugging Face's", "google": "TensorFlow's"}
    heads = ", ".join(model.learner.heads) or "no head"
    task = f"; task {model.task.name}" if model.task else ""
    pieces = f"{len(model.source.tokenizer):,} pieces"
    return f"{forms[model.source.form]}, {sizes.layers} layers of {sizes.width}, {pieces}; {heads}{task}"


def tell_rows(model: ModelParts) -> None:
    """Print the table of all tensors; layers that are alike are one row."""
    rows = gathered(model.report.rows)
    cells = [(row.name, " x ".join(map(str, row.shape)) or "number", row.status, mark(row), row.remark) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells)]
    for line in cells:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())
    totals = {status: len(model.report.named(status)) for status in ("loaded", "new", "unused")}
    said = ", ".join(f"{number:,} {status}" for status, number in totals.items())
    print(f"{said}; {count(list(model.report.problems)) if model.report.problems else 'no problem'}")


def mark(row: TensorRow) -> str:
    """Return how a row is marked."""
    return "expected" if row.expected else "PROBLEM"


def gathered(rows: tuple[TensorRow, ...]) -> list[TensorRow]:
    """Return the rows with those of several layers that are alike in one, in the order of the first of them."""
    from dataclasses import replace

    groups: dict[TensorRow, list[int]] = {}
    for row in rows:
        place = LAYER.search(row.name)
        name = row.name if place is None else f"{row.name[: place.start(1)]}*{row.name[place.end(1) :]}"
        groups.setdefault(replace(row, name=name), []).append(int(place[1]) if place else -1)
    found = []
    for row, layers in groups.items():
        several = f"{min(layers)}-{max(layers)}" if len(layers) > 1 else str(layers[0])
        if len(layers) == max(layers) - min(layers) + 1:
            found.append(replace(row, name=row.name.replace("*", several)))
        else:
            found += [replace(row, name=row.name.replace("*", str(layer))) for layer in layers]
    return found


def count(rows: list[TensorRow]) -> str:
    """Return how many tensors are a PROBLEM, in words."""
    return "1 tensor is a PROBLEM" if len(rows) == 1 else f"{len(rows):,} tensors are a PROBLEM"
