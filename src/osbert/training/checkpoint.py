"""Checkpoints that survive a kill at any moment: written to another name, synced, hashed, and only then renamed.

Written while training waits, in a thread from a copy of the state, or each process its own shards.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from osbert.errors import UserError
from osbert.files import describe_failure, file_sha256, sync
from osbert.guarded import read_json, require_regular
from osbert.training import memory
from osbert.training.distributed import Group

CHECKPOINTS = "checkpoints"
"""Name of the folder of checkpoints in a run's folder."""
WEIGHTS = "weights.safetensors"
OPTIMIZER = "optimizer.safetensors"
STATE = "state.json"
SHARDS = "shards"
"""Subfolder of a checkpoint of sharded tensors, in place of the two files: a file from each process."""
MANIFEST = "manifest.json"
UNFINISHED = ".unfinished"
"""Suffix of the name of a folder that is being written or removed."""
REPLACED = ".replaced"
"""Suffix of the name of a checkpoint that is being replaced by another one of the same step."""
DAMAGED = "damaged-"
"""Prefix of the name of a damaged checkpoint."""


WEIGHT, MOMENT = "weights/", "optimizer/"
"""Prefixes of the names of sharded tensors."""
Facts = dict[str, Any]
"""Size and hash of a file, for the manifest."""
T = TypeVar("T")


