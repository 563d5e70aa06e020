"""A data map of training rows: a model's confidence in each row's label during training (Swayamdipta et al. 2020).

Section 2.1 there: confidence is the mean probability of the label over the epochs, variability its standard deviation,
correctness the fraction of the epochs in which the label has the highest probability. Rows of low confidence and low
variability are often mislabelled. Here the probabilities come from a separate pass after each epoch, without dropout;
in the paper from the training pass.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from osbert.reports.examples import cut_text
from osbert.reports.page import Section, paragraph, table
from osbert.reports.plot import Series, explain_picture, line_plot
from osbert.tasks import Record
from osbert.terminal import one_line

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

    def section(self, records: list[Record], file: str) -> Section:
        """Return the section with the picture and the rows to check first. `file`: the file that lists all rows."""
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
            more = f"The first {len(rows):,} of these rows; all rows, in this order, are in {file}."
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
