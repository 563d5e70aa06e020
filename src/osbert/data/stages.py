"""Stages of pretraining tasks: each step trains one objective, drawn by a curriculum (ERNIE 2.0, Sun et al. 2020)."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from osbert.data.example import Places
from osbert.data.loader import PretrainingLoader, Purpose, seed_of
from osbert.data.step import Cursor, Pace, RankPart, Step

if TYPE_CHECKING:
    from osbert.data.batch import Batch

Curriculum = Literal["together", "at_once", "one_by_one", "continual"]
"""How steps are divided among objectives: every step trains all of them; or each trains one, drawn from all of them, in
the order in which they are named, or from those of its stage."""


def stage_steps(curriculum: Curriculum, tasks: int, steps: int) -> list[list[int]]:
    """Return the steps of each task in each stage; every task has `steps` / `tasks` steps in all, to rounding.

    continual (section 3.1, "sequential multi-task learning"): stage k brings in task k, and the earlier ones go on. A
    task has 1 / (tasks + 1) of its steps in each stage after its first, where it has the rest. In the paper's example
    four tasks have 50,000 steps each:

    >>> stage_steps("continual", 4, 200)
    [[20, 0, 0, 0], [10, 30, 0, 0], [10, 10, 40, 0], [10, 10, 10, 50]]
    >>> stage_steps("one_by_one", 2, 10), stage_steps("at_once", 2, 10)
    ([[5, 0], [0, 5]], [[5, 5]])
    """
    if not steps:
        return []
    each = [steps * (task + 1) // tasks - steps * task // tasks for task in range(tasks)]
    if curriculum == "at_once":
        return [each]
    if curriculum == "one_by_one":
        return [[task_steps * (task == stage) for task, task_steps in enumerate(each)] for stage in range(tasks)]
    later = [task_steps // (tasks + 1) for task_steps in each]
    first = [task_steps - (tasks - 1 - task) * later[task] for task, task_steps in enumerate(each)]
    return [
        [0 if task > stage else first[task] if task == stage else later[task] for task in range(tasks)]
        for stage in range(tasks)
    ]


class Stages:
    """The steps of one loader for each objective, in the order of a curriculum.

    The order is a function of the seed. A cursor holds the position of every loader, so it is enough to resume. All
    loaders read the same text in the same order of blocks and hold the same part out. With a table of tasks in the
    model, batches hold the number of their objective (models/transformer/embeddings.py).
    """

    def __init__(self, whole: PretrainingLoader, curriculum: Curriculum, *, segments: int = 0) -> None:
        """Divide a loader of several objectives. `segments`: of the model, if it has a table of tasks; else 0."""
        self.curriculum, self.segments = curriculum, segments
        self.settings, self.notices = whole.settings, whole.notices
        self.held = whole.held
        self.loaders: dict[str, PretrainingLoader] = {}
        for name, objective in whole.objectives.items():
            self.loaders[name] = copy.copy(whole)
            self.loaders[name].objectives = {name: objective}
        self.pace = whole.pace

    @property
    def pace(self) -> Pace:
        """The pace of the run. Setting it sets those of the loaders, each in steps of its own objective."""
        return self._pace

    @pace.setter
    def pace(self, pace: Pace) -> None:
        self._pace, self.order = pace, self._order(pace.planned)
        paces = [Pace(planned=planned) for planned in self._counts(Pace(planned=pace.planned), pace.planned)]
        for number, (step, steps) in enumerate(pace.corrections, start=1):
            # The counts as of this correction: a later one changes nothing before its own step.
            known = replace(pace, corrections=pace.corrections[:number])
            paces = [
                # An objective that has no steps left has none to correct.
                replace(task_pace, corrections=(*task_pace.corrections, (done, last))) if last > done else task_pace
                for task_pace, done, last in zip(
                    paces, self._counts(known, step), self._counts(known, steps), strict=True
                )
            ]
        for loader, task_pace in zip(self.loaders.values(), paces, strict=True):
            # An objective that changes in the course of a run goes by its own steps.
            loader.pace = task_pace

    def _order(self, planned: int) -> Places:
        """Return the objective of each planned step, by its number."""
        rng = np.random.Generator(np.random.PCG64(seed_of(self.settings.seed, Purpose.REPETITION)))
        # Without a number of steps, as in a speed test, all objectives take turns.
        counts = stage_steps(self.curriculum, len(self.loaders), planned) or [[1] * len(self.loaders)]
        return np.concatenate([rng.permutation(np.repeat(np.arange(len(stage)), stage)) for stage in counts])

    def _counts(self, pace: Pace, steps: int) -> list[int]:
        """Return how many of the first `steps` steps train each objective."""
        positions = pace.places(steps) if pace.planned else np.arange(steps) % len(self.order)
        drawn = self.order[np.minimum(positions.astype(np.int64), len(self.order) - 1)]
        return np.bincount(drawn, minlength=len(self.loaders)).tolist()

    def require_sequences(self) -> list[str]:
        """Return a remark on each objective that learns little from the corpus.

        Raises UserError if an objective can make no sequence of it: its stage may begin after hours.
        """
        return [remark for loader in self.loaders.values() for remark in loader.require_sequences()]

    def part(self, rank_part: RankPart) -> Stages:
        """Return a loader of the same steps that makes only one process's examples."""
        stages = copy.copy(self)
        stages.loaders = {name: loader.part(rank_part) for name, loader in self.loaders.items()}
        return stages

    def objective(self, step: int) -> int:
        """Return the number of the objective that step `step`, counted from 0, trains."""
        position = int(self.pace.place(step)) if self.pace.planned else step % len(self.order)
        return int(self.order[min(position, len(self.order) - 1)])

    def steps(self, cursor: Cursor) -> Iterator[Step]:
        """Yield the steps from `cursor` on, without end."""
        cursors = [Cursor(epoch=e, pool=p, index=i, step=s) for e, p, i, s in cursor.places]
        if not cursors:
            past = self._counts(self.pace, cursor.step)
            cursors = [Cursor(epoch=cursor.epoch, step=count) for count in past]
        for loader in self.loaders.values():
            loader.notices = self.notices
        # A loader lays its first pool out when its first step is made, so those of later stages cost nothing before.
        streams = [
            loader.steps(loader_cursor) for loader, loader_cursor in zip(self.loaders.values(), cursors, strict=True)
        ]
        for step in itertools.count(cursor.step):
            number = self.objective(step)
            loader_step = next(streams[number])
            cursors[number] = loader_step.cursor
            after = replace(
                loader_step.cursor,
                step=step + 1,
                places=tuple(
                    (loader_cursor.epoch, loader_cursor.pool, loader_cursor.index, loader_cursor.step)
                    for loader_cursor in cursors
                ),
            )
            yield Step(batches=[self.mark_objective(batch, number) for batch in loader_step.batches], cursor=after)

    def make_held_out(self) -> list[Batch]:
        """Return this process's part of the held-out batches of every objective."""
        batch_groups = enumerate(loader.make_held_out() for loader in self.loaders.values())
        return [self.mark_objective(batch, number) for number, batches in batch_groups for batch in batches]

    def mark_objective(self, batch: Batch, number: int) -> Batch:
        """Return the batch with the number of its objective in its segments, if the model has a table of tasks."""
        moved = number * self.segments
        return batch.replace_columns(segments=batch.segments + moved) if moved else batch


def first_steps(loader: PretrainingLoader | Stages, steps: int = 1) -> list[list[Batch]]:
    """Return the batches of the first steps of each objective of a curriculum; else those of the first steps.

    They are made in this process, whatever `workers` is.
    """
    parts = [*loader.loaders.values()] if isinstance(loader, Stages) else [loader]
    batch_lists = []
    for number, part in enumerate(parts):
        alone = copy.copy(part)
        alone.settings = replace(part.settings, workers=0)
        batches = [batch for step in itertools.islice(alone.steps(Cursor()), steps) for batch in step.batches]
        batch_lists.append(
            [loader.mark_objective(batch, number) for batch in batches] if isinstance(loader, Stages) else batches
        )
    return batch_lists
