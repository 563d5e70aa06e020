"""All runs of a table of the paper: what they are, in which folders they lie, and what their figures depend on."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from osbert.errors import Problems, UserError
from osbert.files import refuse_foreign, write_json
from osbert.interop.opening import CAREFUL, Opening
from osbert.recipe import difference
from osbert.runs.contract import Notice, Watch, ignore
from osbert.runs.finetune.plan import read_plan
from osbert.runs.finetune.records import SPLITS
from osbert.runs.reproduce.children import ChildCommands
from osbert.runs.reproduce.data import TableColumn
from osbert.runs.reproduce.encoders import PRETRAINING, TableEncoders, hashes, plain, run_folder
from osbert.runs.reproduce.ensemble import Ensemble
from osbert.runs.reproduce.scale import TableScale
from osbert.runs.reproduce.settings import same_finetuning
from osbert.runs.reproduce.tables import PaperTable, TableRow, keywords, words
from osbert.runs.study.runner import RESTART, Study, StudyTrial, read_results
from osbert.tasks import load

PROTOCOL = "protocol.json"
BY_COLUMN = ("data", "finetuning_by_column")
"""Parts of a protocol that are of single columns: other columns may join, or stay away."""


@dataclass(frozen=True, kw_only=True)
class TablePlan:
    """All runs of a table, and where they go. `columns`: those of the table to run, whose data must be here."""

    table: PaperTable
    columns: tuple[TableColumn, ...]
    encoders: TableEncoders
    data: Path
    out: Path
    scale: TableScale = field(default_factory=TableScale)
    finetuning: Mapping[str, Any] = field(default_factory=dict)
    """Settings of fine-tuning, in place of those of the same names that are usual for the encoders."""
    opening: Opening = CAREFUL

    @property
    def finetuning_words(self) -> tuple[str, ...]:
        """Return the settings of fine-tuning that are common to all runs."""
        return words({**self.encoders.finetuning(self.table), **self.finetuning})

    def run(self, *, watch: Watch = ignore) -> None:
        """Do all runs that are not finished.

        Raises UserError at all that is wrong before the first, and names those that failed after the last.
        """
        self.begin()
        if absent := [column.name for column in self.table.columns if column not in self.columns]:
            watch(Notice(f"No data for {', '.join(absent)} in {self.data}: left out."))
        if self.whole:
            watch(Notice(self.whole))
        commands, failed = ChildCommands(self.scale.jobs), Problems(heading="Some runs failed; the others are kept")
        study = Study(work=commands.work, stop=commands.stop, threads=self.scale.jobs, problems=failed, watch=watch)
        study.run([*self.trials()])
        failed.stop_if_any()
        if ensemble := self.ensemble():
            ensemble.run(watch)

    def begin(self) -> None:
        """Check inputs and settings, and write the data sets' rows. Raises UserError at all that is wrong.

        Nothing is written into a folder that holds runs with another protocol.
        """
        if not (self.out / PROTOCOL).is_file():
            refuse_foreign(self.out, "a reproduced table", ("data",))
        problems = Problems(heading=f"{self.table.name} cannot begin")
        protocol: dict[str, Any] = {}
        try:
            protocol = self._protocol()
        except UserError as error:
            if (self.out / PROTOCOL).is_file():
                raise
            problems.add_from("encoders", error)
        for column in self.columns:
            try:
                self._prepare(column)
            except UserError as error:
                problems.add_from(column.name, error)
        problems.stop_if_any()
        write_json(self.out / PROTOCOL, protocol)

    def trials(self) -> Iterator[StudyTrial]:
        """Yield the runs seed by seed, the encoders first, so that what waits for them seldom has to."""
        rows = self.table.rows
        for seed in range(self.scale.seeds):
            turn = (*rows[seed % len(rows) :], *rows[: seed % len(rows)])  # none is always the first
            if not (seed and self.table.curves):
                yield from self.encoders.trials(turn, seed, self.out)
            for row in turn:
                yield from (self._trial(row, column, seed) for column in self.columns)

    def trials_of(self, row: TableRow, column: TableColumn) -> list[StudyTrial]:
        """Return the runs of a row on a data set, one a seed."""
        return [self._trial(row, column, seed) for seed in range(self.scale.seeds)]

    def ensemble(self) -> Ensemble | None:
        """Return the runs of the table's one row as an ensemble, None where there is none to make."""
        if not self.table.ensemble or self.scale.seeds < 2:
            return None
        [row], [column] = self.table.rows, self.columns
        results = [read_results(trial) for trial in self.trials_of(row, column)]
        again = "-again" if any(len(one) > 1 for one in results) else ""
        out = self.out / "runs" / f"ensemble-of-{self.scale.seeds}{again}.json"
        return Ensemble(runs=[one[-1].trial.folder for one in results], out=out)

    @property
    def whole(self) -> str:
        """Return in words which data sets keep all rows although fewer are wanted of each, "" where none does."""
        names = [column.name for column in self.columns if not column.files]
        if not names or not (self.scale.rows or self.scale.dev_rows):
            return ""
        return f"Read where they lie, with all rows (--rows and --dev-rows are not of them): {', '.join(names)}."

    @property
    def split_off(self) -> list[str]:
        """Return the names of the data sets of which development rows are split off."""
        return [column.name for column in self.columns if len(column.find(self.data)) == 1]

    def _trial(self, row: TableRow, column: TableColumn, seed: int) -> StudyTrial:
        """Return a row's run on a data set, and that in its place: of the same encoder, with another seed."""
        name, own = f"{row.name}, seed {seed}, {column.name}", 0 if self.table.curves else seed
        settings = (*self.finetuning_words, *words(column.settings), *words(row.finetuning))
        given = ("--model", str(self.encoders.folder(row, own, self.out)), "--data", str(self._data(column)))
        after = f"{row.encoder or row.name}, seed {own}"

        def one(name: str, folder: str, own_seed: int) -> StudyTrial:
            out = run_folder(row.name, seed, folder, self.out)
            command = ("finetune", column.task or column.set, "--settings", "paper", *settings)
            command += ("--training.seed", str(own_seed), *given, "--out", str(out), *self.opening.words)
            return StudyTrial(name=name, folder=out, seed=own_seed, settings=command, after=after, kind=column.name)

        again = f"{name}, again with seed {seed + RESTART}, for it had collapsed"
        return one(name, column.name, seed).or_else(one(again, f"{column.name} again", seed + RESTART))

    def _data(self, column: TableColumn) -> Path:
        return self.out / "data" / plain(column.name) if column.files or not column.path else column.path

    def _protocol(self) -> dict[str, Any]:
        """Return all that the figures depend on. Raises UserError when the folder's runs had something else.

        Data sets that were not here before, or are not here now, make no run another one.
        """
        protocol = {
            "table": self.table.published.title,
            "rows": self.scale.rows,
            **({"dev_rows": self.scale.dev_rows} if self.scale.dev_rows else {}),
            "finetuning": shlex.join(self.finetuning_words),
            **self.table.differing(),
            "data": {column.name: hashes(column.find(self.data)) for column in self.columns},
            **self.encoders.protocol(self.table.rows, self.out),
        }
        path = self.out / PROTOCOL
        if not path.exists():
            return protocol
        before = json.loads(path.read_text("utf-8"))
        if changes := self._changes(before, protocol):
            raise UserError(
                f"{self.out} holds runs with another protocol ({'; '.join(changes)}). Give another --out, or the same "
                "settings and data.",
                code="begun-with-other-settings",
            )
        return {**protocol, **{part: {**before.get(part, {}), **protocol[part]} for part in BY_COLUMN}}

    def _changes(self, before: Mapping[str, Any], protocol: Mapping[str, Any]) -> list[str]:
        """Return how a protocol differs from that of the folder's runs; of columns, those that both have data of."""
        shared = {*before.get("data", {})} & {*protocol["data"]}

        def compared(one: Mapping[str, Any]) -> dict[str, Any]:
            parts = {part: one.get(part, {}) for part in BY_COLUMN}
            own = {part: {name: found[name] for name in found if name in shared} for part, found in parts.items()}
            return {name: value for name, value in {**one, **own}.items() if name != PRETRAINING}

        earlier = compared(before)
        if same_finetuning(before.get("finetuning", ""), protocol["finetuning"], self.table):
            earlier["finetuning"] = protocol["finetuning"]  # an earlier version kept the names as they were given
        lines = difference(earlier, compared(protocol))
        return lines + self.encoders.changes(self.table.rows, before, protocol)

    def _prepare(self, column: TableColumn) -> None:
        """Write a data set's rows and read them. Raises UserError when they are missing, or cannot be fine-tuned on."""
        if not column.find(self.data):
            raise column.missing(self.data)
        column.prepare(self.data, self._data(column), rows=self.scale.rows, dev_rows=self.scale.dev_rows)
        usual = self.encoders.finetuning(self.table)
        for added in {words(row.finetuning): row.finetuning for row in self.table.rows}.values():
            settings = keywords(usual, self.finetuning, column.settings, added)
            try:
                plan = read_plan(column.task or column.set, settings, model=self.out, data=self._data(column))
            except UserError as error:
                raise UserError(
                    f"Fine-tuning on it cannot be done (--finetuning): {error}", code=error.code, codes=error.codes
                ) from error
        load(plan.task, SPLITS)
