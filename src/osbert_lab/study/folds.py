"""Cross-validation: each row is predicted by a run that was not trained on it; one more run gives the model."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osbert import recipe
from osbert.data.example import Integers
from osbert.errors import UserError
from osbert.files import write_text
from osbert.inference.engine import load
from osbert.interop.opening import Opening
from osbert.runs.contract import Notice, Watch, ignore
from osbert.runs.finetune.finetune import all_rows
from osbert.runs.finetune.plan import FinetunePlan
from osbert.runs.finetune.records import Splits, deduplicate
from osbert.runs.finetune.rows import FinetuneRows, TaskRows
from osbert.runs.seen_texts import TELLING, size_of, text_key
from osbert.tasks import Record
from osbert.terminal import format_count
from osbert.training.interruption import Interruption
from osbert.training.run_folder import RECIPE, RunFolder
from osbert_lab.study.report import CROSS_VALIDATED, study_report
from osbert_lab.study.runner import RESTART, StudyTrial, TrialResult
from osbert_lab.study.search import TrialSettings
from osbert_lab.study.summaries import summaries
from osbert_lab.study.trials import TRIALS, TrialWork, adopt, begin_trials, describe_results, fail

PREDICTIONS = "predictions.jsonl"
"""File with the prediction of each row by the run of its fold."""
WHOLE, FOLD = "whole", "fold"
"""Names of the run on all rows, and of those of the folds."""
BINS = 10
"""Number of quantile ranges by which numeric labels are stratified."""
SHOWN = 5
"""Most lines in a warning."""


def cross_validate(
    plan: FinetunePlan,
    records: Sequence[Splits],
    out: Path,
    watch: Watch = ignore,
    wish: Interruption | None = None,
) -> None:
    """Run each fold, and the run that makes the model, which is the same as without folds; write the predictions.

    Raises UserError where the rows cannot be dealt, and where the run that makes the model has failed.
    """
    [splits] = records
    rows = all_rows(plan.task, splits)
    dealt = deal(plan, rows, watch)
    if not plan.training.deduplicate and (repeats := describe_repeats(rows, dealt)):
        watch(Notice(repeats, warning=True))
    parts: dict[str, Splits] = {WHOLE: splits, **fold_splits(rows, dealt)}
    if plan.training.deduplicate:  # the whole's rows are so already
        parts = {name: deduplicate(part_splits) for name, part_splits in parts.items()}
    with begin_trials(plan, records, out, watch) as (plan, encoded, folder):
        if not folder.finished:
            work = TrialWork(
                plan=plan, rows=lambda trial: encode_splits(encoded, parts[part_of(trial)]), watch=watch, wish=wish
            )
            results = work.study().run([trial_of(part, plan.training.seed, out / TRIALS) for part in parts])
            folds = [result for result in results if part_of(result.trial) != WHOLE]
            write_predictions(out / PREDICTIONS, rows, dealt, folds)
            for line in describe_results(folds):
                watch(Notice(line))
            [whole] = [result for result in results if result not in folds and not result.replaced]
            finish(plan, folder, whole, folds)
    watch(Notice(f"the predictions of all rows, each by the fold that has not seen it: {out / PREDICTIONS}"))


def deal(plan: FinetunePlan, rows: Sequence[Record], watch: Watch = ignore) -> Integers:
    """Return the fold of each row (n,). Raises UserError if there are too few rows or groups.

    A row with an empty cell in the group column forms its own group, with a warning.
    """
    wanted = plan.comparison
    cells = plan.task.source.cells(wanted.group) if wanted.group else {}
    groups = [cells[record.line].strip() or record.line for record in rows] if wanted.group else []
    if lone := [str(group) for group in groups if isinstance(group, int)]:
        more = f" and {len(lone) - SHOWN:,} more" if len(lone) > SHOWN else ""
        message = (
            f"{format_count(len(lone), 'row')} without a cell in '{wanted.group}' (line "
            f"{', '.join(lone[:SHOWN])}{more})"
        )
        watch(Notice(f"{message}: each is dealt as a group of its own", warning=True))
    try:
        return deal_folds(strata([record.label for record in rows]), wanted.folds, groups=groups)
    except ValueError as error:
        raise UserError(f"--folds {wanted.folds}: {error}.", code="too-little-data") from error


def describe_repeats(rows: Sequence[Record], dealt: Integers) -> str:
    """Describe rows whose texts a row of another fold has, too; "" if they are few. `dealt` (n,): the fold of each."""
    folds: dict[tuple[str, ...], set[int]] = {}
    for row, fold in zip(rows, dealt.tolist(), strict=True):
        folds.setdefault(text_key(row), set()).add(fold)
    repeated = [row for row in rows if len(folds[text_key(row)]) > 1]
    characters = sum(map(size_of, repeated)) / max(sum(map(size_of, rows)), 1)
    if min(len(repeated) / len(rows), characters) < TELLING:
        return ""
    return (
        f"{len(repeated):,} of {len(rows):,} rows have the text of a row in another fold, which flatters the scores. "
        "--deduplicate leaves rows out of the training of a fold that they are repeated in; --group NAME keeps rows "
        "with an equal cell in one fold."
    )


def strata(labels: Sequence[Any]) -> list[str]:
    """Return the stratum of each label: the label itself, or the range of a number.

    >>> strata(["pos", "neg"]), strata([0.5, 2.0])
    (["'pos'", "'neg'"], ['0', '5'])
    """
    if not all(isinstance(label, int | float) for label in labels):
        return [repr(label) for label in labels]
    # The argsort of an argsort gives each label's rank; ranks are cut into BINS ranges of equal size.
    ranks = np.argsort(np.argsort(np.array(labels), kind="stable"), kind="stable")
    return [str(rank * BINS // len(labels)) for rank in ranks.tolist()]


def fold_splits(rows: Sequence[Record], folds: Integers) -> dict[str, dict[str, list[Record]]]:
    """Return the training and development rows of each fold, by its name."""

    def number_rows(which: Integers) -> list[Record]:
        return [dataclasses.replace(rows[index], number=number) for number, index in enumerate(which.tolist())]

    return {
        f"{FOLD} {fold + 1}": {
            "train": number_rows(np.flatnonzero(folds != fold)),
            "dev": number_rows(np.flatnonzero(folds == fold)),
        }
        for fold in range(int(folds.max()) + 1)
    }


def encode_splits(rows: FinetuneRows, splits: Splits) -> FinetuneRows:
    """Return other rows of the same task, as the same tokenizer lays them out."""
    [task_rows] = rows.tasks
    split_rows = TaskRows.of(task_rows.task, splits, task_rows.packer)
    return FinetuneRows(tasks=[dataclasses.replace(split_rows, auxiliary=task_rows.auxiliary, whole=task_rows.whole)])


def trial_of(part: str, seed: int, folder: Path) -> StudyTrial:
    """Return the run of a fold, or of the whole, and that in its place."""
    settings = TrialSettings(name=WHOLE if part == WHOLE else f"{FOLD}s")
    trial = StudyTrial(name=part, folder=folder / part.replace(" ", "-"), settings=settings, seed=seed)
    again = f"seed {seed + RESTART}"
    return trial.or_else(
        dataclasses.replace(
            trial,
            name=f"{part}, {again}",
            folder=trial.folder.with_name(f"{trial.folder.name}-{again.replace(' ', '-')}"),
            seed=seed + RESTART,
        )
    )


def part_of(trial: StudyTrial) -> str:
    """Return the rows that a trial is trained on."""
    return trial.name.partition(",")[0]


def write_predictions(path: Path, rows: Sequence[Record], dealt: Integers, folds: Sequence[TrialResult]) -> None:
    """Write a line of JSON for each row, in the file's order, predicted by the model of its fold.

    The rows of a fold whose run has failed are left out.
    """
    lines: dict[int, str] = {}
    for result in folds:
        if not result.counts:
            continue
        # The user has named the task's code, if it is not osbert's, and the run has just been written.
        engine = load(result.trial.folder, opening=Opening(trust=True, verify=False))
        fold = int(part_of(result.trial).removeprefix(FOLD))
        held = np.flatnonzero(dealt == fold - 1).tolist()
        for index, prediction in zip(held, engine.predict_records([rows[index] for index in held]), strict=True):
            row = {"line": rows[index].line, FOLD: fold, "texts": rows[index].texts, "label": rows[index].label}
            lines[index] = json.dumps(row | prediction.as_dict(), ensure_ascii=False, default=_plain)
    write_text(path, "".join(f"{line}\n" for _, line in sorted(lines.items())))


def finish(plan: FinetunePlan, folder: RunFolder, whole: TrialResult, folds: Sequence[TrialResult]) -> None:
    """Write the folder of a cross-validation whose runs have ended: the model, the report, the facts.

    Raises UserError where the run that makes the model has failed, and notes it.
    """
    counted = [fold.metrics for fold in folds if fold.counts]
    if not (whole.best and counted):
        raise fail(folder)
    model_folder = whole.trial.folder
    comparison_facts = {"comparison": plan.comparison.table()}
    adopt(model_folder, folder, recipe.read(model_folder / RECIPE) | comparison_facts)
    study_report(
        folder.folder, CROSS_VALIDATED, name=plan.name, criterion=plan.task.criterion, results=folds, model_result=whole
    )
    figures = {
        name: {
            "mean": summary.mean,
            "deviation": _finite(summary.deviation),
            "interval": [*map(_finite, summary.interval)],
            "folds": summary.count,
        }
        for name, summary in summaries(counted).items()
    }
    folder.finish(
        {**RunFolder(model_folder).facts["finished"], "trial": model_folder.name, **comparison_facts, "folds": figures}
    )


def _plain(value: Any) -> Any:
    """Return a label's part as plain values."""
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else [*value]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def deal_folds(labels: Sequence[Hashable], folds: int, *, groups: Sequence[Hashable] = ()) -> NDArray[np.int64]:
    """Return the fold of each of n rows (n,), from 0; the same for the same rows.

    Rows of a group are in one fold; without `groups` each row is a group. Groups are assigned from large to small,
    those of equal size in random order. Each goes to the fold with the lowest fraction of its labels; ties go to the
    smallest fold. Raises ValueError if there are fewer groups than folds.

    >>> deal_folds(["a", "a", "a", "a", "b", "b"], 2).tolist().count(0)
    3
    """
    members: dict[Hashable, list[int]] = {}
    for row, group in enumerate(groups or range(len(labels))):
        members.setdefault(group, []).append(row)
    if len(members) < folds:
        what = "groups of rows" if groups else "rows"
        raise ValueError(f"there are {folds} folds, but {len(members)} {what}")
    order = np.random.default_rng(0).permutation(len(members)).tolist()
    dealt = [*members.values()]
    totals = Counter(labels)
    counts = {label: np.zeros(folds) for label in totals}
    sizes = np.zeros(folds)
    row_folds = np.zeros(len(labels), np.int64)
    for rows in sorted((dealt[number] for number in order), key=len, reverse=True):
        label_counts = Counter(labels[row] for row in rows)
        # Cost of each fold: the fraction of each label that it has already, weighted by the labels of this group.
        costs = np.sum([count * counts[label] / totals[label] for label, count in label_counts.items()], axis=0)
        fold = min(range(folds), key=lambda number: (costs[number], sizes[number]))
        row_folds[rows] = fold
        sizes[fold] += len(rows)
        for label, count in label_counts.items():
            counts[label][fold] += count
    return row_folds
