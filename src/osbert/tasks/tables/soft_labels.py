"""Uncertain labels in tables: a probability for each class, a label's confidence, and the votes of annotators."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from osbert.errors import Problems, UserError
from osbert.extensions import advise_lab, extensions
from osbert.reading.columns import Header, TextColumns, choose
from osbert.reading.table import Origin, Row, Table
from osbert.tasks import Record, Task
from osbert.tasks.record import OF_LABEL
from osbert.tasks.tables import UnlabelledRow, row_texts
from osbert.tasks.tables.classes import list_labels, parse_list, parse_object
from osbert.tasks.tables.texts import TextSource

ROUNDING = 0.005
"""How far each probability may be rounded: their sum may differ from 1 by this for each of them, and by 0.01."""
FEWEST_ANNOTATORS = 3
"""Number of annotators from which on votes are weighed by reliability: two that differ say nothing about it."""
FEWEST_ROWS = 50
"""Number of rows from which on they are: of fewer, reliability is mostly chance (simulated with 2 to 20 labels)."""
AGGREGATIONS = "osbert.tasks.aggregations"
"""Entry points of models of annotators: functions of the votes of each row that return a VoteModel."""

Distribution = Mapping[str, float]
"""Probabilities of labels. If their sum is below 1, the rest is that of all labels that are not named."""


class VoteModel(Protocol):
    """What the votes of several annotators tell about the labels of rows, and about the annotators."""

    @property
    def posteriors(self) -> Sequence[Distribution]:
        """The probabilities of each row's labels."""

    def describe(self) -> str:
        """Describe the agreement of the annotators and the reliability of each."""

    def table(self) -> list[list[str]]:
        """Return a table of the annotators, its heading first."""


@dataclass(frozen=True, kw_only=True)
class SoftRecord(Record):
    """A record whose label is uncertain; `label` is the likeliest one, with which hard metrics compare.

    `votes`: the label that each annotator gave, by the annotator's column.
    """

    probabilities: Distribution
    votes: Mapping[str, str] = field(default_factory=dict)

    @property
    def target(self) -> Distribution:
        return self.probabilities


def likeliest_label(probabilities: Distribution) -> str:
    """Return the label with the highest probability, of equal ones the first by name.

    >>> likeliest_label({"pos": 0.5, "neg": 0.5})
    'neg'
    """
    return max(sorted(probabilities), key=probabilities.__getitem__)


def check_distribution(values: Mapping[str, float], *, normalize: bool) -> dict[str, float]:
    """Return the probabilities above 0, with the sum 1. Raises ValueError for other numbers.

    `normalize`: they may be counts, or have any other sum.

    >>> check_distribution({"neg": 1, "pos": 3}, normalize=True)
    {'neg': 0.25, 'pos': 0.75}
    """
    for label, value in values.items():
        if not 0 <= value < math.inf:
            raise ValueError(f"the probability of '{label}' is {value:g}. Write a number from 0 to 1")
    total = sum(values.values())
    if not 0 < total < math.inf:
        raise ValueError(f"the probabilities sum to {total:g}: at least one must be above 0")
    if not normalize and abs(total - 1) > max(0.01, ROUNDING * len(values)) + 1e-9:
        raise ValueError(
            f"the probabilities sum to {total:g}, not 1. Correct them, or give --normalize to divide them by their "
            "sum, as for counts of votes"
        )
    return {label: value / total for label, value in values.items() if value}


def spread(probabilities: Distribution, labels: Sequence[str]) -> NDArray[np.float64]:
    """Return the probabilities (K,) of the labels; what is missing to 1 is spread evenly over those not named.

    >>> spread({"a": 0.8}, ["a", "b", "c"]).round(3).tolist()
    [0.8, 0.1, 0.1]
    """
    values = np.array([probabilities.get(label, 0.0) for label in labels])
    others = [label not in probabilities for label in labels]
    if (rest := 1 - values.sum()) > 1e-9 and any(others):
        values[others] = rest / sum(others)
    return values


@dataclass(frozen=True, kw_only=True)
class SoftColumns(TextColumns):
    """The columns in use. `label`: that of the label or of probabilities as an object, or the first of several columns.

    `classes`: columns with the probability of a class each. `annotators`: columns with the label of an annotator each.
    `confidence`: the column with the probability of the label.
    """

    classes: tuple[str, ...] = ()
    annotators: tuple[str, ...] = ()
    confidence: str = ""

    def describe(self, *, labelled: bool = True) -> str:
        text = super().describe(labelled=labelled)
        if not labelled or not self.label:
            return text
        for names, kind in ((self.classes, "probabilities of classes"), (self.annotators, "labels of annotators")):
            if names:
                listed = ", ".join(f"'{name}'" for name in names[:5]) + (", ..." if len(names) > 5 else "")
                text = text.replace(f"label from '{self.label}'", f"{kind} from {listed}")
        return f"{text} with its probability from '{self.confidence}'" if self.confidence else text


