"""Reads the rows of several data sets as one: those of each by its own reader, one set after the other."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from osbert.data.example import Booleans
from osbert.errors import Problems, UserError
from osbert.reading.table import Origin, Row
from osbert.tasks import Inputs, Record, Source, Task
from osbert_lab.text_mixture.parts import entries, part_name, require_entries
from osbert_lab.writing.generate import Generate, WritingDescription

if TYPE_CHECKING:
    from osbert_lab.text_mixture import TextMixture


class MixtureSource(Source):
    """Reads a folder with the data of each data set."""

    task: TextMixture

    def __init__(self, task: Task, given: Mapping[str, Origin] | None = None) -> None:
        """Read the task's own `data`. Raises UserError for rows in memory."""
        super().__init__(task, given)
        self.sizes: Counter[str] = Counter()
        """The training rows of each data set, once they are read."""
        if given is not None:
            raise UserError(
                "text_mixture reads a folder with the data of each data set; rows in memory have no such parts. Give "
                "the folder.",
                code="invalid-value",
            )

    @cached_property
    def parts(self) -> Mapping[str, Generate]:
        """The task of each data set, which reads its folder or file. Raises UserError where there is none."""
        if not self.task.data_sets:
            raise UserError(
                "text_mixture learns several data sets: give their names, such as --data-sets sst2,rte,squad.",
                code="missing-value",
            )
        if self.task.dev:
            raise UserError(
                "--dev names the development rows of one file; those of each data set are in its folder. Remove --dev.",
                code="options-exclude-each-other",
            )
        paths = require_entries(Path(self.task.data), self.task.data_sets)
        return {name: dataclasses.replace(part, data=str(paths[name])) for name, part in self.task.parts.items()}

    @property
    def alone(self) -> Origin | None:
        """Return the file of a single data set, None for folders."""
        return path if len(self.task.data_sets) == 1 and (path := Path(self.task.data)).is_file() else None

    def find_files(self, data: Path) -> Mapping[str, Path]:
        """Return the folder for the splits that all data sets have."""
        if self.alone is not None:
            return {"all": data}
        splits = [{*part.source.files()} for part in self.parts.values()]
        common = set.intersection(*({"train", "dev", "test"} if "all" in files else files for files in splits))
        return dict.fromkeys(sorted(common | {"train", "dev"}), data)

    def is_held_out(self, split: str) -> bool:
        """Return False: each data set holds out its own rows."""
        return False

    def resolve(self) -> Task:
        """Return the task. Raises UserError that lists the data sets whose training files cannot be read."""
        problems = Problems(heading="These data sets cannot be learnt together")
        for name, part in self.parts.items():
            try:
                part.source.resolve()
            except UserError as error:
                problems.add_from(name, error)
        problems.stop_if_any()
        return self.task

    def findings(self) -> list[str]:
        """Describe the files of each data set."""
        return [f"{name}: {line}" for name, part in self.parts.items() for line in part.source.findings()]

    def left_out(self, split: str) -> list[str]:
        """Return lines about the rows of each data set that are skipped."""
        return [f"{name}: {line}" for name, part in self.parts.items() for line in part.source.left_out(split)]

    def records(self, split: str, problems: Problems) -> Iterator[Record]:
        """Yield the rows of a split of each data set as texts, numbered through."""
        rows = (
            self.task.as_texts(name, part, record)
            for name, part in self.parts.items()
            for record in part.source.records("dev" if split == "all" and self.alone is None else split, problems)
        )
        for number, row in enumerate(rows):
            if split == "train":
                self.sizes[row.part] += 1
            yield dataclasses.replace(row, number=number)

    def read(self, origin: Origin, problems: Problems, *, labelled: bool) -> Iterable[Record]:
        """Yield the rows of a file of the only data set as texts."""
        for name, part in self.parts.items():
            for record in part.source.read(origin, problems, labelled=labelled):
                yield self.task.as_texts(name, part, record)

    def mark_held_out(self, records: Sequence[Record]) -> Booleans:
        """Return that none of the rows (n,) is held out: each data set holds out its own."""
        return np.zeros(len(records), np.bool_)

    def inputs(self, data: Origin) -> Inputs:
        """Return the rows of a file of one data set. Raises UserError if it is not known whose file it is."""
        if len(self.task.data_sets) != 1:
            raise UserError(
                f"{data}: of which data set are its rows? Name it, such as --columns.data-sets "
                f"{self.task.data_sets[0]}, or put the file into a folder of that name.",
                code="ambiguous-setting",
            )
        [(name, part)] = self.parts.items()
        inputs = part.source.inputs(data)

        def rows(problems: Problems) -> Iterator[tuple[Row, Record | None]]:
            for row, record in inputs.rows(problems):
                yield row, None if record is None else self.task.as_texts(name, part, record)

        return dataclasses.replace(inputs, describe=f"{name}: {inputs.describe}", rows=rows)

    def switch_data(self, data: Path | Mapping[str, Origin], given: Mapping[str, Any]) -> Task:
        """Return the task for the data sets that other data has, or those that are `given` as `data_sets`.

        Raises UserError for rows in memory, and if it is not known whose data they are.
        """
        names = given.get("data_sets", self.task.data_sets)
        names = (names,) if isinstance(names, str) else tuple(names)
        if isinstance(data, Path) and (paths := entries(data, names)):
            names = tuple(paths)
        return super().switch_data(data, {**given, "data_sets": names})


class MixtureDescription(WritingDescription):
    """Describes the rows of each data set, and how they are mixed."""

    task: TextMixture

    def describe_split(self, records: Sequence[Record]) -> str:
        """Describe the number of rows of each data set, and the frequencies of its labels."""
        rows: dict[str, list[Record]] = {}
        for record in records:
            rows.setdefault(part_name(record), []).append(record)
        if [*rows] == [""]:
            return super().describe_split(records)
        each = (
            f"{name} {self.task.parts[name].description.describe_split([record.row for record in part_rows])}"  # type: ignore[attr-defined]
            for name, part_rows in rows.items()
        )
        return f"{len(records):,} rows: {', '.join(each)}"

    def remarks(self) -> list[str]:
        """Describe the share of each data set in an epoch."""
        source = self.task.source
        if not isinstance(source, MixtureSource) or not source.sizes:
            return []
        counts = self.task.epoch_counts([source.sizes[name] for name in self.task.data_sets])
        fractions = (
            f"{name} {count / counts.sum():.1%} ({count:,} of {source.sizes[name]:,} rows)"
            for name, count in zip(self.task.data_sets, counts.tolist())
        )
        return [f"an epoch has rows of each data set by mixing rates: {', '.join(fractions)}"]
