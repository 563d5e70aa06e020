"""GLUE's data sets, and its diagnostic set, from the official TSVs or Hugging Face's rows (section 4.1)."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from osbert.errors import Problems, UserError
from osbert.reading.columns import TextColumns
from osbert.reading.splits import plain_name
from osbert.tasks import Description, Prediction, Record, Source, Task
from osbert.tasks.kinds.classify import ClassDescription, Classify
from osbert.tasks.kinds.regress import Regress
from osbert.tasks.tables import DataSetLayout
from osbert.tasks.tables.numbers import ScoredPairs
from osbert.tasks.tables.texts import TextSource


def _tables(*columns: TextColumns, unlabelled: Sequence[str] = (), **more: Any) -> DataSetLayout:
    """Return the layout of one of GLUE's sets: the official TSVs, or Hugging Face's rows, unlabelled ones being -1."""
    # Hugging Face's test rows have label -1. GLUE's TSVs have unpaired quotes, which a CSV reader would join over
    # lines.
    return DataSetLayout(columns=columns, unlabelled=("-1", *unlabelled), bare_quotes=True, **more)


@dataclass(frozen=True, kw_only=True)
class Cola(Classify):
    """CoLA: is a sentence grammatical?

    The official train.tsv and dev.tsv have no header: source, label, the author's own mark, sentence.
    """

    component = "cola"

    spellings: ClassVar[Mapping[str, str]] = {"0": "unacceptable", "1": "acceptable"}
    layout: ClassVar[DataSetLayout] = _tables(
        TextColumns(text="column 4", label="column 2"),
        TextColumns(text="sentence", label="label"),
    )

    labels: tuple[str, ...] = ("unacceptable", "acceptable")

    @property
    def criterion(self) -> str:
        """Return Matthews correlation, CoLA's official score."""
        return "matthews"


@dataclass(frozen=True, kw_only=True)
class Sst2(Classify):
    """SST-2: is a sentence of a film review negative or positive?

    A folder with train.tsv and dev.tsv (sentence, label) and test.tsv (index, sentence; no labels).
    """

    component = "sst2"

    spellings: ClassVar[Mapping[str, str]] = {"0": "negative", "1": "positive"}
    layout: ClassVar[DataSetLayout] = _tables(
        TextColumns(text="sentence", label="label"),
    )

    labels: tuple[str, ...] = ("negative", "positive")


@dataclass(frozen=True, kw_only=True)
class Mrpc(Classify):
    """MRPC: are two sentences of news paraphrases? GLUE's TSVs or Microsoft's own files.

    train.tsv and dev.tsv, or msr_paraphrase_train.txt alone, some of whose rows are held out for development.
    """

    component = "mrpc"

    spellings: ClassVar[Mapping[str, str]] = {"0": "not_equivalent", "1": "equivalent"}
    layout: ClassVar[DataSetLayout] = _tables(
        TextColumns(text="#1 String", pair="#2 String", label="Quality"),
        TextColumns(text="sentence1", pair="sentence2", label="label"),
        instead={"train": "msr_paraphrase_train", "test": "msr_paraphrase_test"},
    )
    positive: ClassVar[str] = "equivalent"

    labels: tuple[str, ...] = ("not_equivalent", "equivalent")


@dataclass(frozen=True, kw_only=True)
class Qqp(Classify):
    """QQP: are two questions from Quora paraphrases?

    A folder with train.tsv, dev.tsv and test.tsv. The few rows that lack a cell are left out and counted.
    """

    component = "qqp"

    spellings: ClassVar[Mapping[str, str]] = {"0": "not_duplicate", "1": "duplicate"}
    layout: ClassVar[DataSetLayout] = _tables(
        TextColumns(text="question1", pair="question2", label="is_duplicate"),
        TextColumns(text="question1", pair="question2", label="label"),
        lenient=True,
    )
    positive: ClassVar[str] = "duplicate"

    labels: tuple[str, ...] = ("not_duplicate", "duplicate")