class SoftLabelTask(Protocol):
    """A task whose labels may be uncertain."""

    label_columns: tuple[str, ...]
    confidence: str
    normalize: bool
    aggregation: str


class SoftLabelSource(TextSource):
    """Reads tables with a text, or a pair of texts, and a label that may be uncertain."""

    forms = (("label", "confidence"), ("label_columns",))
    redetected = ("label_columns", "confidence")

    @property
    def _soft(self) -> SoftLabelTask:
        return cast(SoftLabelTask, self.task)

    @property
    def named(self) -> tuple[str, ...]:
        task, soft = self.task, self._soft
        return (task.text, task.pair, *_split_names(task.label), *soft.label_columns, soft.confidence)

    def columns(self, table: Table, *, labelled: bool) -> SoftColumns:
        """Return the columns that hold text, pair and label; without `labelled` the label may be absent.

        A file beside the training file, such as that of development rows, may have one label a row where the
        training file has several columns.
        """
        task, soft = self.task, self._soft
        several = () if task.label in table.columns else _split_names(task.label)
        annotators = several if len(several) > 1 else ()
        sources, confidence, present = soft.label_columns or annotators, soft.confidence, {*table.columns}
        if not (labelled and (sources or confidence) and self._is_training(table)):
            sources = sources if (labelled and {*sources} & present) or {*sources} <= present else ()
            confidence = confidence if confidence in present else ""
        if repeated := [name for name, count in Counter(sources).items() if count > 1]:
            option = "label-columns" if soft.label_columns else "label"
            raise UserError(f"--{option} names the column '{repeated[0]}' twice.", code="duplicate-name")
        header = Header(table.columns, table.called)
        for name in sources:
            header.require(name, option="label-columns" if soft.label_columns else "label")
        header.require(confidence, option="confidence")
        hidden = {*sources, confidence} - {""}
        if not (hidden or annotators):
            try:
                return SoftColumns(**vars(super().columns(table, labelled=labelled)))
            except UserError as error:
                if not soft.label_columns:
                    raise
                listed = ", ".join(map(repr, soft.label_columns))
                raise UserError(f"{error} The columns of probabilities are {listed}.", code=error.code) from error
        text_columns = choose(
            [name for name in table.columns if name not in hidden],
            user_columns=TextColumns(text=task.text, pair=task.pair, label="" if sources or annotators else task.label),
            path=table.called,
            labelled=labelled and not sources,
        )
        return SoftColumns(
            text=text_columns.text,
            pair=text_columns.pair,
            label=sources[0] if sources else text_columns.label,
            classes=sources if soft.label_columns else (),
            annotators=() if soft.label_columns else sources,
            confidence=confidence,
        )

    def _is_training(self, table: Table) -> bool:
        files = self.files()
        origin = files.get("train", files.get("all"))
        return origin is None or self.open(origin) is table

    def resolve(self) -> Task:
        columns = self.columns(self.open(self.file("train")), labelled=True)
        label = "" if columns.classes else ",".join(columns.annotators) or columns.label
        named = dataclasses.replace(self.task, text=columns.text, pair=columns.pair, label=label)
        return self.attach_to(named)

    def fit_columns(self, origin: Origin, before: Any, given: Collection[str]) -> dict[str, Any]:
        settings = super().fit_columns(origin, before, given)
        # The columns of all annotators, which no table has by the one name of the setting.
        if "label" not in given and {*_split_names(before.label)} <= {*self.open(origin).columns}:
            settings["label"] = before.label
        return settings

    def record(self, row: Row, columns: TextColumns, *, path: str = "") -> Record:
        assert isinstance(columns, SoftColumns)
        several = columns.classes or columns.annotators or columns.confidence
        if not columns.label or not (several or row.values.get(columns.label, "").lstrip().startswith(("{", "["))):
            return super().record(row, columns, path=path)  # with no label, or with one
        texts = row_texts(row, columns.texts)
        votes = self._votes(row, columns)
        probabilities = self._probabilities(row, columns) or {
            label: count / len(votes) for label, count in sorted(Counter(votes.values()).items())
        }
        if not probabilities:
            record = super().record(row, columns, path=path)
            if not columns.confidence or record.label is None:
                return record
            probabilities = {record.label: _confidence(row.values.get(columns.confidence, ""))}
        return SoftRecord(
            number=0,
            texts=texts,
            label=likeliest_label(probabilities),
            path=path,
            line=row.line,
            probabilities=probabilities,
            votes=votes if columns.annotators else {},
        )

    def _probabilities(self, row: Row, columns: SoftColumns) -> dict[str, float]:
        """Return the probabilities in columns of classes, or in the object in the label cell; {} for neither."""
        if columns.classes:
            cells = {name: row.values.get(name, "").strip() for name in columns.classes}
            if not any(cells.values()):
                raise UnlabelledRow("the label is empty: no class has a probability")
            pairs = {name.removeprefix(OF_LABEL): _number(cell, name) for name, cell in cells.items()}
        elif columns.annotators:
            return {}
        else:
            pairs = parse_object(row.values.get(columns.label, "").strip()) or {}
        sums: dict[str, float] = {}
        for name, value in pairs.items():
            label = self.task.value(name.strip())
            sums[label] = sums.get(label, 0.0) + value
        return check_distribution(sums, normalize=self._soft.normalize) if sums else {}

    def _votes(self, row: Row, columns: SoftColumns) -> dict[str, str]:
        """Return the label of each annotator who labelled the row, by column; of a list in the label cell by index."""
        if columns.annotators:
            cells = {name: row.values.get(name, "").strip() for name in columns.annotators}
            votes = {name: self.task.value(cell) for name, cell in cells.items() if cell}
            if not votes:
                raise UnlabelledRow("the label is empty: no annotator has given one")
            return votes
        if self._soft.aggregation != "votes" or columns.classes:
            return {}
        labels = parse_list(row.values.get(columns.label, "").strip())
        if labels is None:
            return {}
        if any(isinstance(label, (list, dict)) for label in labels):
            raise ValueError(f"the list of votes {json.dumps(labels)[:60]} contains a list or an object. Write labels")
        votes = {str(index): str(label).strip() for index, label in enumerate(labels) if label is not None}
        votes = {index: self.task.value(label) for index, label in votes.items() if label}
        if not votes:
            raise UnlabelledRow("the label is empty: the list has no vote")
        return votes

    def read(self, origin: Origin, problems: Problems, *, labelled: bool) -> Iterator[Record]:
        """Yield the records of a file, with the labels that the votes of all its rows give them.

        Unusable rows are reported to `problems`.
        """
        if not self.columns(self.open(origin), labelled=labelled).annotators:
            yield from super().read(origin, problems, labelled=labelled)
            return
        records = [*super().read(origin, problems, labelled=labelled)]
        voted = [record for record in records if isinstance(record, SoftRecord)]
        model = fit_votes(voted, needed=self._soft.aggregation == "dawid-skene")
        aggregation, annotators = self._soft.aggregation, {name for record in voted for name in record.votes}
        enough = len(annotators) >= FEWEST_ANNOTATORS and len(voted) >= FEWEST_ROWS
        weighed = model if aggregation == "dawid-skene" or (aggregation == "auto" and enough) else None
        method = "by reliability (Dawid and Skene 1979)" if weighed else "as the fractions of the votes"
        agreement = model.describe() if model else "reliability and agreement are not measured." + advise_lab()
        self._facts["votes", self.open(origin).called] = f"labels of rows {method}; {agreement}{_describe_case(voted)}"
        posteriors = iter(weighed.posteriors if weighed else [record.probabilities for record in voted])
        for record in records:
            if isinstance(record, SoftRecord):
                probabilities = next(posteriors)
                record = dataclasses.replace(record, probabilities=probabilities, label=likeliest_label(probabilities))
            yield record

    def findings(self) -> list[str]:
        return [*super().findings(), *(text for key, text in self._facts.items() if key[0] == "votes")]

    def advise_unlabelled(self, table: Table) -> str:
        columns = self.columns(table, labelled=True)
        return super(TextSource, self).advise_unlabelled(table) if columns.classes else super().advise_unlabelled(table)


