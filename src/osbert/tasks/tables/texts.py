"""One text or a pair of texts per row, and a label: the common part of classify, regress and others.

A pair is one sequence; or two, in both orders or each text by itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeGuard

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Example, Target
from osbert.data.long_texts import Long, lay_out
from osbert.data.pack import Packer
from osbert.errors import Problems, UserError
from osbert.models.forms import pair_blocks
from osbert.reading.columns import TextColumns, choose
from osbert.reading.table import Origin, Row, Table
from osbert.tasks import Prediction, Record, Source, Task
from osbert.tasks.edges import Weights
from osbert.tasks.tables import TableSource, TableTask, UnlabelledRow, require_cells, row_texts
from osbert.tasks.tables.classes import find_joined_labels, parse_list
from osbert.terminal import one_line


class TextSource(TableSource):
    """Reads tables with a text, or a pair of texts, and a label."""

    task: TextTask

    @property
    def named(self) -> tuple[str, ...]:
        task = self.task
        return (task.text, task.pair, task.label)

    def columns(self, table: Table, *, labelled: bool) -> TextColumns:
        layout = self.task.layout
        # A name from another form of the same data set is dropped; a name that the user chose is required.
        published = {name for form in layout.columns for name in (form.text, form.pair, form.label)}
        named = (self.task.text, self.task.pair, self.task.label)
        names = [name if name in table.columns or name not in published else "" for name in named]
        known = layout.find(table.columns, labelled=labelled)
        if known and not any(names):
            return known
        user_columns = TextColumns(text=names[0], pair=names[1], label=names[2])
        return choose(
            table.columns, user_columns=user_columns, path=table.called, numbers=self.task.numbers, labelled=labelled
        )

    def resolve(self) -> Task:
        columns = self.columns(self.open(self.file("train")), labelled=True)
        named = dataclasses.replace(self.task, text=columns.text, pair=columns.pair, label=columns.label)
        return self.attach_to(named)

    def fit_columns(self, origin: Origin, before: Any, given: Collection[str]) -> dict[str, Any]:
        """Return the settings that name columns: the names that the new table has, else those detected again.

        Raises UserError if the model was trained on pairs and the file has single texts, or the reverse.
        """
        # Text and pair keep their names only if the new table has both; a half-known pair would be wrong.
        table = self.open(origin)
        known = {before.text, before.pair} - {""} <= {*table.columns}
        names = {
            "text": before.text if known else "",
            "pair": before.pair if known else "",
            "label": before.label if before.label in table.columns else "",
        }
        settings: dict[str, Any] = {name: value for name, value in names.items() if name not in given}
        settings |= super().fit_columns(origin, before, given)
        self.task = dataclasses.replace(self.task, **settings)
        columns = self.columns(table, labelled=False)
        if before.text and bool(columns.pair) != bool(before.pair):
            wanted = "pairs of texts: give --text NAME --pair NAME" if before.pair else "single texts: give --text NAME"
            raise UserError(
                f"{table.called} has the columns {', '.join(table.columns)}; in use are {', '.join(columns.texts)}. "
                f"The model was trained on {wanted}.",
                code="unknown-column",
            )
        return {**settings, "text": columns.text, "pair": columns.pair}

    def advise_unlabelled(self, table: Table) -> str:
        """Return what to do about a row without a label; if the labels of the others look like lists, another task."""
        if self.task.values != "classes":
            return super().advise_unlabelled(table)
        key = ("advice", table.called)
        if key not in self._facts:
            column = self.columns(table, labelled=True).label
            cells = {row.values.get(column, "").strip() for row in table.rows(Problems(heading="", limit=0))}
            parts_by_label = {label: parse_list(label) for label in find_joined_labels(sorted(cells - {""}))}
            # A list of one is a label, and an empty one none, as annotation tools write them.
            joined = [label for label, parts in parts_by_label.items() if parts is None or len(parts) > 1]
            advice = super().advise_unlabelled(table)
            if joined:
                advice = f" '{one_line(joined[0])}' looks like several labels: osbert finetune multilabel takes these."
            self._facts[key] = advice
        return str(self._facts[key])

    def record(self, row: Row, columns: TextColumns, *, path: str = "") -> Record:
        texts = row_texts(row, columns.texts)
        require_cells(row, (), labels=[columns.label])
        cell = row.values[columns.label].strip() if columns.label else ""
        if columns.label in row.nested:
            cell = _only_label(cell)
        if columns.label and not cell:
            raise UnlabelledRow("the label is empty")
        task = self.task
        label = task.value(cell) if columns.label and cell not in task.layout.unlabelled else None
        return Record(number=0, texts=texts, label=label, path=path, line=row.line)


@dataclass(frozen=True, kw_only=True)
class TextTask(TableTask):
    """A task on texts, or pairs of texts, with one label each."""

    reader: ClassVar[type[Source]] = TextSource
    too_long: ClassVar[str] = (
        "{count:,} pieces more than fit into {length} tokens. Shorten the text, or give --long truncate, head+tail or "
        "window."
    )

    text: str = ""
    """The column with the text; detected by its name if not given."""
    pair: str = ""
    """The column with the second text of a pair; "" for single texts."""
    label: str = ""
    """The column with the label; detected by its name if not given."""
    long: Long = "truncate"
    """What happens to a text that does not fit: truncate keeps its beginning; head+tail, a quarter from its beginning
    and the rest from its end; window reads all of it in overlapping windows, whose scores are averaged; error rejects
    it."""
    overlap: int = 64
    """Overlap of a window with the one before in pieces, at most half of a window."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.overlap < 0:
            raise ValueError(f"overlap must be 0 or more pieces, not {self.overlap}")
        if self.both_orders and self.apart:
            raise ValueError(
                "both_orders and apart cannot be combined: each is a way to read a pair. Remove one of the two"
            )
        if self._two and self.long == "window":
            name = "apart" if self.apart else "both_orders"
            raise ValueError(
                f"{name} reads a pair as two sequences: long = window cannot be used. Give truncate, head+tail or error"
            )

    @property
    def both_orders(self) -> bool:
        """Return whether pairs are read in both orders. Kinds that can do it have a setting of this name."""
        return False

    @property
    def apart(self) -> bool:
        """Return whether each text of a pair is read by itself. Kinds that can do it have a setting of this name."""
        return False

    @property
    def _two(self) -> bool:
        """Return whether a record has two sequences."""
        return self.both_orders or self.apart

    @property
    def batching(self) -> Literal["sequences", "records", "step"]:  # type: ignore[override]
        """Return "records" if a pair has two sequences, which must stay in one pass."""
        return "records" if self._two else "sequences"

    @property
    def sample(self) -> str:  # type: ignore[override]
        """Return sample arguments of `osbert predict RUN` to try a run."""
        return '"a text of yours" "and the second of the pair"' if self.pair else super().sample

    @property
    def request_fields(self) -> tuple[str, ...]:
        return ("text", "other") if self.pair else ("text",)

    @property
    def training_facts(self) -> dict[str, list[Any]]:
        columns = [name for name in (self.text, self.pair) if name]
        return {"columns": columns} if len(columns) == len(self.request_fields) else {}

    def value(self, text: str) -> Any:
        """Return the label in a cell. Raises ValueError with the reason if it is invalid."""
        return text

    def record_of(self, texts: Sequence[str]) -> Record:
        if self.text and len(texts) != (wanted := 2 if self.pair else 1):
            kind = "pairs of texts, not single ones" if wanted == 2 else "single texts, not pairs"
            raise UserError(f"The run was fine-tuned on {kind}.", code="wrong-number-of-texts")
        return super().record_of(texts)

    def target(self, label: Any) -> tuple[Any, Any] | None:
        """Return the target of a label (an integer, a number, or M integers) and its weight in the loss, None for 1.

        None instead of both for a kind whose `encode` adds the targets itself.
        """
        return None

    def encode(self, record: Record, packer: Packer) -> list[Example]:
        """Return the sequence of a text or a pair, its windows, or the two of a pair, with the target of the label."""
        examples = self._encode_apart(record, packer) if self._two else self._encode_texts(record, packer)
        target = None if record.label is None else self.target(record.target)
        if target is None:
            return examples
        # Of a pair with two sequences the first has the target: the head finds the other one by the record.
        carrying, others = (examples[:1], examples[1:]) if self._two else (examples, [])
        label, weight = target
        labels, weights = np.atleast_1d(label), None
        if weight is not None or len(carrying) > 1:
            # The weights of a text's windows sum to its weight: a long text counts no more than a short one.
            window_weight = (1.0 if weight is None else np.asarray(weight)) / len(carrying)
            weights = np.broadcast_to(window_weight, labels.shape).astype(np.float32)
        targets = {self.name: Target(labels=labels, weights=weights)}
        return [*(dataclasses.replace(example, targets=targets) for example in carrying), *others]

    def _encode_apart(self, record: Record, packer: Packer) -> list[Example]:
        """Return the two sequences of a pair, in both orders or each text by itself."""
        if len(record.texts) != 2:
            option = "--apart" if self.apart else "--both-orders"
            raise UserError(
                f"{record.place}: {option} is for pairs of texts, but this is not two texts. Leave it out.",
                code="wrong-number-of-texts",
            )
        if self.apart:
            # Two sequences of one text each, u first, then v: `decode_with` relies on this order.
            alone = (dataclasses.replace(record, texts=(text,)) for text in record.texts)
            return [example for text_record in alone for example in self._encode_texts(text_record, packer)]
        examples = self._encode_texts(record, packer)
        # No windows here, so the reversed pair is one sequence; a second one would raise.
        [other] = self._encode_texts(dataclasses.replace(record, texts=record.texts[::-1]), packer)
        return [*examples, dataclasses.replace(other, truncated=0)]  # cut pieces count once

    def _encode_texts(self, record: Record, packer: Packer) -> list[Example]:
        """Return the one sequence of a text or a pair, or its windows."""
        if len(record.texts) > 2:
            raise UserError(
                f"{record.place}: {self.name} reads one text or a pair, not {len(record.texts)} texts.",
                code="wrong-number-of-texts",
            )
        # One run of pieces for each text; lay_out adds special pieces and cuts windows.
        runs = [packer.run(text) for text in record.texts]
        return lay_out(runs, packer, long=self.long, overlap=self.overlap, record=record.number)

    def decode_with(self, learnt: Mapping[str, list[Any]]) -> Callable[..., Prediction]:
        """Return `decode`; with `apart` a version that first applies the learnt layer to the two vectors."""
        if not self.apart:
            return super().decode_with(learnt)
        weight, bias = (np.array(learnt[name], np.float64) for name in ("weight", "bias"))  # (K, 4 D + 1), (K,)

        def decode(outputs: Sequence[NDArray[np.floating]], record: Record, examples: Sequence[Example]) -> Prediction:
            # The features of models/heads/contrastive.py: outputs are the two vectors (2, D).
            u, v = np.asarray(outputs, np.float64)
            return self.decode([weight @ np.concatenate(pair_blocks(u, v)) + bias], record, examples)

        return decode

    def join_outputs(
        self, outputs: Sequence[NDArray[np.floating]], *, axis: int | None = None, dtype: type[np.float64] | None = None
    ) -> Any:
        """Return the mean of outputs over windows, or their sum over the two orders; `axis`, `dtype` are numpy's."""
        # The head adds the two states before its layer, so the outputs of both orders are summed.
        return (np.sum if self.both_orders else np.mean)(outputs, axis=axis, dtype=dtype)

    def split_weights(self, weights: Weights, examples: Sequence[Example]) -> list[Weights]:
        """Return the weights (K,) of each sequence's outputs, given those of the joined outputs."""
        # The mean over windows divides weights by their number; a sum does not.
        return [weights if self._two else weights / len(examples)] * len(examples)


