"""Pretraining as a function: a recipe, settings and a corpus in; events on the way; a run folder at the end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from osbert.corpus.shards import Corpus
from osbert.errors import UserError
from osbert.interop.opening import CAREFUL, Opening
from osbert.lock import claim, locked
from osbert.runs.contract import Notice, Run, Watch, ignore
from osbert.runs.pretrain.budget import time_taken, within_minutes
from osbert.runs.pretrain.run import PretrainingRun
from osbert.runs.pretrain.settings import PretrainPlan, read_plan
from osbert.runs.vectors.run import VectorRun
from osbert.runs.vectors.settings import MethodSettings, read_vector_settings
from osbert.training.distributed import joined
from osbert.training.interruption import Interruption, StopRequest
from osbert.training.run_folder import RunFolder
from osbert.training.tracking import NAME, read_lines


@dataclass(frozen=True, kw_only=True)
class PretrainRequest:
    """A run as the user wants it; nothing is opened yet.

    `recipe`: a name or path, "" for that of `origin`. `settings`: laid over the recipe, by name. `origin`: the folder
    of an encoder that is trained further.
    """

    recipe: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    corpus: Path
    out: Path
    origin: Path | None = None
    general: Path | None = None
    """The folder of a corpus of general text, by which it is measured what the encoder forgets."""
    opening: Opening = CAREFUL
    begun: float = field(default_factory=time.monotonic)
    """When the minutes that it may take begin to count, by the monotonic clock."""

    def plan(self) -> PretrainPlan:
        """Open and check all of it. Raises UserError that lists everything that is wrong."""
        plan = read_plan(
            self.recipe,
            self.settings,
            corpus=self.corpus,
            out=self.out,
            origin=self.origin,
            opening=self.opening,
        )
        return replace(plan, begun=self.begun, general=None if self.general is None else Corpus.open(self.general))


@dataclass(frozen=True)
class EncoderRun(Run):
    """A finished run that made an encoder."""

    reported: ClassVar[tuple[str, ...]] = ("folder", "metrics")

    @property
    def metrics(self) -> dict[str, Any]:
        """Return the last value of everything that was measured, such as "mlm.loss" and "held_out.mlm.loss"."""
        return {name: value for line in read_lines(self.folder / NAME) for name, value in line.items()}


def pretrain(request: PretrainRequest, *, watch: Watch = ignore, wish: Interruption | None = None) -> EncoderRun:
    """Pretrain to the end, from where the folder's run stands; the same request goes on with a run that was stopped.

    `watch` gets Notice, TrainingStart, Progress after each step, and Measurement; in a group that torchrun started, in
    the first process alone. Raises UserError for what the user can mend (in a group in one process, and PeerFailure in
    the others), and StopRequest when a `wish`, entered by the caller, has ended the run in good order.
    KeyboardInterrupt passes through: the last step is saved before, if it had come to its end.
    """
    wish = wish or Interruption()  # one that was not entered catches no signal
    if (vectors := read_vector_settings(request.recipe, request.settings)) is not None:
        return _learn_vectors(request, vectors, watch, wish)
    with joined() as group, ExitStack() as held:
        watch = ignore if group.rank else watch
        try:
            with nullcontext() if group.size > 1 else wish.at_once():
                plan = group.each(request.plan)
                fresh = group.first(partial(_hold, request.out, held))
                plan = within_minutes(plan, request.out, watch, group)
        except StopRequest:
            watch(Notice("Stopped before the first step."))
            raise
        complete = PretrainingRun(plan, request.out, watch, wish, group).complete()
        if fresh and (remark := time_taken(plan, request.out)):
            watch(Notice(remark))
    if not complete:
        raise StopRequest
    return EncoderRun(request.out)


def _learn_vectors(request: PretrainRequest, settings: MethodSettings, watch: Watch, wish: Interruption) -> EncoderRun:
    """Learn static vectors to the end, from where the folder's run stands."""
    with joined() as group:
        if group.size > 1 or request.origin is not None:
            raise UserError(
                f"The recipe {request.recipe} learns vectors from nothing, in processes of its own: leave out "
                f"{'--from' if request.origin else 'torchrun, and give --workers'}.",
                code="options-exclude-each-other",
            )
    with ExitStack() as held:
        _hold(request.out, held)
        run = VectorRun(
            name=Path(request.recipe).stem,
            settings=settings,
            corpus=Corpus.open(request.corpus),
            out=request.out,
            watch=watch,
            wish=wish,
        )
        if not run.complete():
            raise StopRequest
    return EncoderRun(request.out)


def _hold(out: Path, held: ExitStack) -> bool:
    """Hold the run folder; return whether no run has begun there. Raises UserError when it holds something else."""
    held.enter_context(claim(out))
    held.enter_context(locked(out))
    RunFolder(out).refuse_foreign()
    return not RunFolder(out).begun
