"""The group of processes that train together, started by torchrun, and the values that they exchange besides gradients.

Common decisions, such as the end of a run, are made by every process from the same gathered values, so that all decide
alike. A single process is a group of one, for which nothing here has a cost.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import NoReturn, TypeVar

import torch
from torch import distributed

from osbert.data.step import RankPart
from osbert.errors import UserError
from osbert.training.rendezvous import fresh_store, open_agent_store

T = TypeVar("T")

TIMEOUT = timedelta(minutes=10)
"""Longest time that a process waits for the others, including while the first one writes a checkpoint."""
ROOM = 1024
"""Bytes of a message in the first round; a longer message needs a second round."""
FAILED = "a failure"
"""The subject of a message from a process that cannot go on."""
SIGNS = ("gloo", "NCCL", "c10d", "Connection closed by peer", "Connection reset by peer")
"""Parts of the messages of torch's RuntimeErrors that mean that another process has ended."""


class PeerFailure(Exception):
    """Another process of the group has failed and reports the error; this one ends silently."""

    def __init__(self) -> None:
        """Set the message, for logs only."""
        super().__init__("another process of this run has failed, and says why")


@dataclass(frozen=True)
class Group:
    """The processes that train together. This is process `rank` of `size`."""

    rank: int = 0
    size: int = 1

    @property
    def part(self) -> RankPart:
        """Return this process's part of every step, for the loader."""
        return RankPart(self.rank, self.size)

    def gather(self, value: T, about: str) -> list[T]:
        """Return each process's value, ordered by rank. All processes must call; there is no GPU synchronisation.

        `about` describes the value, so that it cannot be confused with another. Raises PeerFailure if a process
        reports a failure instead (see `each`), and UserError if the subjects of the processes differ.
        """
        if self.size == 1:
            return [value]
        words = self._words(about, value)
        subjects = [subject for subject, _ in words]
        if FAILED in subjects:
            raise PeerFailure
        if len({*subjects}) > 1:
            exchanges = ", ".join(f"process {rank} {subject}" for rank, subject in enumerate(subjects))
            raise UserError(
                f"The processes of this run have come out of step: at one moment they exchange {exchanges}. Were all "
                "started with the same command and version? The same command goes on from the last checkpoint.",
                code="process-lost",
            )
        return [value for _, value in words]

    def _words(self, about: str, value: T) -> list[tuple[str, T]]:
        """Exchange (subject, value) among the processes, in as many rounds as the longest message needs."""
        data = pickle.dumps((about, value))
        room = ROOM
        try:
            while True:
                # all_gather needs tensors of the same size everywhere, and no process knows how long the others'
                # messages are.
                words = self._exchange(data, room)
                sizes = [int.from_bytes(word[:8], "little") for word in words]
                # 8 bytes hold the size. All processes see the same sizes, so all take another round or none does.
                if max(sizes) <= room - 8:
                    return [pickle.loads(word[8 : 8 + size]) for word, size in zip(words, sizes, strict=True)]
                room = max(sizes) + 8
        except RuntimeError as error:
            raise process_lost_error() from error

    def each(self, action: Callable[[], T]) -> T:
        """Run `action` in every process and return this process's own result.

        An exception is raised in its own process, in the lowest rank if several fail; the others raise PeerFailure. An
        action must not exchange values: a process that has failed would not answer.
        """
        if self.size == 1:
            return action()
        try:
            result = action()
        except Exception:
            with contextlib.suppress(UserError):  # if the others have gone, what happened here is what there is to say
                # Takes part in the gathering with which the processes without an error end `each`.
                first = [about for about, _ in self._words(FAILED, None)].index(FAILED)
                if first != self.rank:
                    raise PeerFailure from None
            raise
        self.gather(None, "whether all could go on")
        return result

    def first(self, action: Callable[[], T]) -> T:
        """Run `action` in the first process and return its result in all. Errors are handled as in `each`."""
        result = self.each(lambda: None if self.rank else action())
        return self.gather(result, "what the first has done")[0]  # type: ignore[return-value]

    def end(self, message: str, *, code: str) -> NoReturn:
        """End all processes; all must call. Only the first one reports the error.

        Raises UserError in the first process and PeerFailure in the others.
        """
        if self.rank:
            raise PeerFailure
        raise UserError(message, code=code)

    def _exchange(self, data: bytes, room: int) -> list[bytes]:
        """Return the first `room` bytes of each process's message, which begins with its size."""
        # The size comes first, so that a truncated message still announces how much room it needs.
        word = (len(data).to_bytes(8, "little") + data)[:room].ljust(room, b"\0")
        sent = torch.frombuffer(bytearray(word), dtype=torch.uint8)
        received = [torch.empty_like(sent) for _ in range(self.size)]
        distributed.all_gather(received, sent)
        return [tensor.numpy().tobytes() for tensor in received]


ALONE = Group()
"""The group of a process that trains alone."""


@contextlib.contextmanager
def join_group() -> Iterator[Group]:
    """Join the process group that torchrun started; without torchrun yield a group of one.

    CPU values are exchanged with gloo, GPU gradients with NCCL. Each process uses the GPU of its local rank. Raises
    UserError when the others cannot be reached, and when one of them goes while something is exchanged with it.
    A caller may have joined them already.
    """
    if distributed.is_initialized():
        yield _present()
        return
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or "MASTER_ADDR" not in os.environ:
        yield ALONE
        return
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    backend = "gloo"
    if int(os.environ.get("LOCAL_WORLD_SIZE", "1")) <= torch.cuda.device_count():
        torch.cuda.set_device(local_rank)
        backend = "cpu:gloo,cuda:nccl"
    try:
        _initialize(backend)
    except (RuntimeError, ValueError) as error:
        raise UserError(f"The other processes of this run cannot be reached: {error}", code="process-lost") from error
    try:
        yield _present()
    except RuntimeError as error:
        if not gone(error):
            raise
        raise process_lost_error() from error
    gc.collect()  # models in cycles hold the buffers of the group: torch may abort where they go last
    distributed.destroy_process_group()  # after an error others may be dead or waiting: then exiting is what ends it


def _present() -> Group:
    """Return the group that torch has initialised."""
    return Group(distributed.get_rank(), distributed.get_world_size())


def _initialize(backend: str) -> None:
    """Initialise torch's process group. torchrun may have kept the store of an earlier start (rendezvous.py)."""
    agent_store = open_agent_store(TIMEOUT)
    if agent_store is None:
        distributed.init_process_group(backend, timeout=TIMEOUT)
        return
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = fresh_store(agent_store, rank, size, TIMEOUT)
    distributed.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT)


def gone(error: BaseException) -> bool:
    """Return whether an error of a collective operation means that another process has ended."""
    if isinstance(error, torch.OutOfMemoryError):
        return False
    return isinstance(error, distributed.DistError) or (
        isinstance(error, RuntimeError) and any(sign in str(error) for sign in SIGNS)
    )


def process_lost_error() -> UserError:
    """Return the UserError for other processes that have ended or do not answer."""
    return UserError(
        "Another process of this run has ended or does not answer; its own error comes first. The same command goes on "
        "from the last checkpoint.",
        code="process-lost",
    )