def read_apart(task: Task, records: Sequence[Record]) -> Task:
    """Return the task with `apart`; unchanged for single texts, both orders or windows, or without that setting."""
    if not _can_read_apart(task) or any(len(record.texts) != 2 for record in records):
        return task
    changed: dict[str, Any] = {"apart": True}
    return task.source.attach_to(dataclasses.replace(task, **changed))


def joins_pairs(task: Task) -> bool:
    """Return whether a task reads the two texts of a pair as one sequence, and could read them apart."""
    return _can_read_apart(task) and bool(task.pair)


def _can_read_apart(task: Task) -> TypeGuard[TextTask]:
    """Return whether a task has the setting `apart`, and neither it nor what excludes it is set."""
    if not isinstance(task, TextTask) or task.both_orders or task.apart or task.long == "window":
        return False
    return any(field.name == "apart" for field in dataclasses.fields(task))


def _only_label(cell: str) -> str:
    """Return the label in a list of one, as annotation tools write it; "" for an empty list; else raise ValueError."""
    parts = parse_list(cell) or []
    if cell == "[]":
        return ""
    if len(parts) == 1 and isinstance(parts[0], str):
        return parts[0].strip()
    raise ValueError(
        f"the label is a list or an object ({cell[:40]}), but a row has one label. Write it as a text or a number; for "
        "several labels a row: osbert finetune multilabel; for votes of annotators: classify --aggregation votes"
    )
