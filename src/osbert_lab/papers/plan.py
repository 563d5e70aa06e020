"""All runs of a table of the paper: their commands, their folders, and the protocol that their figures depend on."""

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
from osbert.tasks import load
from osbert_lab.papers.children import ChildCommands
from osbert_lab.papers.data import TableColumn
from osbert_lab.papers.encoders import PRETRAINING, TableEncoders, hashes, plain, run_folder
from osbert_lab.papers.ensemble import Ensemble
from osbert_lab.papers.scale import TableScale
from osbert_lab.papers.settings import same_finetuning
from osbert_lab.papers.tables import PaperTable, TableRow, keywords, words
from osbert_lab.papers.word_tests import WordTest
from osbert_lab.study.runner import RESTART, Study, StudyTrial, read_results

PROTOCOL = "protocol.json"
BY_COLUMN = ("data", "finetuning_by_column")
"""Parts of a protocol with an entry per column: columns may be added or left out later."""


@dataclass(frozen=True, kw_only=True)
class TablePlan:
    """All runs of a table, and their folder. `columns`: the columns to run; their data must exist."""

    table: PaperTable
    columns: tuple[TableColumn, ...]
    encoders: TableEncoders
    data: Path
    out: Path
    scale: TableScale = field(default_factory=TableScale)
    finetuning: Mapping[str, Any] = field(default_factory=dict)
    """Settings of fine-tuning; they override the encoders' defaults."""
    opening: Opening = CAREFUL

    @property
    def finetuning_words(self) -> tuple[str, ...]:
        """The settings of fine-tuning that all runs share, as words of a command line."""
        return words(self._shared)

    @property
    def _shared(self) -> dict[str, Any]:
        return {**self.encoders.finetuning(self.table), **self.finetuning}

    def run(self, *, watch: Watch = ignore) -> None:
        """Run everything that is not finished.

        Raises UserError before the first run with all invalid input, and after the last run with the runs that failed.
        """
        self.begin()
        absent = [column.name for column in self.table.columns if column not in self.columns]
        if absent := absent + [test.name for test in self.table.words if test not in self.word_tests]:
            watch(Notice(f"No data for {', '.join(absent)} in {self.data}: skipped."))
        if self.table.left_out:
            watch(Notice(f"No corpus for {', '.join(self.table.left_out)} beside the common one: skipped."))
        if self.whole:
            watch(Notice(self.whole))
        commands, failed = (
            ChildCommands(self.scale.jobs),
            Problems(heading="Some runs failed; the finished ones are kept"),
        )
        study = Study(work=commands.work, stop=commands.stop, threads=self.scale.jobs, problems=failed, watch=watch)
        study.run([*self.trials()])
        failed.stop_if_any()
        if ensemble := self.ensemble():
            ensemble.run(watch)

    def begin(self) -> None:
        """Check inputs and settings, and write the data sets' rows. Raises UserError with all problems.

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
        """Yield the runs seed by seed, encoders first, so that a run seldom waits for its encoder."""
        rows = self.table.rows
        for seed in range(self.scale.seeds):
            # The order of the rows rotates with the seed: a machine that grows slower or faster favours no row.
            turn = (*rows[seed % len(rows) :], *rows[: seed % len(rows)])  # none is always the first
            # The points of a curve come from a single pretraining, that of seed 0.
            if not (seed and self.table.curves):
                yield from self.encoders.trials(turn, seed, self.out)
            for row in turn:
                yield from (self._trial(row, column, seed) for column in self.columns)

    def trials_of(self, row: TableRow, column: TableColumn) -> list[StudyTrial]:
        """Return the runs of a row on a data set, one per seed."""
        return [self._trial(row, column, seed) for seed in range(self.scale.seeds)]

    def ensemble(self) -> Ensemble | None:
        """Return the ensemble of the table's one row; None if the table has none or there is only one seed."""
        if not self.table.ensemble or self.scale.seeds < 2:
            return None
        [row], [column] = self.table.rows, self.columns
        results = [read_results(trial) for trial in self.trials_of(row, column)]
        # With a repeated run the ensemble has other members, so its metrics go into another file.
        again = "-again" if any(len(trial_results) > 1 for trial_results in results) else ""
        out = self.out / "runs" / f"ensemble-of-{self.scale.seeds}{again}.json"
        return Ensemble(runs=[trial_results[-1].trial.folder for trial_results in results], out=out)

    @property
    def whole(self) -> str:
        """Describe which data sets keep all rows although --rows or --dev-rows is set; "" if there are none."""
        names = [column.name for column in self.columns if not column.files]
        if not names or not (self.scale.rows or self.scale.dev_rows):
            return ""
        return f"Read where they lie, with all rows (--rows and --dev-rows are not of them): {', '.join(names)}."

    @property
    def word_tests(self) -> tuple[WordTest, ...]:
        """The tests of words whose files exist."""
        return tuple(test for test in self.table.words if test.find(self.data))

    @property
    def split_off(self) -> list[str]:
        """The names of the data sets whose development rows are split off the training file."""
        return [column.name for column in self.columns if len(column.find(self.data)) == 1]

    def _trial(self, row: TableRow, column: TableColumn, seed: int) -> StudyTrial:
        """Return a row's run on a data set, with a second run that replaces it if it collapses: same encoder, other
        seed."""
        name, encoder_seed = f"{row.name}, seed {seed}, {column.name}", 0 if self.table.curves else seed
        # Without a number of epochs, osbert's defaults choose it by the rows, with batch and learning rate.
        rule = "paper" if "epochs" in self._shared else "auto"
        settings = (*self.finetuning_words, *words(column.settings), *words(row.finetuning))
        given = ("--model", str(self.encoders.folder(row, encoder_seed, self.out)), "--data", str(self._data(column)))
        after = f"{row.encoder or row.name}, seed {encoder_seed}"

        def make_trial(name: str, folder: str, own_seed: int) -> StudyTrial:
            out = run_folder(row.name, seed, folder, self.out)
            command = ("finetune", column.task or column.set, "--settings", rule, *settings)
            command += ("--training.seed", str(own_seed), *given, "--out", str(out), *self.opening.words)
            return StudyTrial(name=name, folder=out, seed=own_seed, settings=command, after=after, kind=column.name)

        again = f"{name}, again with seed {seed + RESTART}, for it had collapsed"
        return make_trial(name, column.name, seed).or_else(make_trial(again, f"{column.name} again", seed + RESTART))

    def _data(self, column: TableColumn) -> Path:
        return self.out / "data" / plain(column.name) if column.files or not column.path else column.path

    def _protocol(self) -> dict[str, Any]:
        """Return everything that the figures depend on. Raises UserError if the folder's runs had another protocol.

        Adding or removing data sets does not change the protocol of the other runs.
        """
        protocol = {
            "table": self.table.published.title,
            "rows": self.scale.rows,
            **({"dev_rows": self.scale.dev_rows} if self.scale.dev_rows else {}),
            "finetuning": shlex.join(self.finetuning_words),
            **self.table.differing(),
            "data": {column.name: hashes(column.find(self.data)) for column in self.columns}
            | {test.name: hashes(test.find(self.data)) for test in self.word_tests},
            **self.encoders.protocol(self.table.rows, self.out),
        }
        path = self.out / PROTOCOL
        if not path.exists():
            return protocol
        before = json.loads(path.read_text("utf-8"))
        if changes := self._changes(before, protocol):
            raise UserError(
                f"{self.out} contains runs with another protocol ({'; '.join(changes)}). Choose another --out, or "
                "use the same settings and data.",
                code="begun-with-other-settings",
            )
        # Columns of earlier calls stay in the protocol although this call may run other columns.
        return {**protocol, **{part: {**before.get(part, {}), **protocol[part]} for part in BY_COLUMN}}

    def _changes(self, before: Mapping[str, Any], protocol: Mapping[str, Any]) -> list[str]:
        """Describe how a protocol differs from the folder's; of the columns only those that both have are compared."""
        shared = {*before.get("data", {})} & {*protocol["data"]}

        def select_comparable(full_protocol: Mapping[str, Any]) -> dict[str, Any]:
            parts = {part: full_protocol.get(part, {}) for part in BY_COLUMN}
            shared_parts = {
                part: {name: by_column[name] for name in by_column if name in shared}
                for part, by_column in parts.items()
            }
            return {name: value for name, value in {**full_protocol, **shared_parts}.items() if name != PRETRAINING}

        earlier = select_comparable(before)
        if same_finetuning(before.get("finetuning", ""), protocol["finetuning"], self.table):
            earlier["finetuning"] = protocol["finetuning"]  # an earlier version kept the names as they were given
        lines = difference(earlier, select_comparable(protocol))
        return lines + self.encoders.changes(self.table.rows, before, protocol)

    def _prepare(self, column: TableColumn) -> None:
        """Write a data set's rows and read them back. Raises UserError if files are missing or unusable for
        fine-tuning."""
        if not column.find(self.data):
            raise column.missing(self.data)
        column.prepare(self.data, self._data(column), rows=self.scale.rows, dev_rows=self.scale.dev_rows)
        # Rows with equal settings are checked once; `words` makes them hashable.
        for added in {words(row.finetuning): row.finetuning for row in self.table.rows}.values():
            settings = keywords(self._shared, column.settings, added)
            try:
                plan = read_plan(column.task or column.set, settings, model=self.out, data=self._data(column))
            except UserError as error:
                raise UserError(
                    f"The fine-tuning (--finetuning) cannot be run: {error}", code=error.code, codes=error.codes
                ) from error
        load(plan.task, SPLITS)
