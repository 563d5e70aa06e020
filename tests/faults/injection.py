"""The faults that a process does to itself, at a moment that is named: the third write, step 7, the fifth micro-batch.

A moment is one change to the disk below a folder, counted from 1: a file opened for writing, renamed, removed or
forced to disk, tensors written. A line of metrics is one too, so that with a line at each step steps are counted too.
"""

from __future__ import annotations

import errno
import itertools
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Action = Callable[[str, str], None]
"""What happens at a moment: takes the kind of change ("open", "os.rename", "fsync", "save", "saved") and the path."""

GROWING = ("open", "os.mkdir", "os.rename", "save")
"""Changes that a full disk refuses."""
SHRINKING = ("os.remove", "os.rmdir", "os.truncate", "os.chmod", "fsync", "saved")


def apply(fault: dict[str, Any]) -> None:
    """Prepare one fault, {"kind": ...} with its settings, or none: {}."""
    settings = dict(fault)
    kind = settings.pop("kind", None)
    if kind is not None:
        FAULTS[kind](**settings)


def at_moment(folder: str, act: Action) -> None:
    """Call `act` before each change to the disk below `folder`, and after tensors have been written."""

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            if not isinstance(arguments[2], int) or not arguments[2] & (os.O_WRONLY | os.O_RDWR):
                return
        elif event not in GROWING + SHRINKING:
            return
        path = arguments[0]
        path = os.fsdecode(path) if isinstance(path, (str, bytes, os.PathLike)) else ""
        relative = bool(path) and not os.path.isabs(path)  # within a folder that is being removed
        if relative or path.startswith(f"{folder}{os.sep}"):
            act(event, path)

    sys.addaudithook(look)
    sync = os.fsync

    def fsync(handle: int) -> None:
        path = os.readlink(f"/proc/self/fd/{handle}") if sys.platform == "linux" else folder
        if path == folder or path.startswith(f"{folder}{os.sep}"):
            act("fsync", path)
        sync(handle)

    os.fsync = fsync
    for module in [module for name, module in sys.modules.items() if name.startswith("osbert.")]:
        if hasattr(module, "save_file"):
            module.save_file = _watched(module.save_file, act)


def _watched(save: Callable[..., None], act: Action) -> Callable[..., None]:
    """The library that writes tensors is not Python's: its writing is seen from outside."""

    def save_file(tensors: Any, path: Any, *rest: Any, **named: Any) -> None:
        act("save", str(path))
        save(tensors, path, *rest, **named)
        act("saved", str(path))

    return save_file


def count(folder: str, log: str, twice: bool = False) -> None:
    """Write the kind and the path of each moment into a file, to learn how many there are; `twice`: see `send`."""
    if twice:
        _save_twice()
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    at_moment(folder, lambda kind, path: os.write(handle, f"{kind} {path}\n".encode()) and None)


