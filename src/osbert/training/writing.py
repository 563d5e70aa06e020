"""Writes checkpoints: while training waits, in a thread from a copy of the state, or each process its own shards."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from osbert.full_disk import reason
from osbert.training import memory
from osbert.training.checkpoint import Checkpoint, Checkpoints, WriteError, shard_facts
from osbert.training.distributed import Group

T = TypeVar("T")


class CheckpointWriter:
    """Writes checkpoints, in the background if that is chosen: one at a time, and in their order.

    For the background a checkpoint is copied to the memory of the CPU, and a thread writes the copy. safetensors and
    hashlib release Python's global lock while they work, so training takes its steps meanwhile. The copy needs as much
    memory as the checkpoint has bytes: 12 a parameter with AdamW. It is kept and written over by the next one, because
    new memory costs several times as long as copying.
    """

    def __init__(self, checkpoints: Checkpoints, notices: list[str]) -> None:
        """Write to `checkpoints`; failures become `notices`. No thread is started before the first write."""
        self.checkpoints = checkpoints
        self.notices = notices
        self.copies: dict[str, Tensor] = {}
        self.pool: ThreadPoolExecutor | None = None
        self.running: tuple[int, Future[list[str]]] | None = None
        """Step and result of the write that has begun and was not waited for."""

    def write(self, checkpoint: Checkpoint) -> bool:
        """Write a checkpoint. If that fails, add a notice, keep the earlier ones, and return False."""
        self.settle()
        messages = self._attempt(checkpoint.step, lambda: self.checkpoints.save(checkpoint))
        self.notices += messages or []
        return messages is not None

    def begin(self, checkpoint: Checkpoint) -> bool:
        """Copy a checkpoint and begin to write it, after the one before has been written.

        Return False only if it was written at once, for want of memory, and that failed.
        """
        self.settle()
        try:
            copy = self._copy_checkpoint(checkpoint)
        except (RuntimeError, MemoryError) as error:
            if not memory.ran_out(error):
                raise
            self.copies.clear()
            self.notices.append(
                f"Memory does not suffice for a copy of the state ({memory.first_line(error)}): "
                "training waits until the "
                f"checkpoint of step {checkpoint.step:,} is written."
            )
            return self.write(checkpoint)
        self.pool = self.pool or ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self.running = checkpoint.step, self.pool.submit(self.checkpoints.save, copy)
        return True

    def write_shards(self, group: Group, step: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> bool:
        """Write a checkpoint of which each process has shards; return whether that succeeded. All processes call."""
        from osbert.training.shard_files import write_shards  # which imports what only sharded runs need

        self.settle()
        folder = group.first(partial(self._attempt, step, lambda: self.checkpoints.begin(step)))
        if folder is None:
            return False
        facts, failure = {}, ""
        try:
            facts = shard_facts(write_shards(folder, group.rank, tensors))
        except OSError as error:
            failure = reason(error, folder)
        parts = group.gather((facts, failure), "the shards of a checkpoint")
        if failures := [failure for _, failure in parts if failure]:
            if not group.rank:
                self.checkpoints.abandon(step)
                self._note_failure(step, WriteError(f"{self.checkpoints.path(step)}: {failures[0]}"))
            return False
        joined = {name: file_facts for part, _ in parts for name, file_facts in part.items()}
        done = group.first(partial(self._attempt, step, lambda: self.checkpoints.complete(step, state, joined)))
        if done is None:
            return False
        self.notices += [] if group.rank else done
        return True

    def _attempt(self, step: int, action: Callable[[], T]) -> T | None:
        """Return the result of a part of writing; if it fails, add a notice and return None."""
        try:
            return action()
        except WriteError as error:
            self._note_failure(step, error)
            return None

    def settle(self) -> None:
        """Wait for the checkpoint that is being written in the background, if any, and add its notices."""
        if self.running is None:
            return
        step, future = self.running
        error = future.exception()
        # Only after the wait: if Ctrl-C ends it, the write can be waited for again.
        self.running = None
        if isinstance(error, WriteError):
            self._note_failure(step, error)
        else:
            self.notices += future.result()

    def _note_failure(self, step: int, error: WriteError) -> None:
        last = max(self.checkpoints.steps(), default=None)
        fallback = "there is none before it" if last is None else f"the one of step {last:,} is kept"
        self.notices.append(f"The checkpoint of step {step:,} could not be written; {fallback}. {error}")

    def _copy_checkpoint(self, checkpoint: Checkpoint) -> Checkpoint:
        return Checkpoint(
            step=checkpoint.step,
            weights=self._copies(checkpoint.weights, "weights"),
            optimizer=self._copies(checkpoint.optimizer, "optimizer"),
            # Through JSON, because training changes the lists and dicts within.
            state=json.loads(json.dumps(checkpoint.state)),
        )

    def _copies(self, tensors: Mapping[str, Tensor], kind: str) -> dict[str, Tensor]:
        """Copy tensors of any device into the CPU tensors of the copy before, if shape and type are equal."""
        copies = {}
        for name, tensor in tensors.items():
            copy = self.copies.get(f"{kind}/{name}")
            if copy is None or copy.shape != tensor.shape or copy.dtype != tensor.dtype:
                copy = self.copies[f"{kind}/{name}"] = torch.empty(tensor.shape, dtype=tensor.dtype)
            copies[name] = copy.copy_(tensor)
        return copies