def fit_votes(records: Sequence[Record], *, needed: bool = False) -> VoteModel | None:
    """Return the model of the annotators' votes on some records; None without votes or a package with such a model.

    Raises UserError if it is `needed` and no such package is installed.
    """
    votes = [record.votes for record in records if isinstance(record, SoftRecord) and record.votes]
    extension = extensions(AGGREGATIONS).get("dawid-skene")
    if extension is None and needed:
        raise UserError(
            f"--aggregation dawid-skene needs a package with this model.{advise_lab()}", code="unknown-component"
        )
    model: VoteModel | None = extension.load()(votes) if extension and votes else None
    return model


def _split_names(names: str) -> tuple[str, ...]:
    """Return the names of columns between commas."""
    return tuple(filter(None, (name.strip() for name in names.split(","))))


def _describe_case(records: Sequence[SoftRecord]) -> str:
    """Return a remark on votes for labels that differ in case alone, "" for none."""
    names = {label for record in records for label in record.votes.values()}
    folded = Counter(name.casefold() for name in names)
    alike = sorted(name for name in names if folded[name.casefold()] > 1)
    return f"; votes for {list_labels(alike)} differ in case alone and count as different labels" if alike else ""


def _number(cell: str, column: str) -> float:
    try:
        return float(cell or "0")
    except ValueError:
        raise ValueError(f"the column '{column}' holds {cell[:40]!r}, which is not a number") from None


def _confidence(cell: str) -> float:
    """Return the probability in a cell. Raises ValueError if it is not above 0 and at most 1."""
    try:
        probability = float(cell)
    except ValueError:
        raise ValueError(f"the confidence {cell[:40]!r} is not a number. Write a number above 0, up to 1") from None
    if not 0 < probability <= 1:
        raise ValueError(f"the confidence {cell[:40]} is not above 0 and at most 1. Write 80% as 0.8")
    return probability
