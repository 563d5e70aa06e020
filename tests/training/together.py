"""What test_distributed.py lets two processes do together; run twice, with a folder that it has prepared."""

from __future__ import annotations

import itertools
import json
import operator
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from osbert.commands.pretrain import pretrain
from osbert.data.batch import Batch, BatchTarget, collate
from osbert.data.example import Example
from osbert.data.step import Cursor, Step
from osbert.errors import UserError
from osbert.models.contract import Loss
from osbert.training import distributed, parallel
from osbert.training.distributed import ALONE, ROOM, Group, PeerFailure, join_group
from osbert.training.gradients import Gradients
from osbert.training.optimizer import OptimizerSettings
from osbert.training.parallel import spread
from osbert.training.processor import choose
from osbert.training.progress import Progress
from osbert.training.settings import Spread, TrainingSettings
from osbert.training.trainer import Trainer

COUNTS = ((3, 1), (1, 2), (2, 0))
"""Batches of the first process and of the second in a step."""


class Learner(nn.Module):
    """Two layers, of which FSDP makes units and the first comes again on top, and two heads, one with few labels."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.table = nn.Embedding(11, 6)
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(2))
        self.heads = nn.ModuleDict({name: nn.Linear(6, 3) for name in ("left", "right")})

    def forward(self, batch: Batch) -> dict[str, Loss]:
        hidden = self.table(batch.ids)
        for layer in (*self.layers, self.layers[0]):
            hidden = torch.tanh(layer(hidden))
        losses = {}
        for name, target in batch.targets.items():
            scores = self.heads[name](hidden[target.index])
            total = functional.cross_entropy(scores, target.labels, reduction="sum")
            losses[name] = Loss(total=total, count=target.count, hits=(scores.argmax(-1) == target.labels).sum())
        return losses


def make_batch(number: int, *, sequences: int = 1) -> Batch:
    """Only each third batch has labels for the second objective."""
    rng = np.random.default_rng(number)
    lengths = [4 + number + place for place in range(sequences)]
    n = sum(lengths)
    batch = collate(
        [
            Example(ids=rng.integers(11, size=k), segments=np.zeros(k, np.int8), words=flags, special=flags)
            for k in lengths
            for flags in [np.zeros(k, np.bool_)]
        ]
    )
    names = ("left", "right") if number % 3 == 0 else ("left",)
    labels = {name: torch.from_numpy(rng.integers(3, size=n)) for name in names}
    targets = {
        name: BatchTarget(labels=label, index=torch.arange(n), per_token=True, count=float(n))
        for name, label in labels.items()
    }
    return replace(batch, targets=targets)


def summed(group: Group, kind: Spread, batches: list[Batch]) -> tuple[dict[str, torch.Tensor], dict[str, object]]:
    """Return the gradients of a step, whole, and the means of its losses."""
    learner, processor = Learner(), choose("cpu", "fp32")
    spreading = spread(learner, group, kind, processor.device)
    gradients = Gradients(learner, processor, parallel=spreading, group=group, seed=0)
    means, _ = gradients.add(batches, number=0).read(group)
    assert means == gradients.measure(batches).read(group)[0]
    grads = {name: weight.grad for name, weight in learner.named_parameters() if weight.grad is not None}
    return {name: spreading.whole(grad) for name, grad in grads.items()}, means


def gradients_are_one_process_s(group: Group) -> None:
    """However uneven the processes' parts are, and where one has no labels or no batch at all."""
    for counts in COUNTS:
        batches = [make_batch(number) for number in range(sum(counts))]
        mine = batches[: counts[0]] if group.rank == 0 else batches[counts[0] :]
        expected, expected_means = summed(ALONE, "ddp", batches)
        for kind in ("ddp", "fsdp"):
            found, means = summed(group, kind, mine)
            assert means.keys() == expected_means.keys()
            for name, mean in means.items():
                torch.testing.assert_close(mean.loss, expected_means[name].loss)
                assert mean.accuracy == expected_means[name].accuracy
            assert found.keys() == expected.keys()
            if not group.rank:
                torch.testing.assert_close(found, expected)


def words_travel(group: Group) -> None:
    for size in (0, ROOM, 10 * ROOM):
        assert group.gather("x" * size * group.rank, "letters") == ["", "x" * size]
    assert group.first(lambda: os.getpid()) == group.gather(os.getpid(), "processes")[0]


def failures_end_all(group: Group) -> None:
    for failing in range(group.size):
        ended: list[str] = []
        try:
            group.each(partial(operator.truediv, 1, int(group.rank != failing)))
        except (ZeroDivisionError, PeerFailure) as error:
            ended = [type(error).__name__]
        assert ended == ["ZeroDivisionError" if group.rank == failing else "PeerFailure"]


