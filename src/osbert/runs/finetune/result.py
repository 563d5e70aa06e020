"""A finished fine-tuning: its scores on the development rows, its mistakes there, and its model."""

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

    `error`: how far apart they are, in the task's own measure (`Task.error`): of a classifier 1 minus the probability
    of the label, of a number the distance. `path` and `line`: where the row stands; "" and 0 if it came from no file.
    """

    texts: tuple[str, ...]
    label: Any
    prediction: Prediction
    error: float
    path: str = ""
    line: int = 0

    def __str__(self) -> str:
        """Return it in a line: where it stands, its label, the prediction, and the texts."""
        where = f"{self.path}, line {self.line}: " if self.path else ""
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
        """Return the scores of the best epoch on the development rows; its weights are the model."""
        return dict(self.facts["best"]["metrics"])

    @property
    def interval(self) -> ScoreInterval | None:
        """Return the score of the task's criterion on the development rows with its 95% interval.

        None for a run of several tasks, where no score is a number, and where draws of the rows are all alike.
        """
        found = self.facts.get("interval")
        return ScoreInterval(**found) if found else None

    @property
    def tasks(self) -> dict[str, FinetuneRun]:
        """Return the run of each task by its name: of several tasks each has a folder of its own."""
        if len(self.development) == 1:
            return dict.fromkeys(self.development, self)
        return {name: FinetuneRun(self.folder / name, {name: rows}) for name, rows in self.development.items()}

    @cached_property
    def errors(self) -> list[Mistake]:
        """Return the wrong predictions for the development rows, the worst first; of equal ones in the rows' order.

        They are made when this is first used, by the kept model. Raises UserError for a run of several tasks.
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
                label=record.label,
                prediction=prediction,
                error=error,
                path=record.path,
                line=record.line,
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
        """Return the prediction for each text, or for each pair of texts; of an iterator one by one."""
        return self.model.predict(texts)
