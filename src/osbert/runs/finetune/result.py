"""The result of a fine-tuning: scores and errors on the development rows, and the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, overload

from osbert.errors import UserError
from osbert.evaluation.intervals import ScoreInterval
from osbert.runs.contract import Run
from osbert.tasks import Prediction, Record


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """A development row whose prediction differs from its label.

    `error`: the task's distance of the two (`Task.error`): for a classifier 1 minus the probability of the label, for a
    number the absolute difference. `path` and `line`: the row's file and line. Of rows in memory `path` is the split or
    "", and `line` the number from 1 (`unit` is "row"), or that in the index of a DataFrame (`unit` is "index").
    """

    texts: tuple[str, ...]
    label: Any
    prediction: Prediction
    error: float
    path: str = ""
    line: int = 0
    unit: str = "line"

    def __str__(self) -> str:
        """Return one line: file and line, label, prediction, and texts."""
        place = f"{self.unit} {self.line}: " if self.path or self.unit != "line" else ""
        where = f"{self.path}, {place}" if self.path else place
        return f"{where}{self.label!r}, predicted {self.prediction.value!r}: {' | '.join(self.texts)}"


@dataclass(frozen=True)
class FinetuneRun(Run):
    """A finished fine-tuning. `development`: the development rows of each task, by its name.

    >>> import osbert
    >>> run = osbert.finetune("classify", model="encoder", data="more.csv", out="classifier", epochs=1, batch=8)
    >>> 0 <= run.metrics["accuracy"] <= 1, run.folder.name
    (True, 'classifier')
    >>> [mistake.error for mistake in run.errors] == sorted((one.error for one in run.errors), reverse=True)
    True
    >>> run.predict(["the good film"])[0].value in ("neg", "pos")
    True
    """

    reported: ClassVar[tuple[str, ...]] = ("folder", "metrics")

    development: Mapping[str, Sequence[Record]] = field(default_factory=dict, repr=False)

    @property
    def metrics(self) -> dict[str, float]:
        """The scores of the kept epoch on the development rows; its weights are the model's."""
        return dict(self.facts["best"]["metrics"])

    @property
    def interval(self) -> ScoreInterval | None:
        """The score of the task's criterion on the development rows with its 95% interval.

        None for a run of several tasks, if the score is not a number, and if all bootstrap samples are equal.
        """
        fields = self.facts.get("interval")
        return ScoreInterval(**fields) if fields else None

    @property
    def tasks(self) -> dict[str, FinetuneRun]:
        """The run of each task by its name. With several tasks each has its own folder."""
        if len(self.development) == 1:
            return dict.fromkeys(self.development, self)
        return {name: FinetuneRun(self.folder / name, {name: rows}) for name, rows in self.development.items()}

    @cached_property
    def errors(self) -> list[Mistake]:
        """The wrong predictions for the development rows, the largest error first, ties in the rows' order.

        The kept model computes them on first use. Raises UserError for a run of several tasks.
        """
        if len(self.development) != 1:
            names = ", ".join(self.development)
            raise UserError(
                f"{self.folder} holds several tasks ({names}): take run.tasks[name].errors of one.",
                code="invalid-value",
            )
        [records] = self.development.values()
        task = self.model.fine_tuned
        mistakes = [
            Mistake(
                texts=record.texts,
                label=record.expected,
                prediction=prediction,
                error=error,
                path=record.path,
                line=record.line,
                unit=record.unit,
            )
            for record, prediction in zip(records, self.model.predict_records(records))
            if (error := task.error(prediction, record)) > 0
        ]
        return sorted(mistakes, key=lambda mistake: -mistake.error)

    @overload
    def predict(self, texts: Iterator[str | tuple[str, ...]]) -> Iterator[Prediction]: ...

    @overload
    def predict(self, texts: Sequence[str | tuple[str, ...]]) -> list[Prediction]: ...

    def predict(self, texts: Any) -> Any:
        """Return the prediction for each text, or for each pair of texts; an iterator gives an iterator."""
        return self.model.predict(texts)