class WriteError(Exception):
    """A checkpoint could not be written. Earlier checkpoints are untouched. The message says why."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """Everything that a run needs to resume: `weights` and `optimizer` tensors by name, and JSON values in `state`."""

    step: int
    weights: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]
    state: Mapping[str, Any]


class Checkpoints:
    """The folder checkpoints/ of a run: step-N/ for each of the last `keep` checkpoints."""

    def __init__(self, folder: Path, *, keep: int = 2) -> None:
        """Use `folder`, which need not exist yet. Keep the newest `keep` checkpoints."""
        self.folder = folder
        self.keep = keep
        self.unremoved: set[int] = set()
        """Steps of old checkpoints that could not be removed and have been reported."""

    def steps(self) -> list[int]:
        """Return the steps that have a checkpoint, valid or damaged, oldest first."""
        if not self.folder.is_dir():
            return []
        matches = (re.fullmatch(r"step-(\d+)", entry.name) for entry in self.folder.iterdir())
        return sorted(int(match.group(1)) for match in matches if match)

    def path(self, step: int) -> Path:
        """Return the folder of the checkpoint of a step."""
        return self.folder / f"step-{step}"

    def tidy(self) -> None:
        """Remove folders that a killed process left incomplete, and restore the checkpoint that it was replacing.

        Call it only with the lock of the run.
        """
        # First put back, so that the replaced checkpoint survives if its successor was not renamed yet.
        for entry in self.folder.glob(f"step-*{REPLACED}"):
            self._put_back(entry)
        for entry in self.folder.glob(f"*{UNFINISHED}"):
            shutil.rmtree(entry, ignore_errors=True)

    def save(self, checkpoint: Checkpoint) -> list[str]:
        """Write a checkpoint, then remove the oldest beyond `keep`. Return a message for each that cannot be removed.

        A checkpoint of the same step is replaced. Raises WriteError if the new one cannot be written, for example on
        a full disk; the old ones are then kept.
        """
        with self._writing(checkpoint.step) as aside:
            self._begin(aside)
            for name, tensors in ((WEIGHTS, checkpoint.weights), (OPTIMIZER, checkpoint.optimizer)):
                save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, aside / name)
            facts = {name: _facts(aside / name) for name in (WEIGHTS, OPTIMIZER)}
        return self.complete(checkpoint.step, checkpoint.state, facts)

    def begin(self, step: int) -> Path:
        """Create the folder into which the processes write their shards. Raises WriteError."""
        with self._writing(step) as aside:
            self._begin(aside)
            (aside / SHARDS).mkdir()
        return aside / SHARDS

    def complete(self, step: int, state: Mapping[str, Any], facts: Mapping[str, Facts]) -> list[str]:
        """Give a checkpoint its name, after its tensors are on the disk; return messages as `save` does.

        `facts`: of the files of tensors, by their paths within the checkpoint. Raises WriteError.
        """
        with self._writing(step) as aside:
            _seal(aside, {"step": step, **state}, facts)
            # Only now does the name step-N exist: a kill before leaves just an unfinished folder.
            self._give_name(aside, self.path(step))
        # Old checkpoints go only after the new one is complete.
        return [message for step in self.steps()[: -self.keep] if (message := self._remove_old(step))]

    def abandon(self, step: int) -> None:
        """Remove what was written of a checkpoint that cannot be completed."""
        shutil.rmtree(self._aside(step), ignore_errors=True)

    def newest(self) -> tuple[int | None, list[str]]:
        """Return the newest step with a valid checkpoint, None if there is none, and a message for each damaged one.

        A damaged checkpoint is renamed, so that it does not count towards `keep`.

        Raises UserError if all checkpoints are damaged.
        """
        damages: list[str] = []
        for step in reversed(self.steps()):
            path = self.path(step)
            damage = next(_damages(path), None)
            if damage is None:
                return step, damages
            aside = self.folder / f"{DAMAGED}{path.name}"
            shutil.rmtree(aside, ignore_errors=True)
            path.rename(aside)
            damages.append(f"The checkpoint {path} is damaged ({damage}); it is now {aside.name}.")
        if damages:
            advice = f"To start over from nothing, remove {self.folder}."
            raise UserError(
                "\n".join([*damages, f"No checkpoint is left that can be used. {advice}"]), code="damaged-file"
            )
        return None, []

    def read(self, step: int) -> Checkpoint:
        """Load the checkpoint of a step that `newest` has verified; its tensors in full, also if they were sharded."""
        path, state = self.path(step), self.state(step)
        if (shards := self.shards(step)) is None:
            weights, optimizer = load_file(path / WEIGHTS), load_file(path / OPTIMIZER)
        else:
            from osbert.training.sharding import read_whole  # which imports what only sharded runs need

            tensors = read_whole(shards)
            weights, optimizer = (below(prefix, tensors) for prefix in (WEIGHT, MOMENT))
        return Checkpoint(step=state.pop("step"), weights=weights, optimizer=optimizer, state=state)

    def state(self, step: int) -> dict[str, Any]:
        """Return the JSON values of a checkpoint that `newest` has verified, with its "step"."""
        state: dict[str, Any] = read_json(self.path(step) / STATE)
        return state

    def shards(self, step: int) -> Path | None:
        """Return the folder of a checkpoint's shards, None if its tensors are in full."""
        folder = self.path(step) / SHARDS
        return folder if folder.is_dir() else None

    def _aside(self, step: int) -> Path:
        """Return the folder in which the checkpoint of a step is written."""
        path = self.path(step)
        return path.with_name(f"{path.name}{UNFINISHED}")

    def _begin(self, aside: Path) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()

    @contextmanager
    def _writing(self, step: int) -> Iterator[Path]:
        """Yield the folder in which a checkpoint is written; after an error remove it and raise WriteError."""
        aside = self._aside(step)
        try:
            yield aside
        except (OSError, SafetensorError) as error:
            shutil.rmtree(aside, ignore_errors=True)
            raise WriteError(f"{self.path(step)}: {describe_failure(error, self.folder)}") from error

    def _give_name(self, aside: Path, path: Path) -> None:
        """Rename a written checkpoint. At every moment it or the one that it replaces exists and is complete."""
        before = path.with_name(f"{path.name}{REPLACED}")
        if path.exists():
            shutil.rmtree(before, ignore_errors=True)
            path.rename(before)
        try:
            # A rename is atomic, but not durable until the folder is synced.
            aside.rename(path)
            sync(self.folder)
        finally:
            if before.exists():
                self._put_back(before)

    def _put_back(self, before: Path) -> None:
        """Restore the name of a checkpoint that was being replaced, or remove it if the new one has that name."""
        path = before.with_name(before.name.removesuffix(REPLACED))
        if path.exists():
            shutil.rmtree(before, ignore_errors=True)
        else:
            before.rename(path)

    def _remove_old(self, step: int) -> str:
        """Remove an old checkpoint. If that fails, return a message the first time; it is no error."""
        path = self.path(step)
        try:
            # Renamed first, so that a kill in between leaves no damaged one.
            aside = self.folder / f"removed-{path.name}{UNFINISHED}"
            shutil.rmtree(aside, ignore_errors=True)
            path.rename(aside)
            shutil.rmtree(aside, ignore_errors=True)
        except OSError as error:
            if step not in self.unremoved:
                self.unremoved.add(step)
                return f"The old checkpoint {path} could not be removed ({error.strerror}); the new one is safe."
        return ""


