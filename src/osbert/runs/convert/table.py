"""The table of a conversion: the fate of every tensor; equal layers share a row."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from osbert.interop.conversion import ModelParts
from osbert.interop.folder import FolderForm
from osbert.interop.huggingface.folders import Report, TensorRow
from osbert.terminal import in_columns

LAYER = re.compile(r"\blayer[._](\d+)\b")


def describe_model(model: ModelParts) -> str:
    """Describe the result in one line."""
    sizes = model.learner.backbone.architecture
    forms: dict[FolderForm, str] = {
        "osbert": "a run of osbert's",
        "huggingface": "Hugging Face's",
        "google": "TensorFlow's",
    }
    heads = ", ".join(model.learner.heads) or "no head"
    task = f"; task {model.task.name}" if model.task else ""
    pieces = f"{len(model.source.tokenizer):,} pieces"
    return f"{forms[model.source.form]}, {sizes.layers} layers of {sizes.width}, {pieces}; {heads}{task}"


def table_lines(report: Report) -> Iterator[str]:
    """Yield the table of all tensors, and the totals."""
    rows = merge_layers(report.rows)
    yield from in_columns(
        [(row.name, " x ".join(map(str, row.shape)) or "number", row.status, mark(row), row.remark) for row in rows],
        indent="  ",
    )
    totals = {status: len(report.select_names(status)) for status in ("loaded", "new", "unused")}
    summary = ", ".join(f"{number:,} {status}" for status, number in totals.items())
    yield f"{summary}; {count(report.problems) if report.problems else 'no problem'}"


def mark(row: TensorRow) -> str:
    """Return the mark of a row."""
    return "expected" if row.expected else "PROBLEM"


def merge_layers(rows: tuple[TensorRow, ...]) -> list[TensorRow]:
    """Merge rows that differ only in their layer, in the order of the first one."""
    groups: dict[TensorRow, list[int]] = {}
    for row in rows:
        match = LAYER.search(row.name)
        # Replace the layer's number by "*": rows of all layers then have the same key.
        name = row.name if match is None else f"{row.name[: match.start(1)]}*{row.name[match.end(1) :]}"
        groups.setdefault(replace(row, name=name), []).append(int(match[1]) if match else -1)
    merged_rows = []
    for row, layers in groups.items():
        several = f"{min(layers)}-{max(layers)}" if len(layers) > 1 else str(layers[0])
        # Merge consecutive layers only: "0-11" must not hide a gap.
        if len(layers) == max(layers) - min(layers) + 1:
            merged_rows.append(replace(row, name=row.name.replace("*", several)))
        else:
            merged_rows += [replace(row, name=row.name.replace("*", str(layer))) for layer in layers]
    return merged_rows


def count(rows: Sequence[TensorRow]) -> str:
    """Describe how many tensors are a PROBLEM."""
    return "1 tensor is a PROBLEM" if len(rows) == 1 else f"{len(rows):,} tensors are a PROBLEM"
