"""GLUE: its sets, their official scores, the average, and the files of a submission.

Wang et al. 2019, "GLUE"; the score of each set and the average are those of Table 1 of the BERT paper.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from osbert.tasks import Prediction


@dataclass(frozen=True, kw_only=True)
class GlueSet:
    """A set: its `task`, the `name` of its folder in the official layout, and its `scores` by column and metric.

    The first score is the paper's column; others are the official second scores.
    """

    task: str
    name: str
    scores: Mapping[str, str]

    def folder(self, data: Path) -> Path | None:
        """Return the set's folder in `data`, named as the set or the task; None if there is none."""
        wanted = {self.name.lower(), self.task}
        return next((path for path in sorted(data.iterdir()) if path.is_dir() and path.name.lower() in wanted), None)


SETS = (
    GlueSet(task="mnli", name="MNLI", scores={"MNLI-m": "accuracy", "MNLI-mm": "accuracy_mismatched"}),
    GlueSet(task="qqp", name="QQP", scores={"QQP": "f1", "QQP accuracy": "accuracy"}),
    GlueSet(task="qnli", name="QNLI", scores={"QNLI": "accuracy"}),
    GlueSet(task="sst2", name="SST-2", scores={"SST-2": "accuracy"}),
    GlueSet(task="cola", name="CoLA", scores={"CoLA": "matthews"}),
    GlueSet(task="stsb", name="STS-B", scores={"STS-B": "spearman", "STS-B Pearson": "pearson"}),
    GlueSet(task="mrpc", name="MRPC", scores={"MRPC": "f1", "MRPC accuracy": "accuracy"}),
    GlueSet(task="rte", name="RTE", scores={"RTE": "accuracy"}),
    GlueSet(task="wnli", name="WNLI", scores={"WNLI": "accuracy"}),
)
"""The nine sets, in the order of the paper's columns; WNLI, which the paper leaves out, is last."""

COLUMNS = ("MNLI-m", "MNLI-mm", "QQP", "QNLI", "SST-2", "CoLA", "STS-B", "MRPC", "RTE")
"""The columns of the paper's average, equally weighted; MNLI counts twice and WNLI is left out."""


def average(scores: Mapping[str, float], columns: Sequence[str] = COLUMNS) -> float:
    """Return the mean of the scores in some columns. Raises KeyError if one is missing."""
    return statistics.fmean(scores[column] for column in columns)


@dataclass(frozen=True, kw_only=True)
class SubmissionFile:
    """A file of a submission: predictions of `task` for a split; `rows`: the task that reads the rows, if another.

    `spelling`: whether the server expects names of labels, numbers from 0, or scores from 0 to 5.
    """

    file: str
    task: str
    split: str = "test"
    rows: str = ""
    spelling: Literal["name", "number", "score"] = "name"

    def format_prediction(self, prediction: Prediction, labels: Sequence[str]) -> str:
        """Return a prediction as the server expects it; `labels` are the task's, in the order of their numbers."""
        if self.spelling == "score":
            return f"{min(max(prediction.value, 0.0), 5.0):.3f}"
        return str(labels.index(prediction.value)) if self.spelling == "number" else str(prediction.value)


SUBMISSION = (
    SubmissionFile(file="CoLA.tsv", task="cola", spelling="number"),
    SubmissionFile(file="SST-2.tsv", task="sst2", spelling="number"),
    SubmissionFile(file="MRPC.tsv", task="mrpc", spelling="number"),
    SubmissionFile(file="STS-B.tsv", task="stsb", spelling="score"),
    SubmissionFile(file="MNLI-m.tsv", task="mnli"),
    SubmissionFile(file="MNLI-mm.tsv", task="mnli", split="test_mismatched"),
    SubmissionFile(file="QNLI.tsv", task="qnli"),
    SubmissionFile(file="QQP.tsv", task="qqp", spelling="number"),
    SubmissionFile(file="RTE.tsv", task="rte"),
    SubmissionFile(file="WNLI.tsv", task="wnli", spelling="number"),
    SubmissionFile(file="AX.tsv", task="mnli", rows="ax"),
)
"""The files that the evaluation server expects, with the header index, prediction."""


class GlueSuite:
    """The suite of `osbert finetune glue`."""

    tasks = tuple(dataset.task for dataset in SETS)

    def finetune(self, **call: Any) -> Mapping[str, float]:
        """Fine-tune a run for each set whose data are there; see `finetune_glue`."""
        from osbert_lab.papers.glue_runs import finetune_glue  # loads torch, which the settings do not need

        return finetune_glue(**call)


GLUE = GlueSuite()
"""The suite, for the entry point."""