def _seal(folder: Path, state: Mapping[str, Any], facts: Mapping[str, Facts]) -> None:
    """Write the state and, last, the manifest of the files on disk; flush all of them."""
    (folder / STATE).write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")
    manifest = {**facts, STATE: _facts(folder / STATE)}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    for name in (*manifest, MANIFEST):
        # safetensors' files can be read by their owner alone. `files.replacing` would set the umask of the whole
        # process for a moment, and this may be a thread; a file that Python has written has the right permissions.
        shutil.copymode(folder / MANIFEST, folder / name)
        sync(folder / name)
    sync(folder)


def below(prefix: str, tensors: Mapping[str, T]) -> dict[str, T]:
    """Return the tensors, or facts on them, whose names begin with `prefix`, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _facts(path: Path) -> Facts:
    require_regular(path)
    return {"bytes": path.stat().st_size, "sha256": file_sha256(path)}


def _damages(folder: Path) -> Iterator[str]:
    """Yield a message for each file of a checkpoint that is missing or differs from the manifest."""
    try:
        manifest = read_json(folder / MANIFEST)
        expected = {name: dict(facts) for name, facts in manifest.items()}
        sharded = any(name.startswith(f"{SHARDS}/") for name in expected)
        if missing := {STATE, *(() if sharded else (WEIGHTS, OPTIMIZER))} - {*expected}:
            raise KeyError(min(missing))
    except FileNotFoundError:
        yield f"{MANIFEST} is missing"
        return
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        yield f"{MANIFEST} cannot be read"
        return
    for name, facts in expected.items():
        try:
            actual_facts = _facts(folder / name)
        except FileNotFoundError:
            yield f"{name} is missing"
        except OSError as error:
            yield f"{name} cannot be read: {error.strerror}"
        else:
            # A size is easier to understand than a hash, so it is reported first.
            if actual_facts["bytes"] != facts.get("bytes"):
                yield f"{name} has {actual_facts['bytes']} bytes instead of {facts.get('bytes')}"
            elif actual_facts != facts:
                yield f"{name} has another content than was written"


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
            copy = Checkpoint(
                step=checkpoint.step,
                weights=self._copies(checkpoint.weights, "weights"),
                optimizer=self._copies(checkpoint.optimizer, "optimizer"),
                # Through JSON, because training changes the lists and dicts within.
                state=json.loads(json.dumps(checkpoint.state)),
            )
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
        from osbert.training.sharding import write_shards  # which imports what only sharded runs need

        self.settle()
        folder = group.first(partial(self._attempt, step, lambda: self.checkpoints.begin(step)))
        if folder is None:
            return False
        facts, failure = {}, ""
        try:
            facts = {f"{SHARDS}/{path.name}": _facts(path) for path in write_shards(folder, group.rank, tensors)}
        except OSError as error:
            failure = describe_failure(error, folder)
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

    def _copies(self, tensors: Mapping[str, Tensor], kind: str) -> dict[str, Tensor]:
        """Copy tensors of any device into the CPU tensors of the copy before, if shape and type are equal."""
        copies = {}
        for name, tensor in tensors.items():
            copy = self.copies.get(f"{kind}/{name}")
            if copy is None or copy.shape != tensor.shape or copy.dtype != tensor.dtype:
                copy = self.copies[f"{kind}/{name}"] = torch.empty(tensor.shape, dtype=tensor.dtype)
            copies[name] = copy.copy_(tensor)
        return copies
