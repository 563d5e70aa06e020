"""osbert reproduce: runs what a table of the BERT paper needs, small enough for this machine, and prints both."""

from __future__ import annotations

import math
import shlex
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from osbert.commands.opening_options import OpeningOptions
from osbert.errors import UserError
from osbert.interop.opening import CAREFUL, Opening
from osbert.lock import claim

if TYPE_CHECKING:
    from osbert.runs.reproduce.encoders import Encoders
    from osbert.runs.reproduce.ensemble import Ensemble
    from osbert.runs.reproduce.jobs import Job
    from osbert.runs.reproduce.runs import Run
    from osbert.runs.reproduce.tables import DataSet, Row, Table

PROTOCOL = "protocol.json"
AVERAGE = "average"
"""The column that is the mean of all others; it is made where all of them were measured."""
FINETUNING = "--epochs 3 --learning-rate 5e-4 --length 128"
"""How encoders that were pretrained here for minutes are fine-tuned; a model that is given, as its table says."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How much of a table is run, and how its models are fine-tuned."""

    shrink: int = 1
    """For table6: what the widths of the encoders are divided by."""
    seeds: int = 3
    """Runs of each row, with seeds 0, 1, 2, ..."""
    rows: int = 4000
    """Most training rows of a data set, drawn at random; 0 for all."""
    dev_rows: int = 0
    """Most development rows, as drawn; 0 for all, without which figures are hardly to be compared."""
    finetuning: Annotated[str, Parameter(allow_leading_hyphen=True)] = ""
    """Settings of fine-tuning, in quotes; left open, for a model of yours as the paper did for this table (table1 and
    table7: three epochs at 3e-5), for one that is pretrained here three epochs at 5e-4."""
    jobs: int = 1
    """Runs at a time; the processor's cores are shared out among them."""

    def check(self) -> None:
        """Raise UserError at a number that is too small."""
        for name, least in (("seeds", 1), ("rows", 0), ("dev_rows", 0), ("jobs", 1), ("shrink", 1)):
            if (value := getattr(self, name)) < least:
                raise UserError(f"--{name.replace('_', '-')} must be {least} or more, not {value}.")


def reproduce(
    table: Literal["table1", "table2", "table3", "table4", "table5", "table6", "table7", "table8"],
    /,
    *settings: Annotated[str, Parameter(allow_leading_hyphen=True)],
    data: Path,
    out: Path,
    corpus: Path | None = None,
    model: Path | None = None,
    recipe: str = "cpu",
    scale: Annotated[Scale | None, Parameter(name="*")] = None,
    opening: OpeningOptions = CAREFUL,
) -> None:
    """Run a table of the BERT paper at a size of your choosing, and print your figures beside the published ones.

    Every row's encoder is pretrained once a seed and fine-tuned on each data set; scores are those of the best epoch on
    the development rows. Nothing is printed that was not measured: columns whose data or task are missing here show a
    dash. What is finished is not run again, so the command can be stopped and given again.

    Parameters
    ----------
    table
        table1: GLUE, with a model of yours. table2: SQuAD 1.1, also as an ensemble of all seeds; a model that was
        fine-tuned on another set first (TriviaQA) is a --model like any. table3: SQuAD 2.0. table4: SWAG. table5: MLM
        with and without NSP, left to right, and a BiLSTM on that. table6: six sizes of the encoder. table7: CoNLL-2003,
        fine-tuned and on features. table8: six mixes of masking.
    settings
        Settings of pretraining, such as --steps 2000; they hold for every row.
    data
        A folder with GLUE's data sets in their official layout (MNLI, QNLI, MRPC, SST-2, ...), for NER with conll2003
        (eng.train, eng.testa), for questions with squad (train-v1.1.json, dev-v1.1.json, or of 2.0), for choices with
        swag (train.csv, val.csv).
    out
        The folder for all runs, results.json and table.txt.
    corpus
        A folder that `osbert corpus build` made, to pretrain on.
    model
        For table1 to table4 and table7: the model to fine-tune; without it one is pretrained.
    recipe
        The recipe that all rows share.
    """
    from osbert.runs.reproduce.encoders import choose
    from osbert.runs.reproduce.tables import TABLES

    scale = scale or Scale()
    scale.check()
    wanted = TABLES[table].shrunk(scale.shrink)
    plan = Plan(
        table=wanted,
        datasets=wanted.present(data),
        encoders=choose(wanted, recipe, corpus=corpus, model=model, settings=settings, opening=opening),
        data=data,
        out=out,
        seeds=scale.seeds,
        rows=scale.rows,
        dev_rows=scale.dev_rows,
        finetuning=tuple(shlex.split(scale.finetuning or (wanted.finetuning if model else FINETUNING))),
        opening=opening,
    )
    with claim(out):
        run(plan, together=scale.jobs)