def send(folder: str, number: int, signals: list[int], torn: bool = False, twice: bool = False) -> None:
    """Send the process signals at a moment.

    `torn`: half of a file of tensors is written by then. `twice`: each checkpoint is written and then written again, as
    when a run is stopped in its last look at the held-out text.
    """
    moments = itertools.count(1)
    if twice:
        _save_twice()

    def act(kind: str, path: str) -> None:
        if next(moments) != number:
            return
        if torn and kind == "saved":
            os.truncate(path, os.path.getsize(path) // 2)
        for one in signals:
            os.kill(os.getpid(), one)
        if signal.SIGKILL in signals:
            time.sleep(60)

    at_moment(folder, act)


def _save_twice() -> None:
    from osbert.training import trainer

    save = trainer.Trainer.save
    trainer.Trainer.save = lambda self, **named: save(self, **named) and save(self, **named)


def pause(folder: str, number: int, flag: str) -> None:
    """Stand still at a moment: a file appears, and the process goes on when it is removed."""
    moments = itertools.count(1)

    def act(kind: str, path: str) -> None:
        if next(moments) == number:
            Path(flag).touch()
            while os.path.exists(flag):
                time.sleep(0.002)

    at_moment(folder, act)


def full(folder: str, number: int, until: int) -> None:
    """The disk is full from one moment to before another."""
    moments = itertools.count(1)

    def act(kind: str, path: str) -> None:
        if not number <= next(moments) < until or kind not in GROWING:
            return
        if kind == "save":
            from safetensors import SafetensorError

            Path(path).write_bytes(b"half")
            raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")
        raise OSError(errno.ENOSPC, "No space left on device", path)

    at_moment(folder, act)


def clock(folder: str, number: int, seconds: float) -> None:
    """The wall clock jumps by some seconds at a moment."""
    moments, real, offset = itertools.count(1), time.time, [0.0]
    time.time = lambda: real() + offset[0]

    def act(kind: str, path: str) -> None:
        if next(moments) == number:
            offset[0] = seconds

    at_moment(folder, act)


def poison(steps: list[int], value: str) -> None:
    """The gradient of some steps, counted from 1, gets an entry that is no number: "nan", "inf" or "-inf"."""
    from osbert.training import trainer

    limit = trainer.limit

    def poisoned(weights: Any, clip: float) -> Any:
        if step() in steps:
            weights[0].grad.view(-1)[0] = float(value)
        return limit(weights, clip)

    step = _counted(trainer)
    trainer.limit = poisoned


def _counted(trainer: Any) -> Callable[[], int]:
    """Return a function that tells which step, from 1, is being taken."""
    steps = [0]
    advance = trainer.Trainer._advance

    def counting(self: Any, *rest: Any) -> Any:
        steps[0] = self.step + 1
        return advance(self, *rest)

    trainer.Trainer._advance = counting
    return lambda: steps[0]


def narrow(tokens: int) -> None:
    """Memory runs out in the middle of each pass over more than so many tokens."""
    import torch

    from osbert.models import contract as heads

    forward = heads.Learner.forward

    def limited(self: Any, batch: Any) -> Any:
        outcomes = forward(self, batch)
        if batch.tokens > tokens and torch.is_grad_enabled():
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return outcomes

    heads.Learner.forward = limited


def fail_pass() -> None:
    """This process fails in its first pass, while others wait for its gradients."""
    from osbert.errors import UserError
    from osbert.models import contract as heads

    def forward(*_: Any) -> Any:
        raise UserError("The speed cannot be tested here.")

    heads.Learner.forward = forward


def address_space(megabytes: int) -> None:
    """The system gives the process no more than so many megabytes beyond what it has now."""
    with open("/proc/self/statm", encoding="ascii") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + megabytes * 2**20, resource.RLIM_INFINITY))


def stop_look(signals: list[int]) -> None:
    """Send the process signals in the middle of its first look at the held-out text."""
    import torch

    from osbert.models import contract as heads

    forward, sent = heads.Learner.forward, []

    def watched(self: Any, batch: Any) -> Any:
        if not torch.is_grad_enabled() and not sent:
            sent.extend(signals)
            for one in signals:
                os.kill(os.getpid(), one)
        return forward(self, batch)

    heads.Learner.forward = watched


def stop_start(signals: list[int]) -> None:
    """Send the process signals while it reads its settings."""
    from osbert.runs.pretrain import settings as pretrain_settings

    read = pretrain_settings.read_settings

    def watched(*words: Any, **named: Any) -> Any:
        for one in signals:
            os.kill(os.getpid(), one)
        return read(*words, **named)

    pretrain_settings.read_settings = watched


def vanish(folder: str, number: int, paths: list[str], harm: str) -> None:
    """At a moment some files are removed or cut to half: another process or a failing disk did it."""
    moments = itertools.count(1)

    def act(kind: str, changed: str) -> None:
        if next(moments) == number:
            for path in paths:
                if harm == "remove":
                    os.remove(path)
                else:
                    os.truncate(path, os.path.getsize(path) // 2)

    at_moment(folder, act)


FAULTS: dict[str, Callable[..., None]] = {
    function.__name__: function
    for function in (
        *(count, send, pause, full, clock, poison, narrow, address_space),
        *(stop_look, stop_start, vanish, fail_pass),
    )
}
