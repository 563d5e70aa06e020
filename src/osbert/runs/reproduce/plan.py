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
from osbert.runs.reproduce.children import ChildCommands
from osbert.runs.reproduce.data import TableColumn
from osbert.runs.reproduce.encoders import TableEncoders, hashes, plain, run_folder
from osbert.runs.reproduce.ensemble import Ensemble
from osbert.runs.reproduce.scale import TableScale
from osbert.runs.reproduce.settings import same_finetuning
from osbert.runs.reproduce.tables import PaperTable, TableRow, keywords, words
from osbert.runs.study.runner import RESTART, Study, StudyTrial, read_results

PROTOCOL = "protocol.json"


@dataclass(frozen=True, kw_only=True)
class TablePlan:
    """All runs of a table, and where they go. `columns`: those of the table whose data are here."""

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
        """Return the settings of fine-tuning that all runs share."""
        return words({**self.encoders.finetuning(self.table), **self.finetuning})

    def run(self, *, watch: Watch = ignore) -> None:
        """Do all runs that are not finished.

        Raises UserError at all that is wrong before the first, and names those that failed after the last.
        """
        self.begin()
        if absent := [column.name for column in self.table.columns if column not in self.columns]:
            watch(Notice(f"No data for {', '.join(absent)} in {self.data}: left out."))
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
        protocol = self._protocol()
        for column in self.columns:
            column.prepare(self.data, self._data(column), rows=self.scale.rows, dev_rows=self.scale.dev_rows)
        self._check_finetuning()
        write_json(self.out / PROTOCOL, protocol)

    def trials(self) -> Iterator[StudyTrial]:
        """Yield the runs seed by seed, the encoders first, so that what waits for them seldom has to."""
        for seed in range(self.scale.seeds):
            yield from self.encoders.trials(self.table.rows, seed, self.out)
            for row in self.table.rows:
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
    def split_off(self) -> list[str]:
        """Return the names of the data sets of which development rows are split off."""
        return [column.name for column in self.columns if len(column.find(self.data)) == 1]

    def _trial(self, row: TableRow, column: TableColumn, seed: int) -> StudyTrial:
        """Return a row's run on a data set, and that in its place: of the same encoder, with another seed."""
        encoder, name = row.encoder or row.name, f"{row.name}, seed {seed}, {column.name}"
        settings = (*self.finetuning_words, *words(column.settings), *words(row.finetuning))
        given = ("--model", str(self.encoders.folder(encoder, seed, self.out)), "--data", str(self._data(column)))

        def one(name: str, folder: str, own_seed: int) -> StudyTrial:
            out = run_folder(row.name, seed, folder, self.out)
            command = ("finetune", column.task or column.set, "--settings", "paper", *settings)
            command += ("--training.seed", str(own_seed), *given, "--out", str(out), *self.opening.words)
            return StudyTrial(name=name, folder=out, seed=own_seed, settings=command, after=f"{encoder}, seed {seed}")

        again = f"{name}, again with seed {seed + RESTART}, for it had collapsed"
        return one(name, column.name, seed).or_else(one(again, f"{column.name} again", seed + RESTART))

    def _data(self, column: TableColumn) -> Path:
        return self.out / "data" / plain(column.name)

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
        protocol["data"] = {**before.get("data", {}), **protocol["data"]}
        before["data"] = {**protocol["data"], **before.get("data", {})}
        if same_finetuning(before.get("finetuning", ""), protocol["finetuning"], self.table):
            before["finetuning"] = protocol["finetuning"]  # an earlier version kept the names as they were given
        if changes := difference(before, protocol):
            raise UserError(
                f"{self.out} holds runs with another protocol ({'; '.join(changes)}). Give another --out, or the same "
                "settings and data.",
                code="begun-with-other-settings",
            )
        return protocol

    def _check_finetuning(self) -> None:
        usual = self.encoders.finetuning(self.table)
        for column in self.columns:
            for added in {words(row.finetuning): row.finetuning for row in self.table.rows}.values():
                settings = keywords(usual, self.finetuning, column.settings, added)
                try:
                    read_plan(column.task or column.set, settings, model=self.out, data=self._data(column))
                except UserError as error:
                    raise UserError(
                        f"Fine-tuning on {column.name} cannot be done (--finetuning): {error}",
                        code=error.code,
                        codes=error.codes,
                    ) from error