def words_are_not_taken_for_others(group: Group) -> None:
    try:
        group.gather(1, f"what {group.rank} means")
    except UserError as error:
        assert "process 0 what 0 means, process 1 what 1 means" in str(error)
    else:
        raise AssertionError("the words were mixed up")
    for failing in range(group.size):  # in one process an action fails, the other waits for a word
        try:
            if group.rank == failing:
                group.each(partial(operator.truediv, 1, 0))
            else:
                group.gather(1, "something")
        except (ZeroDivisionError, PeerFailure) as error:
            assert isinstance(error, ZeroDivisionError) == (group.rank == failing)
        else:
            raise AssertionError("nobody was told")


class PartLoader:
    """Steps of which each process has one batch of four sequences."""

    def __init__(self, group: Group) -> None:
        self.group = group

    def steps(self, cursor: Cursor) -> Iterator[Step]:
        for index in itertools.count(cursor.index):
            batch = make_batch(1 + (index + self.group.rank) % 3, sequences=4)
            yield Step(batches=[batch], cursor=replace(cursor, index=index + 1))


def shorten(trainer: Trainer, tokens: int, *, backward: bool) -> None:
    """From now on memory runs out in the second process on passes over more tokens."""

    def fail(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    def watch(module: nn.Module, inputs: object, output: torch.Tensor) -> None:
        if trainer.group.rank and len(output) > tokens:
            if backward and output.requires_grad:
                output.register_hook(fail)  # the gradients of the layers above have been sent by then
            else:
                fail()

    trainer.learner.table.register_forward_hook(watch)


def memory_that_runs_out_in_one_halves_the_passes_of_all(group: Group, folder: Path) -> None:
    settings = TrainingSettings(steps=4, checkpoint_every=0, device="cpu", precision="fp32")
    trained = []
    for tokens, backward in ((99, False), (14, False), (14, True)):
        trainer = Trainer(Learner(), PartLoader(group), OptimizerSettings(), settings, folder / "short", group)
        shorten(trainer, tokens, backward=backward)
        losses = [progress.losses for progress in trainer.run()]
        means = trainer.evaluate([make_batch(3, sequences=4)])
        assert set(group.gather(trainer.counters.halvings, "halvings")) == {0 if tokens == 99 else 2}
        assert len(trainer.notices) == trainer.counters.halvings
        assert all("(in process 1: CUDA out of memory.)" in notice for notice in trainer.notices)
        trained.append((trainer.learner.state_dict(), losses, means["left"].loss, means["right"].loss))
    for other in trained[1:]:
        torch.testing.assert_close(other, trained[0], rtol=1e-4, atol=1e-6)
    shorten(trainer, 1, backward=False)
    try:
        trainer.evaluate([make_batch(3, sequences=4)])
    except (UserError, PeerFailure) as error:
        assert isinstance(error, UserError) == (group.rank == 0)
    assert group.first(trainer.checkpoints.steps) == [4]


def run(folder: Path, out: str, *settings: str) -> str:
    """Pretrain; return what ended it, "stopped" for a run that SIGTERM stopped in good order."""
    try:
        pretrain(str(folder / "tiny.toml"), *settings, corpus=folder / "corpus", out=folder / out)
    except (UserError, SystemExit) as error:
        return "stopped" if isinstance(error, SystemExit) and error.code == 143 else type(error).__name__
    return ""


def signal_in_step(number: int, *, rank: int) -> None:
    """From now on that process gets SIGTERM while it takes that step."""
    advance = Trainer._advance

    def advance_and_signal(trainer: Trainer, step: Step, started: float) -> Progress:
        if (trainer.step + 1, trainer.group.rank) == (number, rank):
            os.kill(os.getpid(), signal.SIGTERM)
        return advance(trainer, step, started)

    Trainer._advance = advance_and_signal


def main(folder: Path) -> None:
    with join_group() as group:
        assert group.size == 2
        words_travel(group)
        failures_end_all(group)
        words_are_not_taken_for_others(group)
        gradients_are_one_process_s(group)
        with patch.object(parallel, "BUCKET", 64):
            memory_that_runs_out_in_one_halves_the_passes_of_all(group, folder)
        distributed.join_group = lambda: nullcontext(group)  # all that follows in the one group
        ended = {"refused": run(folder, "refused", "--layers", "two")}
        ended["fsdp"] = run(folder, "fsdp", "--parallel", "fsdp")
        ended["muon"] = run(folder, "fsdp-muon", "--parallel", "fsdp", "--method", "muon")
        for kind in ("ddp", "fsdp"):
            replaced = ("--parallel", kind, "--objectives", "replaced")
            ended[f"{kind}-replaced"] = run(folder, f"{kind}-replaced", *replaced)
        signal_in_step(3, rank=1)
        ended["stopped"] = run(folder, "stopped")
    (folder / f"ended-{group.rank}.json").write_text(json.dumps(ended))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