def run(plan: Plan, *, together: int) -> None:
    """Do all runs of a table, so many `together`, and print it."""
    from osbert.runs.reproduce.jobs import Jobs

    plan.begin()
    if absent := [dataset.column for dataset in plan.table.datasets if dataset not in plan.datasets]:
        print(f"No data for {', '.join(absent)} in {plan.data}: left out.", flush=True)
    runner = Jobs(together=together, tell=lambda line: print(line, flush=True))
    runner.run(list(plan.jobs()))
    runner.run(list(plan.restarts()))
    plan.vote()
    print(plan.report(), end="")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All runs of a table, and where they go. `datasets`: those of the table whose data are here."""

    table: Table
    datasets: tuple[DataSet, ...]
    encoders: Encoders
    data: Path
    out: Path
    seeds: int
    rows: int
    finetuning: tuple[str, ...]
    dev_rows: int = 0
    opening: Opening = CAREFUL

    def begin(self) -> None:
        """Check inputs and settings, and write the data sets' rows. Raises UserError at all that is wrong.

        Nothing is written into a folder that holds runs with another protocol.
        """
        from osbert.files import refuse_foreign, write_json

        if not (self.out / PROTOCOL).is_file():
            refuse_foreign(self.out, "a reproduced table", ("data",))
        protocol = self._protocol()
        for dataset in self.datasets:
            dataset.prepare(self.data, self._data(dataset), rows=self.rows, dev_rows=self.dev_rows)
        self._check_finetuning()
        write_json(self.out / PROTOCOL, protocol)

    def jobs(self) -> Iterator[Job]:
        """Yield the runs seed by seed, the encoders first, so that what waits for them seldom has to."""
        for seed in range(self.seeds):
            yield from self.encoders.jobs(self.table.rows, seed, self.out)
            for row in self.table.rows:
                yield from (self._finetuning(row, dataset, seed) for dataset in self.datasets)

    def restarts(self) -> Iterator[Job]:
        """Yield a run with another seed in place of each that has collapsed, once all have ended."""
        for row in self.table.rows:
            for dataset in self.datasets:
                for run in self._runs(row.name, dataset):
                    if run.collapsed:
                        yield self._finetuning(row, dataset, run.seed, again=True)

    def vote(self) -> None:
        """Have the runs of all seeds answer together, where the table has such a row and there are several."""
        if ensemble := self._ensemble():
            ensemble.run(lambda line: print(line, flush=True))

    def report(self) -> str:
        """Write results.json and table.txt; return the table."""
        import json

        from osbert.files import write_json, write_text
        from osbert.runs.reproduce.runs import remarks

        scores = {row.name: self._scores(row.name) for row in self.table.rows}
        if ensemble := self._ensemble():
            [dataset], metrics = self.datasets, ensemble.metrics
            scores[self.table.ensemble] = {column: [metrics[name]] for column, name in dataset.measured.items()}
        runs = [run for row in self.table.rows for one in self.datasets for run in self._runs(row.name, one)]
        protocol = json.loads((self.out / PROTOCOL).read_text("utf-8"))
        collapsed = {"collapsed": told} if (told := [line for run in runs if (line := run.remark())]) else {}
        write_json(self.out / "results.json", {"protocol": protocol, "scores": scores, **collapsed})
        lines = [self.table.published.title, "", *self._described(), ""]
        cells = self._cells(scores)
        widths = [max(len(line[place]) for line in cells) for place in range(len(cells[0]))]
        lines += ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in cells]
        lines += [line for row, found in scores.items() if (line := self._mean(row, found))]
        lines += remarks(runs)
        text = "\n".join(lines) + "\n"
        write_text(self.out / "table.txt", text)
        return text

    def _cells(self, scores: Mapping[str, Mapping[str, Sequence[float]]]) -> list[list[str]]:
        """Return the table: our rows, with the paper's figures in brackets, then the paper's rows that are not ours."""
        from osbert.runs.reproduce.tables import columns, spread

        names, published = columns(self.table), self.table.published.figures
        cells = [["ours (published)", *(f"{name}*" if name in self._split_off() else name for name in names)]]
        for row, found in scores.items():
            cells.append([row])
            marks = self._marks(row)
            for column in names:
                scale = 1 if column == self.table.perplexity else 100
                theirs = published.get(row, {}).get(column)
                told = spread(found.get(column, []), scale=scale) + (marks.get(column, "") if column in found else "")
                cells[-1].append(told if theirs is None else f"{told} ({theirs})")
        for row, figures in published.items():
            if row not in scores:
                cells.append([row, *(f"({figures[name]})" if name in figures else "-" for name in names)])
        return cells

    def _marks(self, row: str) -> dict[str, str]:
        """Return what stands behind a row's figures, by column: a mark where a collapsed run is in them."""
        from osbert.runs.reproduce.runs import MARK

        row = row if row != self.table.ensemble else self.table.rows[0].name
        amiss = [one for one in self.datasets if any(run.counts_collapsed for run in self._runs(row, one))]
        marks = {column: MARK for dataset in amiss for column in dataset.measured}
        return marks | ({AVERAGE: MARK} if marks else {})

    def _mean(self, row: str, found: Mapping[str, Sequence[float]]) -> str:
        """Return in words the mean of the columns that were measured, ours and theirs, where there is no average."""
        columns = [column for column in self.table.published.columns if column in found]
        if AVERAGE not in self.table.published.columns or AVERAGE in found or not columns:
            return ""
        ours = 100 * statistics.fmean(statistics.fmean(found[column]) for column in columns)
        figures = self.table.published.figures
        theirs = [f"{name} {statistics.fmean(rows[one] for one in columns):.1f}" for name, rows in figures.items()]
        told = f"No average: columns are missing. Mean of the {len(columns)} measured: {row} {ours:.1f}"
        return f"{told}; {', '.join(theirs)}."

    def _finetuning(self, row: Row, dataset: DataSet, seed: int, *, again: bool = False) -> Job:
        """Return a row's run on a data set, or with `again` that in its place: of the same encoder, with another seed.

        As --seeds of `osbert finetune` has it.
        """
        from osbert.runs.reproduce.jobs import Job
        from osbert.runs.reproduce.runs import Run
        from osbert.runs.study.runner import RESTART

        encoder, run = row.encoder or row.name, Run(row=row.name, column=dataset.column, seed=seed, out=self.out)
        out = run.replacement if again else run.folder
        words = ("finetune", dataset.task, "--settings", "paper", *self.finetuning, *dataset.settings, *row.finetuning)
        words += ("--training.seed", str(seed + RESTART * again))
        words += ("--model", str(self.encoders.folder(encoder, seed, self.out)))
        words += ("--data", str(self._data(dataset)), "--out", str(out), *self.opening.words)
        name = f"{run.name}, again with seed {seed + RESTART}, for it had collapsed" if again else run.name
        return Job(name=name, words=words, folder=out, after=f"{encoder}, seed {seed}")

    def _runs(self, row: str, dataset: DataSet) -> list[Run]:
        """Return the runs of a row on a data set, one a seed."""
        from osbert.runs.reproduce.runs import Run

        return [Run(row=row, column=dataset.column, seed=seed, out=self.out) for seed in range(self.seeds)]

    def _described(self) -> list[str]:
        split_off = f"*: a fifth of the rows of {', '.join(self._split_off())} was split off for development, since "
        split_off += "training and development files are not both there; the paper's figures are of other rows."
        seeds = "one seed" if self.seeds == 1 else f"{self.seeds} seeds (mean +- standard deviation)"
        return [
            f"Ours: {self.encoders.describe(self.table.rows[0].name, self.out)}, {seeds}, "
            f"{f'at most {self.rows:,}' if self.rows else 'all'} training rows of a data set, "
            f"{shlex.join(self.finetuning)}; {self.table.measure} of the best epoch on "
            f"{f'at most {self.dev_rows:,}' if self.dev_rows else 'the'} development rows, in per cent.",
            *self.table.own_settings(self.datasets),
            "In brackets: the paper, BERT BASE unless a row says otherwise. A dash: not run here.",
            f"Files: {'; '.join(self._files())}.",
            *([split_off] if self._split_off() else []),
            *self._together(),
        ]

    def _together(self) -> list[str]:
        if not self.table.ensemble:
            return []
        if not self._ensemble():
            return ["No ensemble: it takes the runs of two seeds or more (--seeds)."]
        return [f"Ensemble: the runs of {self.seeds} seeds, by the mean of the probabilities that they give to a text."]

    def _ensemble(self) -> Ensemble | None:
        """Return the runs of the table's one row as an ensemble, None where there is none to make."""
        from osbert.runs.reproduce.ensemble import Ensemble

        if not self.table.ensemble or self.seeds < 2:
            return None
        [row], [dataset] = self.table.rows, self.datasets
        runs = self._runs(row.name, dataset)
        again = "-again" if any(run.collapsed for run in runs) else ""
        out = self.out / "runs" / f"ensemble-of-{self.seeds}{again}.json"
        return Ensemble(runs=[run.counted for run in runs], out=out)

    def _data(self, dataset: DataSet) -> Path:
        from osbert.runs.reproduce.encoders import plain

        return self.out / "data" / plain(dataset.column)

    def _files(self) -> list[str]:
        named = {
            one.column: [str(path.relative_to(self.data)) for path in one.files(self.data)] for one in self.datasets
        }
        return [f"{column}: {', '.join(names)}" for column, names in named.items()]

    def _split_off(self) -> list[str]:
        return [dataset.column for dataset in self.datasets if len(dataset.files(self.data)) == 1]

    def _scores(self, row: str) -> dict[str, list[float]]:
        """Return the scores of a row by column, one a seed; only what was measured with every seed."""
        found: dict[str, list[float]] = {}
        for dataset in self.datasets:
            metrics = [run.metrics for run in self._runs(row, dataset)]
            for column, name in dataset.measured.items():
                if all(name in one for one in metrics):
                    found[column] = [one[name] for one in metrics]
        if self.table.perplexity:
            folders = [self.encoders.folder(row, seed, self.out) for seed in range(self.seeds)]
            found[self.table.perplexity] = [perplexity(folder) for folder in folders]
        others = [column for column in self.table.published.columns if column != AVERAGE]
        if AVERAGE in self.table.published.columns and {*others} <= {*found}:
            found[AVERAGE] = [statistics.fmean(values) for values in zip(*(found[column] for column in others))]
        return found

    def _protocol(self) -> dict[str, Any]:
        """Return all that the figures depend on. Raises UserError when the folder's runs had something else.

        Data sets that were not here before, or are not here now, make no run another one.
        """
        import json

        from osbert.recipe import difference
        from osbert.runs.reproduce.encoders import hashes

        protocol = {
            "table": self.table.published.title,
            "rows": self.rows,
            **({"dev_rows": self.dev_rows} if self.dev_rows else {}),
            "finetuning": shlex.join(self.finetuning),
            **self.table.differing(),
            "data": {dataset.column: hashes(dataset.files(self.data)) for dataset in self.datasets},
            **self.encoders.protocol(self.table.rows, self.out),
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
                settings = (*self.finetuning, *dataset.settings, *added)
                data = self._data(dataset)
                try:
                    read_plan(dataset.task, settings, model=self.out, data=data, from_scratch=False)
                except UserError as error:
                    raise UserError(
                        f"Fine-tuning on {dataset.column} cannot be done (--finetuning): {error}"
                    ) from error


def perplexity(run: Path) -> float:
    """Return the perplexity of masked pieces on the held-out text, as measured at the end of a pretraining."""
    from osbert.training.tracking import NAME, read_lines

    losses = [line["held_out.mlm.loss"] for line in read_lines(run / NAME) if "held_out.mlm.loss" in line]
    return math.exp(losses[-1])