@dataclass(frozen=True, kw_only=True)
class Stsb(Regress):
    """STS-B: how alike are the meanings of two sentences, from 0 to 5?

    A folder with train.tsv, dev.tsv and test.tsv, with the columns sentence1, sentence2 and score.
    Or the original release, GLUE's folder STS-B/original: sts-train.tsv, sts-dev.tsv and sts-test.tsv. They have no
    header, and some rows have two more cells at the end, the sentences' source and its licence.
    """

    component = "stsb"

    layout: ClassVar[DataSetLayout] = ScoredPairs.layout

    @property
    def criterion(self) -> str:
        """Return Spearman correlation, the score of the paper's Table 1; Pearson's is official too."""
        return "spearman"


class MatchedSource(TextSource):
    """Reads the matched rows of a split; for development also the mismatched ones."""

    def records(self, split: str, problems: Problems) -> Iterator[Record]:
        """Yield the rows of a split; "dev" is the matched rows, then the mismatched ones if there are any."""
        parts = [split]
        if split == "dev" and "dev_mismatched" in self.files():
            parts.append("dev_mismatched")
        rows = chain.from_iterable(super(MatchedSource, self).records(part, problems) for part in parts)
        # Both files number their rows from 0: number them anew, so that numbers are unique.
        yield from (replace(record, number=number) for number, record in enumerate(rows))


@dataclass(frozen=True, kw_only=True)
class Mnli(Classify):
    """MultiNLI: does a premise entail a hypothesis, contradict it, or neither?

    Development rows are those of dev_matched and dev_mismatched; the best epoch is kept by the matched ones.
    """

    component = "mnli"

    reader: ClassVar[type[Source]] = MatchedSource
    spellings: ClassVar[Mapping[str, str]] = {"0": "entailment", "1": "neutral", "2": "contradiction"}
    layout: ClassVar[DataSetLayout] = _tables(
        TextColumns(text="sentence1", pair="sentence2", label="gold_label"),
        TextColumns(text="premise", pair="hypothesis", label="label"),
        unlabelled=("-",),
        lenient=True,
        files={
            "train": ("train",),
            "dev": ("dev_matched", "validation_matched"),
            "test": ("test_matched",),
            "dev_mismatched": ("dev_mismatched", "validation_mismatched"),
            "test_mismatched": ("test_mismatched",),
        },
    )

    labels: tuple[str, ...] = ("entailment", "neutral", "contradiction")

    def metrics(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, float]:
        """Return the scores of the matched rows, and the accuracy on mismatched ones if there are both."""
        parts: dict[bool, list[tuple[Prediction, Record]]] = {}
        for pair in zip(predictions, records, strict=True):
            part = plain_name(Path(pair[1].path)) in self.layout.files["dev_mismatched"]
            parts.setdefault(part, []).append(pair)
        scores = [super(Mnli, self).metrics(*zip(*parts[part])) for part in sorted(parts)]
        return scores[0] | ({"accuracy_mismatched": scores[1]["accuracy"]} if scores[1:] else {})


@dataclass(frozen=True, kw_only=True)
class Qnli(Classify):
    """QNLI: does a sentence of Wikipedia contain the answer to a question?

    A folder with train.tsv, dev.tsv and test.tsv (index, question, sentence, label).
    """

    component = "qnli"

    spellings: ClassVar[Mapping[str, str]] = {"0": "entailment", "1": "not_entailment"}
    layout: ClassVar[DataSetLayout] = _tables(
        TextColumns(text="question", pair="sentence", label="label"),
    )

    labels: tuple[str, ...] = ("entailment", "not_entailment")


@dataclass(frozen=True, kw_only=True)
class Rte(Classify):
    """RTE: does a first sentence entail a second?

    A folder with train.tsv, dev.tsv and test.tsv (index, sentence1, sentence2, label).
    """

    component = "rte"

    spellings: ClassVar[Mapping[str, str]] = {"0": "entailment", "1": "not_entailment"}
    layout: ClassVar[DataSetLayout] = _tables(
        TextColumns(text="sentence1", pair="sentence2", label="label"),
    )

    labels: tuple[str, ...] = ("entailment", "not_entailment")


