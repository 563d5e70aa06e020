"""osbert reproduce: runs what a table of the BERT paper needs, small enough for this machine, and prints both."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from osbert.errors import UserError

if TYPE_CHECKING:
    from osbert.commands.reproduce_jobs import Job
    from osbert.commands.reproduce_tables import DataSet, Row, Table

PROTOCOL = "protocol.json"
FINETUNING = "--epochs 3 --learning-rate 5e-4 --length 128"


def reproduce(
    table: Literal["table5", "table8"],
    /,
    *settings: Annotated[str, Parameter(allow_leading_hyphen=True)],
    corpus: Path,
    data: Path,
    out: Path,
    recipe: str = "cpu",
    seeds: int = 3,
    rows: int = 4000,
    finetuning: Annotated[str, Parameter(allow_leading_hyphen=True)] = FINETUNING,
    jobs: int = 1,
) -> None:
    """Run a table of the BERT paper at a size of your choosing, and print your figures beside the published ones.

    Every row's encoder is pretrained once a seed and fine-tuned on each data set; accuracies are those of the best
    epoch on the development rows, as in the paper. Nothing is printed that was not measured: columns whose data or task
    are missing here show a dash. What is finished is not run again, so the command can be stopped and given again.

    Parameters
    ----------
    table
        table5: MLM with and without NSP, left to right, and a BiLSTM on that. table8: six mixes of masking.
    settings
        Settings of pretraining, such as --steps 2000; they hold for every row.
    corpus
        A folder that `osbert corpus build` made.
    data
        A folder with GLUE's data sets in their official layout (MNLI, QNLI, MRPC, SST-2).
    out
        The folder for all runs, results.json and table.txt.
    recipe
        The recipe that all rows share.
    seeds
        Runs of each row, with seeds 0, 1, 2, ...
    rows
        Most training rows of a data set, drawn at random; 0 for all.
    finetuning
        Settings of fine-tuning, in quotes.
    jobs
        Runs at a time; the processor's cores are shared out among them.
    """
    from osbert.commands.reproduce_jobs import Jobs
    from osbert.commands.reproduce_tables import TABLES

    for name, value, least in (("seeds", seeds, 1), ("rows", rows, 0), ("jobs", jobs, 1)):
        if value < least:
            raise UserError(f"--{name} must be {least} or more, not {value}.")
    plan = Plan(
        table=TABLES[table],
        datasets=TABLES[table].present(data),
        corpus=corpus,
        data=data,
        out=out,
        recipe=recipe,
        seeds=seeds,
        rows=rows,
        pretraining=settings,
        finetuning=tuple(shlex.split(finetuning)),
    )
    plan.begin()
    if absent := [dataset.column for dataset in plan.table.datasets if dataset not in plan.datasets]:
        print(f"No data for {', '.join(absent)} in {data}: left out.", flush=True)
    Jobs(together=jobs, tell=lambda line: print(line, flush=True)).run(list(plan.jobs()))
    print(plan.report(), end="")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All runs of a table, and where they go. `datasets`: those of the table whose data are here."""

    table: Table
    datasets: tuple[DataSet, ...]
    corpus: Path
    data: Path
    out: Path
    recipe: str
    seeds: int
    rows: int
    pretraining: tuple[str, ...]
    finetuning: tuple[str, ...]

    def begin(self) -> None:
        """Check inputs and settings, and write the data sets' rows. Raises UserError at all that is wrong.

        Nothing is written into a folder that holds runs with another protocol.
        """
        from osbert.files import write_json

        protocol = self._protocol()
        for dataset in self.datasets:
            dataset.prepare(self.data, self.out / "data" / dataset.column, rows=self.rows)
        self._check_finetuning()
        write_json(self.out / PROTOCOL, protocol)

    def jobs(self) -> Iterator[Job]:
        """Yield the runs seed by seed, the encoders first, so that what waits for them seldom has to."""
        for seed in range(self.seeds):
            yield from (self._pretraining(row, seed) for row in self.table.rows if not row.encoder)
            for row in self.table.rows:
                yield from (self._finetuning(row, dataset, seed) for dataset in self.datasets)

    def report(self) -> str:
        """Write results.json and table.txt; return the table."""
        import json

        from osbert.commands.reproduce_tables import columns, spread
        from osbert.files import write_json, write_text

        scores = {row.name: self._scores(row.name) for row in self.table.rows}
        protocol = json.loads((self.out / PROTOCOL).read_text("utf-8"))
        write_json(self.out / "results.json", {"protocol": protocol, "scores": scores})
        lines = [self.table.published.title, "", *self._described(), ""]
        names = columns(self.table)
        cells = [["ours (published)", *(f"{name}*" if name in self._split_off() else name for name in names)]]
        for row in self.table.rows:
            published = self.table.published.figures[row.name]
            cells.append([row.name])
            for column in names:
                theirs = f" ({published[column]:.1f})" if column in published else ""
                cells[-1].append(spread(scores[row.name].get(column, [])) + theirs)
        widths = [max(len(line[place]) for line in cells) for place in range(len(cells[0]))]
        lines += ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in cells]
        text = "\n".join(lines) + "\n"
        write_text(self.out / "table.txt", text)
        return text

    def _pretraining(self, row: Row, seed: int) -> Job:
        from osbert.commands.reproduce_jobs import Job

        out = self._encoder(row.name, seed)
        seeded = ("--training.seed", str(seed), "--data.seed", str(seed))
        words = ("pretrain", self.recipe, *self.pretraining, *row.pretraining, *seeded)
        words += ("--corpus", str(self.corpus), "--out", str(out))
        return Job(name=f"{row.name}, seed {seed}", words=words, folder=out)

    def _finetuning(self, row: Row, dataset: DataSet, seed: int) -> Job:
        from osbert.commands.reproduce_jobs import Job

        encoder, out = row.encoder or row.name, self._run(row.name, dataset.column, seed)
        words = ("finetune", dataset.task, *dataset.settings, *self.finetuning, *row.finetuning)
        words += ("--training.seed", str(seed), "--model", str(self._encoder(encoder, seed)))
        words += ("--data", str(self.out / "data" / dataset.column), "--out", str(out))
        name = f"{row.name}, seed {seed}, {dataset.column}"
        return Job(name=name, words=words, folder=out, after=f"{encoder}, seed {seed}")

    def _described(self) -> list[str]:
        from osbert.training.run_folder import RunFolder

        facts = RunFolder(self._encoder(self.table.rows[0].name, 0)).facts
        sizes = f"{facts['finished']['parameters']:,} parameters, {facts['settings']['training']['steps']:,} steps"
        split_off = f"*: a fifth of the rows of {', '.join(self._split_off())} was split off for development, since "
        split_off += "train.tsv and dev.tsv are not both there; the paper's figures are of other rows."
        return [
            f"Ours: recipe {self.recipe} ({sizes}), corpus of {facts['tokens']:,} tokens, {self.seeds} seeds "
            f"(mean +- standard deviation), at most {self.rows or 'all':,} training rows a data set, accuracy of the "
            "best epoch on the development rows in per cent.",
            "In brackets: the paper's BERT BASE. A dash: not run here.",
            *([split_off] if self._split_off() else []),
        ]

    def _split_off(self) -> list[str]:
        return [dataset.column for dataset in self.datasets if len(dataset.files(self.data)) == 1]

    def _scores(self, row: str) -> dict[str, list[float]]:
        from osbert.training.run_folder import RunFolder

        found: dict[str, list[float]] = {}
        for dataset in self.datasets:
            runs = [RunFolder(self._run(row, dataset.column, seed)).facts for seed in range(self.seeds)]
            found[dataset.column] = [run["finished"]["best"]["metrics"]["accuracy"] for run in runs]
        return found

    def _encoder(self, row: str, seed: int) -> Path:
        return self.out / "runs" / _plain(row) / f"seed-{seed}" / "encoder"

    def _run(self, row: str, column: str, seed: int) -> Path:
        return self.out / "runs" / _plain(row) / f"seed-{seed}" / column

    def _protocol(self) -> dict[str, Any]:
        """Return all that the figures depend on. Raises UserError when the folder's runs had something else.

        Data sets that were not here before, or are not here now, make no run another one.
        """
        import json

        from osbert.commands.pretrain_settings import read_plan
        from osbert.recipe import as_table, difference

        plans = {
            row.name: read_plan(
                self.recipe, [*self.pretraining, *row.pretraining], corpus=self.corpus, out=self.out / "any"
            )
            for row in self.table.rows
            if not row.encoder
        }
        facts = next(iter(plans.values())).facts()
        protocol = {
            "table": self.table.published.title,
            "recipe": self.recipe,
            "rows": self.rows,
            "finetuning": shlex.join(self.finetuning),
            "corpus": facts["corpus"],
            "tokenizer": facts["tokenizer"],
            "data": {dataset.column: _hashes(dataset.files(self.data)) for dataset in self.datasets},
            "pretraining": {name: as_table(plan.settings) for name, plan in plans.items()},
        }
        path = self.out / PROTOCOL
        if not path.exists():
            return protocol
        before = json.loads(path.read_text("utf-8"))
        protocol["data"] = {**before.get("data", {}), **protocol["data"]}
        before["data"] = {**protocol["data"], **before.get("data", {})}
        if changes := difference(before, protocol):
            raise UserError(
                f"{self.out} holds runs with another protocol ({'; '.join(changes)}). Give another --out, or the same "
                "settings and data."
            )
        return protocol

    def _check_finetuning(self) -> None:
        from osbert.commands.finetune import read_plan

        for dataset in self.datasets:
            for added in dict.fromkeys(row.finetuning for row in self.table.rows):
                settings = (*dataset.settings, *self.finetuning, *added)
                data = self.out / "data" / dataset.column
                try:
                    read_plan(dataset.task, settings, model=self.out, data=data, from_scratch=False)
                except UserError as error:
                    raise UserError(
                        f"Fine-tuning on {dataset.column} cannot be done (--finetuning): {error}"
                    ) from error


def _hashes(files: Sequence[Path]) -> dict[str, str]:
    import hashlib

    found = {}
    for path in files:
        with path.open("rb") as file:
            found[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def _plain(name: str) -> str:
    return "".join(character if character.isalnum() else "-" for character in name).strip("-")
