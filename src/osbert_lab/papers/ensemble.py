"""Scores an ensemble: several runs of one task predict the development rows together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from osbert.errors import UserError
from osbert.files import read_own, write_sealed
from osbert.inference.engine import load as load_engine
from osbert.runs.contract import Notice, Watch, ignore
from osbert.tasks import Prediction, load
from osbert.tasks.kinds.span.questions import AnswerPrediction, together


@dataclass(frozen=True, kw_only=True)
class Ensemble:
    """Runs of one task that differ only in their seeds, and the file with the ensemble's metrics."""

    runs: Sequence[Path]
    out: Path

    @property
    def metrics(self) -> dict[str, float]:
        """The ensemble's metrics; available after `run`."""
        return read_own(self.out, "Remove it and give the same command again.")

    def run(self, watch: Watch = ignore) -> None:
        """Measure the ensemble on the development rows, unless the file with its metrics exists.

        One model is in memory at a time. Raises UserError if the predictions of the runs cannot be averaged.
        """
        if self.out.is_file():
            return
        predictions_by_run: list[list[Prediction]] = []
        for number, run in enumerate(self.runs, 1):
            watch(Notice(f"ensemble: answers of {run} ({number} of {len(self.runs)})"))
            engine = load_engine(run)
            task, records = load(engine.fine_tuned, ("dev",), fit=False)
            predictions_by_run.append(engine.predict_records(records["dev"]))
        joined = [together(_answers(answers)) for answers in zip(*predictions_by_run)]
        write_sealed(self.out, task.metrics(joined, records["dev"]))


def _answers(predictions: Sequence[Prediction]) -> list[AnswerPrediction]:
    answers = [
        prediction
        for prediction in predictions
        if isinstance(prediction, AnswerPrediction) and prediction.margin is None
    ]
    if len(answers) < len(predictions):
        raise UserError("An ensemble needs runs that answer every question (SQuAD 1.1).", code="unsupported-model")
    return answers
