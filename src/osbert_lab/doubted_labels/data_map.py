"""A data map of training rows: a model's confidence in each row's label during training (Swayamdipta et al. 2020).

Section 2.1 there: confidence is the mean probability of the label over the epochs, variability its standard deviation,
correctness the fraction of the epochs in which the label has the highest probability. Rows of low confidence and low
variability are often mislabelled. Here the probabilities come from a separate pass after each epoch, without dropout;
in the paper from the training pass.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from osbert.errors import UserError
from osbert.evaluation.score import predict
from osbert.files import writing_output
from osbert.models.contract import Learner
from osbert.reports.examples import cut_text
from osbert.reports.page import Section, paragraph, table
from osbert.reports.plot import Series, explain_picture, line_plot
from osbert.runs.events import Epoch
from osbert.runs.finetune.rows import FinetuneRows, TaskRows
from osbert.runs.finetune.training_loop import KEPT
from osbert.tasks import Record
from osbert.tasks.calibration import columns
from osbert.terminal import one_line

MAP = "data_map.csv"
"""File with all training rows, sorted by the probability of their labels, the lowest first."""
Floats = NDArray[np.float64]
LEAST = 2
"""Fewest scores (epochs) for a map."""
SPOTS = 400
"""Most points of one kind in the picture, evenly spaced in confidence."""
SHOWN = 50
"""Most rows in the table of the report."""


@dataclass(frozen=True, kw_only=True)
class DataMap:
    """Probabilities of the labels of n training rows after each of E epochs.

    `probabilities` (E, n): of each row's label. `right` (E, n): whether the label had the highest probability.

    >>> probabilities = np.array([[0.9, 0.2], [0.7, 0.1]])
    >>> found = DataMap(probabilities=probabilities, right=probabilities > 0.5)
    >>> found.confidence.round(2).tolist(), found.variability.round(2).tolist(), found.suspicious.tolist()
    ([0.8, 0.15], [0.1, 0.05], [1])
    """

    probabilities: Floats
    right: NDArray[np.bool_]

    @property
    def confidence(self) -> Floats:
        """Return the mean probability (n,) of each row's label over the epochs."""
        return np.asarray(self.probabilities.mean(axis=0))

    @property
    def variability(self) -> Floats:
        """Return the standard deviation (n,) of that probability over the epochs."""
        return np.asarray(self.probabilities.std(axis=0))

    @property
    def correctness(self) -> Floats:
        """Return the fraction (n,) of the epochs in which the label has the highest probability."""
        return np.asarray(self.right.mean(axis=0))

    @property
    def order(self) -> NDArray[np.intp]:
        """Return the indices of the rows (n,) by ascending confidence."""
        return np.argsort(self.confidence, kind="stable")

    @property
    def suspicious(self) -> NDArray[np.intp]:
        """Return the indices of rows whose label never had the highest probability, by ascending confidence."""
        return self.order[self.correctness[self.order] == 0]

    def section(self, records: Sequence[Record]) -> Section:
        """Return the section with the picture and the rows to check first; MAP lists all rows."""
        suspicious = self.suspicious
        n, epochs = len(records), len(self.probabilities)
        plain = (
            f"Each spot is a training row: up, how sure the model is of its label on average over {epochs} scores; to "
            f"the right, how much that changed. The label of {len(suspicious):,} of {n:,} rows was never the likeliest."
        )
        caution = (
            "A row at the lower left may have a wrong label, or be a hard or a rare one with a right label: read it. A "
            "model that has seen a wrong label often enough learns it by heart, so more epochs find fewer of them."
        )
        picture = line_plot(self._series(), title="Training rows: confidence by variability", across="variability")
        rows = [
            (record.place, str(record.label), f"{confidence:.3f}", cut_text(one_line(" | ".join(record.texts)), 200))
            for record, confidence in ((records[row], self.confidence[row]) for row in suspicious[:SHOWN].tolist())
        ]
        parts = [explain_picture(picture, plain=plain, caution=caution)]
        if rows:
            more = f"The first {len(rows):,} of these rows; all rows, in this order, are in {MAP}."
            parts += [paragraph(more), table(rows, head=("row", "label", "confidence", "text"))]
        return Section(heading="Data map", parts=parts)

    def _series(self) -> list[Series]:
        correctness, points = self.correctness, np.stack([self.variability, self.confidence], axis=1)
        kinds = {
            "always right": correctness == 1,
            "now and then": (correctness > 0) & (correctness < 1),
            "never right": correctness == 0,
        }
        curves = []
        for color, (name, which) in enumerate(kinds.items()):
            kind_points = points[which]
            # The step is the ceiling of len / SPOTS, so that at most SPOTS points are left.
            kind_points = kind_points[np.argsort(kind_points[:, 1], kind="stable")][
                :: max(1, -(-len(kind_points) // SPOTS))
            ]
            spots = [(float(x), float(y)) for x, y in kind_points]
            curves.append(Series(name=name, points=spots, look="spots", color=color))
        return curves


@dataclass(frozen=True, kw_only=True, eq=False)
class DataMapRecorder:
    """Records the data map: one file for each score in the run's folder. A resumed run overwrites it."""

    rows: TaskRows
    folder: Path

    @classmethod
    def of(cls, rows: FinetuneRows, learner: Learner, folder: Path) -> DataMapRecorder:
        """Return the recorder of a run. Raises UserError if rows have no single label with a probability."""
        task_rows = rows.tasks[0]
        first = task_rows.training[:1]
        if not rows.single or columns(predict(learner, task_rows.task, first, task_rows.packer), first) is None:
            raise UserError(
                "A data map needs one task whose rows have one label out of several, such as classify or choose. Leave "
                "--data-map out.",
                code="options-exclude-each-other",
            )
        return cls(rows=task_rows, folder=folder)

    def note(self, epoch: Epoch, learner: Learner) -> None:
        """Save the probability of each row's label, and whether it is the highest one of the row."""
        rows = self.rows
        probability_columns = columns(predict(learner, rows.task, rows.training, rows.packer), rows.training)
        assert probability_columns is not None  # `of` has looked
        label_probabilities, labels = probability_columns
        probabilities = np.take_along_axis(label_probabilities, labels[:, None], axis=1)[:, 0]
        with writing_output(self._path(epoch)) as aside, aside.open("wb") as stream:
            np.save(stream, np.stack([probabilities, np.nanmax(label_probabilities, axis=1) == probabilities]))

    def read(self, epochs: Sequence[Epoch]) -> DataMap | None:
        """Return the map of all scores after step 0; None if there are fewer than LEAST."""
        arrays = [np.load(self._path(epoch)) for epoch in epochs if epoch.step]
        if len(arrays) < LEAST:
            return None
        both = np.array(arrays)  # (E, 2, n)
        return DataMap(probabilities=both[:, 0], right=both[:, 1] > 0)

    def sections(self, epochs: Sequence[Epoch]) -> list[Section]:
        """Return the section of the report, none if there are too few scores for a map."""
        data_map = self.read(epochs)
        return [data_map.section(self.rows.training)] if data_map else []

    def write(self, epochs: Sequence[Epoch]) -> str:
        """Write all rows in the map's order to MAP; return a sentence on the suspicious ones, "" if there is no map."""
        path, data_map = self.folder / MAP, self.read(epochs)
        if data_map is None:
            return ""
        head = ["file", "line", "label", "confidence", "variability", "correctness"]
        scores = [f"score {number}" for number in range(1, 1 + len(data_map.probabilities))]
        records = self.rows.training
        texts = [f"text {number}" for number in range(1, 1 + max(len(record.texts) for record in records))]
        with (
            writing_output(path) as aside,
            aside.open("w", encoding="utf-8", newline="", errors="backslashreplace") as stream,
        ):
            lines = csv.writer(stream)
            lines.writerow([*head, *scores, *texts])
            measures = (data_map.confidence, data_map.variability, data_map.correctness, *data_map.probabilities)
            for row in data_map.order.tolist():
                record = records[row]
                numbers = [f"{measure[row]:.4f}" for measure in measures]
                lines.writerow([record.path, record.line, record.label, *numbers, *record.texts])
        return (
            f"data map: the label of {len(data_map.suspicious):,} of {len(records):,} training rows was never the "
            f"likeliest; they are the first lines of {path}"
        )

    def _path(self, epoch: Epoch) -> Path:
        return self.folder / KEPT.replace("*", f"{epoch.step}")
