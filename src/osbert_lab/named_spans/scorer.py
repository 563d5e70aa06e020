"""Types by name, which the model reads with the text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from osbert.data.example import Example
from osbert.errors import UserError
from osbert.inference.label_scorer import LabelScorer
from osbert.inference.label_settings import LabelName, LabelNames, NamingOptions
from osbert.inference.model import LoadedModel, require_finite_scores
from osbert.tasks import Prediction, Record, Task
from osbert_lab.named_spans import NamedSpans


class NamedSpansScorer(LabelScorer):
    """Predicts by the task that `NamedSpans.for_labels` makes of the model's own."""

    subject = "types"
    fewest = 1

    def __init__(self, engine: LoadedModel, options: NamingOptions, *, tokens: int) -> None:
        """Use a model. Raises UserError for options of classes."""
        if options.template or options.calibrate:
            raise UserError(
                f"{engine.folder} reads names with the text, without a sentence around them and without a share of the "
                "probability for each. Remove --template and --calibrate.",
                code="options-exclude-each-other",
            )
        super().__init__(engine, options, tokens=tokens)

    def describe(self, labels: LabelNames) -> str:
        """Describe how the model is asked, and how often for a text."""
        way = "read with the text; one span may stand within another" if self.multi else "read with the text"
        if not labels:
            return way
        passes = self.passes(labels)
        return f"{way}, in {passes:,} passes through the model" if passes > 1 else way

    def passes(self, labels: LabelNames) -> int:
        return len(self.encode(self.task_for(labels).record_of(["a"]), labels))

    def reads(self, label: LabelName) -> str:
        return label.text

    def problems(self, label: LabelName) -> Iterator[str]:
        """Yield nothing: the task takes every label."""
        yield from ()

    def make_task(self, labels: LabelNames) -> Task:
        task = self.engine.fine_tuned
        assert isinstance(task, NamedSpans)
        return task.for_labels(labels, several=self.multi)

    def encode(self, record: Record, labels: LabelNames) -> list[Example]:
        return self.task_for(labels).encode(record, self.packer)

    def outputs(self, examples: Sequence[Example]) -> Sequence[Any]:
        outputs = self.engine.backend.outputs(self.engine.fine_tuned, examples, tokens=self.tokens)
        require_finite_scores(outputs, self.engine.folder)
        return outputs

    def decode(
        self, outputs: Sequence[Any], record: Record, labels: LabelNames, examples: Sequence[Example]
    ) -> Prediction:
        return self.task_for(labels).decode(outputs, record, examples)
