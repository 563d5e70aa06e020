"""osbert finetune multi: several tasks share one encoder; each gets a run folder of its own, with that encoder.

An encoder that several tasks have shaped is less apt to overfit one of them (Liu et al. 2019; the survey, section 5.2).
The epoch is kept that is best in the mean of the tasks' criteria, so that all folders hold the same encoder.
"""

from __future__ import annotations

import dataclasses
import hashlib
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from osbert import recipe
from osbert.data.mixed_loader import MixedLoader
from osbert.errors import Problems, UserError
from osbert.evaluation.score import Score
from osbert.interop.opening import CAREFUL, Opening
from osbert.models.contract import Backbone, Head, Learner
from osbert.runs.finetune import train as finetune_train
from osbert.runs.finetune.defaults import fill_defaults, steps_per_epoch
from osbert.runs.finetune.long import Reader
from osbert.runs.finetune.plan import Plan, read_plan
from osbert.runs.finetune.rows import Part, Rows
from osbert.runs.finetune.run import Epoch
from osbert.tasks import Prediction, Record, Task, findings, load, passed_over
from osbert.terminal import one_line
from osbert.text.file_tokenizer import AnyTokenizer
from osbert.training.run_folder import RunFolder

OPTION = "--tasks"
MEAN = "mean"
"""The score by which the best epoch is kept."""


