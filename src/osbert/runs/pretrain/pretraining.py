"""Pretraining as a function: recipe, settings and corpus in; events during the run; a run folder at the end."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch

from osbert import recipe
from osbert.corpus.shards import open_corpus
from osbert.interop.opening import CAREFUL, Opening
from osbert.lock import claim, hold_lock
from osbert.remote import FolderForm, OutputFolder, output_folder
from osbert.runs.contract import Notice, Run, Watch, ignore
from osbert.runs.pretrain.first_weights import with_general
from osbert.runs.pretrain.passes import with_division, with_passes
from osbert.runs.pretrain.pretraining_run import MODELS, PretrainingRun
from osbert.runs.pretrain.settings import Method, PretrainPlan, find_method, read_plan
from osbert.training.checkpoint import CHECKPOINTS, MANIFEST
from osbert.training.distributed import Group, join_group
from osbert.training.interruption import Interruption, StopRequest
from osbert.training.run_folder import FACTS, SCRATCH, RunFolder
from osbert.training.tracking import NAME, read_lines

FORM = FolderForm(marker=FACTS, scratch=SCRATCH, left_there=(MODELS,), checkpoints=CHECKPOINTS, seal=MANIFEST)
"""A run folder on an object store."""


@dataclass(frozen=True, kw_only=True)
class PretrainRequest:
    """The arguments of a run; nothing is opened yet.

    `recipe`: a name or path, "" for that of `origin`. `settings`: laid over the recipe, by name. `origin`: the folder
    of an encoder that is trained further.
    """

    recipe: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    corpus: Path
    out: Path
    origin: Path | None = None
    general: Path | None = None
    """Folder of a corpus of general text, to measure how much the encoder forgets."""
    opening: Opening = CAREFUL
    begun: float = field(default_factory=time.monotonic)
    """Start of the time budget, by time.monotonic."""

    def plan(self) -> PretrainPlan:
        """Open and check all inputs. Raises UserError that lists everything wrong."""
        plan = read_plan(
            self.recipe, self.settings, corpus=self.corpus, out=self.out, origin=self.origin, opening=self.opening
        )
        if self.general is not None:
            plan = with_general(plan, open_corpus(self.general))
        return replace(plan, begun=self.begun)


@dataclass(frozen=True)
class EncoderRun(Run):
    """A finished pretraining run."""

    reported: ClassVar[tuple[str, ...]] = ("folder", "metrics")

    @property
    def metrics(self) -> dict[str, Any]:
        """The last value of every metric, such as "mlm.loss" and "held_out.mlm.loss"."""
        return {name: value for line in read_lines(self.local_folder / NAME) for name, value in line.items()}


def pretrain(request: PretrainRequest, *, watch: Watch = ignore, wish: Interruption | None = None) -> EncoderRun:
    """Pretrain to the end; the same request resumes a stopped run.

    `watch` gets Notice, TrainingStart, Progress after each step, and Measurement; in a group started by torchrun only
    in the first process. Raises UserError for errors of the user (in a group in one process, with PeerFailure in the
    others), and StopRequest if a `wish`, entered by the caller, has stopped the run after a checkpoint.
    KeyboardInterrupt is passed on, after a checkpoint of the last step if it was complete.
    """
    wish = wish or Interruption()  # one that was not entered catches no signal
    table = recipe.read(request.recipe) if request.recipe else {}
    method = find_method(table)
    form = FORM
    settings: Any = None
    if method:
        form = replace(FORM, scratch=(*FORM.scratch, *method.scratch))
        schema = method.schema(table)
        overlaid = recipe.override(dict(table), request.settings, schema=schema)
        settings = recipe.build(schema, overlaid, where=request.recipe)
    inputs = [folder for folder in (request.corpus, request.origin, request.general) if folder is not None]
    # The caller may be in inference mode, which records no gradients.
    with torch.inference_mode(False), join_group() as group, ExitStack() as held:
        if group.rank:
            watch = ignore
        open_output = partial(output_folder, request.out, form, inputs=inputs, warn=partial(_warn, watch))
        # In a group only the first process has the folder itself, the others its path alone.
        folder = group.each(lambda: None if group.rank else held.enter_context(open_output()))
        paths = group.gather(request.out if folder is None else folder.path, "the run folder")
        local = replace(request, out=paths[0])
        if folder is not None and folder.path != request.out:  # on an object store
            watch = partial(_follow, folder, watch)
        if method:
            complete = _run_method(method, local, settings, group, watch, wish)
        else:
            complete = _pretrain(local, group, watch, wish)
        if not complete:
            raise StopRequest
    return EncoderRun(request.out)


def _warn(watch: Watch, text: str) -> None:
    watch(Notice(text, warning=True))


def _follow(folder: OutputFolder, watch: Watch, event: Any) -> None:
    """Pass an event on, and upload the checkpoint that has been written since the last one."""
    watch(event)
    folder.follow()


def _pretrain(request: PretrainRequest, group: Group, watch: Watch, wish: Interruption) -> bool:
    """Pretrain to the end into a local folder; return False if a wish has stopped it."""
    with ExitStack() as held:
        try:
            with nullcontext() if group.size > 1 else wish.at_once():
                plan = group.each(request.plan)
                fresh = group.first(partial(_hold, request.out, held))
                plan = with_passes(with_division(plan, request.out, group), request.out, watch, group)
                if plan.settings.minutes:
                    from osbert.runs.pretrain.budget import within_minutes

                    plan = within_minutes(plan, request.out, watch, group)
        except StopRequest:
            watch(Notice("Stopped before the first step."))
            raise
        complete = PretrainingRun(plan, request.out, watch, wish, group).complete()
        if complete and fresh and plan.budget is not None:
            taken = (time.monotonic() - plan.begun) / 60
            watch(Notice(f"Planned {plan.budget['minutes']:g} minutes, took {taken:.3g}."))
    return complete


def _run_method(
    method: Method, request: PretrainRequest, settings: Any, group: Group, watch: Watch, wish: Interruption
) -> bool:
    """Pretrain by another method to the end, or resume the run in the folder; return False if a wish has stopped it."""
    method.check(request.recipe, processes=group.size, is_continued=request.origin is not None)
    with ExitStack() as held:
        _hold(request.out, held)
        return method.learn(
            Path(request.recipe).stem,
            settings,
            corpus=open_corpus(request.corpus),
            out=request.out,
            watch=watch,
            wish=wish,
            begun=request.begun,
        )


def _hold(out: Path, held: ExitStack) -> bool:
    """Lock the run folder; return whether no run was started there. Raises UserError if it holds other files."""
    held.enter_context(claim(out))
    held.enter_context(hold_lock(out))
    RunFolder(out).refuse_foreign()
    return not RunFolder(out).begun


def since_start() -> float:
    """Return the seconds since this process was started; the processor time so far if the system does not tell."""
    try:
        # Field 22 of /proc/self/stat: start time in clock ticks since boot. The process name, in parentheses, may
        # contain spaces, so fields are counted from the last ")", after which field 3 comes.
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, ValueError):
        return time.process_time()