class MajorityDescription(ClassDescription):
    """Describes WNLI, for which the majority class may be predicted."""

    task: Wnli

    def remarks(self) -> list[str]:
        """Describe the data, and the effect of predicting the majority."""
        rule = "WNLI: whatever the model says, the majority class is predicted, as in the paper (--rule model)"
        return [*super().remarks(), *([rule] if self.task.rule == "majority" else [])]


@dataclass(frozen=True, kw_only=True)
class Wnli(Classify):
    """WNLI: whom does a pronoun mean? By default the majority class is predicted, as in the paper (appendix B.1).

    A folder with train.tsv, dev.tsv and test.tsv (index, sentence1, sentence2, label).
    """

    describer: ClassVar[type[Description]] = MajorityDescription

    component = "wnli"

    spellings: ClassVar[Mapping[str, str]] = {"0": "not_entailment", "1": "entailment"}
    layout: ClassVar[DataSetLayout] = _tables(
        TextColumns(text="sentence1", pair="sentence2", label="label"),
    )

    labels: tuple[str, ...] = ("not_entailment", "entailment")
    rule: Literal["majority", "model"] = "majority"
    """majority: every prediction is the most frequent label of the training rows, as in the paper, because all earlier
    systems scored lower (appendix B.1); model: the model's own predictions."""
    majority: str = ""
    """The most frequent label of the training rows."""

    def fit(self, records: Sequence[Record]) -> Self:
        """Return the task with the most frequent label, the first one if there are several."""
        counts = Counter(record.label for record in records)
        # max returns the first of equal labels.
        majority = max(self.labels, key=lambda label: counts[label])
        return dataclasses.replace(super().fit(records), majority=majority)

    def decode(self, *arguments: Any) -> Prediction:
        """Return the model's prediction, or with majority the most frequent label, with a probability of 1."""
        prediction = super().decode(*arguments)
        if self.rule == "model" or not self.majority:
            return prediction
        return dataclasses.replace(
            prediction,
            value=self.majority,
            probabilities={label: float(label == self.majority) for label in self.labels},
        )

    @property
    def weighed(self) -> bool:  # type: ignore[override]
        """Return whether predictions are the model's. Those of the majority have no probabilities to calibrate."""
        return self.rule == "model"


class DiagnosticSource(TextSource):
    """Reads the diagnostic set, which has no training rows."""

    def resolve(self) -> Task:
        """Raise UserError with advice: this set has no training rows."""
        if "all" in self.files():
            return super().resolve()
        raise UserError(
            f"{self.called}: the diagnostic set has no training rows. Fine-tune mnli, and predict it with that run: "
            "osbert submit, or osbert evaluate RUN --data diagnostic-full.tsv.",
            code="missing-split",
        )


@dataclass(frozen=True, kw_only=True)
class Ax(Classify):
    """GLUE's diagnostic set (section 4), predicted with a model of mnli: it has no training rows.

    diagnostic.tsv (index, sentence1, sentence2), or diagnostic-full.tsv with labels, scored by Matthews' R3.
    """

    component = "ax"

    reader: ClassVar[type[Source]] = DiagnosticSource
    spellings: ClassVar[Mapping[str, str]] = {"0": "entailment", "1": "neutral", "2": "contradiction"}
    layout: ClassVar[DataSetLayout] = _tables(
        TextColumns(text="sentence1", pair="sentence2", label="label"),
        TextColumns(text="Premise", pair="Hypothesis", label="Label"),
        TextColumns(text="premise", pair="hypothesis", label="label"),
        files={"dev": ("diagnostic-full",), "test": ("diagnostic", "ax", "test")},
    )

    # The order of mnli's labels, whose models predict this set.
    labels: tuple[str, ...] = ("entailment", "neutral", "contradiction")

    @property
    def criterion(self) -> str:
        """Return Matthews correlation of three classes (R3)."""
        return "matthews"