@dataclass(frozen=True, kw_only=True)
class SharedPlan:
    """The settings of a run of several tasks: those of each, which are alike but for the task."""

    plans: Sequence[Plan]
    path: str = "multi"

    @property
    def model(self) -> Path:
        """Return the folder of the encoder."""
        return self.plans[0].model

    @property
    def from_scratch(self) -> bool:
        """Return whether the encoder starts from fresh weights."""
        return self.plans[0].from_scratch

    @property
    def opening(self) -> Opening:
        """Return how the encoder's folder is opened."""
        return self.plans[0].opening

    @property
    def training(self) -> Any:
        """Return how training goes."""
        return self.plans[0].training

    @property
    def optimizer(self) -> Any:
        """Return how gradients become weights."""
        return self.plans[0].optimizer

    def of(self, task: Task) -> Plan:
        """Return the settings of one of the tasks, which has learnt something by now."""
        [plan] = [plan for plan in self.plans if plan.task.name == task.name]
        return plan.of(task)

    def table(self) -> dict[str, Any]:
        """Return the resolved recipe as it is saved with the run."""
        table = {name: value for name, value in self.plans[0].table().items() if name != "task"}
        return {"tasks": [plan.path for plan in self.plans], **table} | {
            plan.task.name: recipe.as_table(plan.task) for plan in self.plans
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class Together:
    """The rows of several tasks, in the order they were named; scores have the task's name before them."""

    rows: Sequence[Rows]

    @property
    def tokenizer(self) -> AnyTokenizer:
        """Return what the texts were encoded with."""
        return self.rows[0].tokenizer

    @property
    def fingerprint(self) -> str:
        """Return a hash of all texts and labels."""
        return hashlib.sha256(" ".join(rows.fingerprint for rows in self.rows).encode()).hexdigest()

    @property
    def remarks(self) -> list[str]:
        """Return what was mended or is amiss in the data, a line a record."""
        return [remark for rows in self.rows for remark in rows.remarks]

    @property
    def criterion(self) -> str:
        """Return the score by which the best epoch is kept: the mean of the tasks' criteria."""
        return MEAN

    @property
    def pairs(self) -> bool:
        """Return whether there are sequences of two texts."""
        return any(rows.pairs for rows in self.rows)

    @property
    def truncation(self) -> str:
        """Return in words how much of the training texts does not fit, "" when everything does."""
        return "\n".join(f"{rows.task.name}: {rows.truncation}" for rows in self.rows if rows.truncation)

    @property
    def compared(self) -> bool:
        """Return whether the encoder can do every task without being taught."""
        return all(rows.compared for rows in self.rows)

    def heads(self, backbone: Backbone) -> dict[str, Head]:
        """Return fresh heads by the tasks' names."""
        return {name: head for rows in self.rows for name, head in rows.heads(backbone).items()}

    def loader(self, *, batch: int, micro_tokens: int, seed: int) -> MixedLoader:
        """Return the stream of steps, each of one task."""
        loaders = {rows.task.name: rows.loader(batch=batch, micro_tokens=micro_tokens, seed=seed) for rows in self.rows}
        return MixedLoader(loaders, seed=seed)

    def prepare(self, learner: Learner, folder: Path) -> str:
        """Write what each task works out once into the folder, and return in words what was."""
        return "\n".join(filter(None, (rows.prepare(learner, folder) for rows in self.rows)))

    def score(self, learner: Learner) -> Score:
        """Return predictions for the development records, task by task, and all scores with their mean."""
        scores = [rows.score(learner) for rows in self.rows]
        mean = statistics.fmean(one.metrics[rows.criterion] for one, rows in zip(scores, self.rows))
        metrics = {
            f"{rows.task.name}.{name}": value
            for one, rows in zip(scores, self.rows)
            for name, value in one.metrics.items()
        }
        return Score(metrics={MEAN: mean} | metrics, predictions=[one for found in scores for one in found.predictions])

    def collapsed(self, predictions: Sequence[Prediction]) -> str:
        """Return which tasks give all their development records one answer."""
        found = {rows.task.name: rows.collapsed(own) for rows, own in self._own(predictions)}
        return ", ".join(f"{answer} ({name})" for name, answer in found.items() if answer)

    def learnt(self, predictions: Sequence[Prediction]) -> dict[str, Any]:
        """Return what each task learns from the predictions for its development records, by its name."""
        return {rows.task.name: rows.learnt(own) for rows, own in self._own(predictions)}

    def parts(self, learnt: Mapping[str, Any]) -> list[Part]:
        """Return the tasks with what `learnt` gave, each with a folder of its name."""
        return [
            dataclasses.replace(part, folder=rows.task.name)
            for rows in self.rows
            for part in rows.parts(learnt[rows.task.name])
        ]

    def _own(self, predictions: Sequence[Prediction]) -> Iterator[tuple[Rows, Sequence[Prediction]]]:
        first = 0
        for rows in self.rows:
            yield rows, predictions[first : first + len(rows.development)]
            first += len(rows.development)


def finetune_multi(
    settings: Sequence[str], *, model: Path, data: Path, out: Path, from_scratch: bool, opening: Opening = CAREFUL
) -> Epoch:
    """Fine-tune an encoder on several tasks at once, and write a run folder for each below `out`.

    Raises UserError that tells what is wrong with the tasks' names, their data and the settings, of all at once.
    """
    tasks, others = read_tasks(settings, data)
    reader = Reader.of(model)
    problems = Problems(heading="These tasks cannot be learnt together")
    plans, found = [], []
    for name, path in tasks.items():
        try:
            plan = read_plan(name, own_settings(others, name, tasks), model=model, data=path, from_scratch=from_scratch)
            if plan.comparison.wanted:
                raise UserError("several runs (--seeds, --search) are of one task: compare each by itself.")
            task, records = load(plan.task, ("train", "dev"))
            reader.check(task, records)
        except UserError as error:
            problems.add(f"{name}: {error}")
            continue
        plans.append(dataclasses.replace(plan, task=task, opening=opening))
        found.append(records)
    problems.stop_if_any()
    shared = SharedPlan(plans=with_defaults(plans, found, out))
    start = finetune_train.start(shared)
    for plan, records in zip(shared.plans, found):
        for line in findings(plan.task):
            print(f"{plan.task.name}: {one_line(line)}")
        described = "; ".join(f"{split} {plan.task.describe(records[split])}" for split in records)
        print(f"{plan.task.name}: {one_line(described)}")
        if skipped := passed_over(plan.task, records["train"]):
            print(f"{plan.task.name}: train: {one_line(skipped)}")
    finetune_train.tell_model(shared, start)
    rows = Together(rows=[finetune_train.lay_out(plan, records, start) for plan, records in zip(shared.plans, found)])
    print(f"steps are drawn by the tasks' sizes to the power of 0.7: {drawn_steps(shared, rows)}")
    best = finetune_train.train(shared, rows, start, out)
    tell_end(best, shared, out)
    return best


def with_defaults(plans: Sequence[Plan], records: Sequence[Mapping[str, Sequence[Record]]], out: Path) -> list[Plan]:
    """Return the plans with the settings that were left open, the same for all: an epoch has the steps of all tasks."""
    counts = [steps_per_epoch(plan.task, found["train"]) for plan, found in zip(plans, records)]
    left = frozenset.intersection(*(plan.open for plan in plans))
    first = fill_defaults(
        dataclasses.replace(plans[0], open=left), lambda batch: sum(count(batch) for count in counts), out
    )
    return [dataclasses.replace(plan, training=first.training, optimizer=first.optimizer) for plan in plans]


def drawn_steps(plan: SharedPlan, rows: Together) -> str:
    """Return in words how often each task is drawn. Raises UserError when one never is, and would learn nothing."""
    wanted = plan.training
    loader = rows.loader(batch=wanted.batch, micro_tokens=wanted.micro_tokens, seed=wanted.seed)
    drawn = np.concatenate([loader.drawn(epoch) for epoch in range(wanted.epochs)])
    steps = dict(zip(loader.loaders, np.bincount(drawn, minlength=len(loader.loaders)).tolist()))
    if idle := [name for name, count in steps.items() if not count]:
        raise UserError(
            f"None of the {len(drawn):,} steps is drawn for {', '.join(idle)}, which would not be learnt. Give more "
            "--epochs, a smaller --batch or another --seed."
        )
    return ", ".join(f"{name} {share:.0%} ({steps[name]:,} steps)" for name, share in zip(steps, loader.shares))


def read_tasks(settings: Sequence[str], data: Path) -> tuple[dict[str, Path], list[str]]:
    """Return the tasks that --tasks names with their data, and the other settings.

    "rte=RTE,mrpc=MRPC" names files or folders inside `data`; without "=" it is the folder that is called as the task,
    be it in capital letters or with hyphens. Raises UserError when there are fewer than two, or a name comes twice.
    """
    words = [part for word in settings for part in (word.split("=", 1) if word.startswith(f"{OPTION}=") else [word])]
    if OPTION not in words or words.index(OPTION) + 1 == len(words):
        raise UserError(f"multi needs {OPTION} with the tasks and where their data are: {OPTION} rte=RTE,mrpc=MRPC")
    place = words.index(OPTION)
    named = [part.strip() for part in words[place + 1].split(",") if part.strip()]
    pairs = [(name, path or _folder(name, data)) for name, _, path in (part.partition("=") for part in named)]
    twice = {name for name, _ in pairs if [other for other, _ in pairs].count(name) > 1}
    if twice:
        raise UserError(f"{OPTION} names {', '.join(sorted(twice))} more than once; each needs a name of its own.")
    if len(pairs) < 2:
        raise UserError(f"{OPTION} names {len(pairs)} task; two or more are learnt together.")
    return {name: data / path for name, path in pairs}, words[:place] + words[place + 2 :]


def own_settings(settings: Sequence[str], task: str, tasks: Iterable[str]) -> list[str]:
    """Return the settings without those that are another task's, "--mrpc.length 256" where `task` is "rte"."""
    foreign = tuple(f"--{name.rpartition('.')[2]}." for name in tasks if name != task)
    kept: list[str] = []
    skipping = False
    for word in settings:
        if word.startswith("--"):
            skipping = word.startswith(foreign)
        if not skipping:
            kept.append(word)
    return kept


def tell_end(best: Epoch, plan: SharedPlan, out: Path) -> None:
    """Print the best epoch, and of each task what is told of one by itself: collapse, classes, probabilities."""
    print(f"best: {finetune_train.row(best)}")
    for one in plan.plans:
        folder = out / one.task.name
        print(f"\n{one.task.name}:")
        finetune_train.tell_end(Epoch(**RunFolder(folder).facts["finished"]["best"]), folder, one.task)


def _folder(name: str, data: Path) -> str:
    """Return the name of the folder inside `data` that is called as a task, "SST-2" for sst2; the task's own else."""
    plain = {path.name.lower().replace("-", ""): path.name for path in sorted(data.glob("*"))}
    return plain.get(name.rpartition(".")[2].lower(), name)
