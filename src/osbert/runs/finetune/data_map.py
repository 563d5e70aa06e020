"""The data map of a fine-tuning: the probability of each training row's label at each score on the development rows."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from osbert.analysis.data_map import LEAST, DataMap
from osbert.errors import UserError
from osbert.evaluation.score import predict
from osbert.files import writing_output
from osbert.models.contract import Learner
from osbert.runs.finetune.events import Epoch
from osbert.runs.finetune.rows import FinetuneRows, TaskRows
from osbert.tasks import Record
from osbert.tasks.calibration import columns

MAP = "data_map.csv"
"""File with all training rows, sorted by the probability of their labels, the lowest first."""
KEPT = "map-epoch-*.npy"
"""Files with the probabilities at each score, kept until the run is finished."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DataMapRecorder:
    """Records the data map: one file for each score in the run's folder. A resumed run overwrites it."""

    rows: TaskRows
    folder: Path

    @classmethod
    def of(cls, rows: FinetuneRows, learner: Learner, folder: Path) -> DataMapRecorder:
        """Return the recorder of a run. Raises UserError if rows have no single label with a probability."""
        task_rows = rows.tasks[0]
        if (
            not rows.single
            or columns(
                predict(learner, task_rows.task, task_rows.training[:1], task_rows.packer), task_rows.training[:1]
            )
            is None
        ):
            raise UserError(
                "A data map needs one task whose rows have one label out of several, such as classify or choose. Leave "
                "--data-map out.",
                code="options-exclude-each-other",
            )
        return cls(rows=task_rows, folder=folder)

    @property
    def records(self) -> Sequence[Record]:
        """The training rows."""
        return self.rows.training

    def note(self, epoch: Epoch, learner: Learner) -> None:
        """Save the probability of each row's label, and whether it is the highest one of the row."""
        probability_columns = columns(predict(learner, self.rows.task, self.records, self.rows.packer), self.records)
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

    def write(self, data_map: DataMap) -> str:
        """Write all rows in the map's order to MAP, and return a sentence on the suspicious ones."""
        path = self.folder / MAP
        head = ["file", "line", "label", "confidence", "variability", "correctness"]
        scores = [f"score {number}" for number in range(1, 1 + len(data_map.probabilities))]
        texts = [f"text {number}" for number in range(1, 1 + max(len(record.texts) for record in self.records))]
        with (
            writing_output(path) as aside,
            aside.open("w", encoding="utf-8", newline="", errors="backslashreplace") as stream,
        ):
            lines = csv.writer(stream)
            lines.writerow([*head, *scores, *texts])
            measures = (data_map.confidence, data_map.variability, data_map.correctness, *data_map.probabilities)
            for row in data_map.order.tolist():
                record = self.records[row]
                numbers = [f"{measure[row]:.4f}" for measure in measures]
                lines.writerow([record.path, record.line, record.label, *numbers, *record.texts])
        return (
            f"data map: the label of {len(data_map.suspicious):,} of {len(self.records):,} training rows was never the "
            f"likeliest; they are the first lines of {path}"
        )

    def _path(self, epoch: Epoch) -> Path:
        return self.folder / KEPT.replace("*", f"{epoch.step}")
