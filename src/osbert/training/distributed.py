"""The processes that train together, as torchrun started them, and the few words they exchange aside from gradients.

What is decided for all, such as the end of a run, is decided from values that every process has gathered, so that no
process can come to another decision. A process that trains alone is a group of one, for which nothing here costs
anything.
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

T = TypeVar("T")

TIMEOUT = timedelta(minutes=10)
"""How long a process waits for the others, a checkpoint of theirs included, before it gives up."""
ROOM = 1024
"""Bytes in which a word to the others travels at once; a longer one takes a second round."""
FAILED = "a failure"
"""What a word is about that says that its process cannot go on."""
SIGNS = ("gloo", "NCCL", "c10d", "Connection closed by peer", "Connection reset by peer")
"""Words in those errors of torch, of no type of their own, that mean that another process has gone."""


class PeerFailure(Exception):
    """Another process of the group has failed and says why; this one ends without a message of its own."""

    def __init__(self) -> None:
        """Say so."""
        super().__init__("another process of this run has failed, and says why")


@dataclass(frozen=True)
class Group:
    """The processes that train together, this one being process `rank` of `size`."""

    rank: int = 0
    size: int = 1

    @property
    def part(self) -> RankPart:
        """Return what this process takes of every step."""
        return RankPart(self.rank, self.size)

    def gathered(self, value: T, about: str) -> list[T]:
        """Return each process's value, in the order of ranks. All must call; nothing waits for a GPU.

        `about` says what the value is, so that it cannot be taken for another. Raises PeerFailure when a process says
        instead that it has failed (see `each`), and UserError when one speaks of something else.
        """
        if self.size == 1:
            return [value]
        words = self._words(about, value)
        subjects = [subject for subject, _ in words]
        if FAILED in subjects:
            raise PeerFailure
        if len({*subjects}) > 1:
            told = ", ".join(f"process {rank} {subject}" for rank, subject in enumerate(subjects))
            raise UserError(
                f"The processes of this run have come out of step: at one moment they exchange {told}. Were all "
                "started with the same command and version? The same command goes on from the last checkpoint.",
                code="process-lost",
            )
        return [value for _, value in words]

    def _words(self, about: str, value: T) -> list[tuple[str, T]]:
        """Return what each process says, and what it is about."""
        data = pickle.dumps((about, value))
        room = ROOM
        try:
            while True:
                words = self._exchanged(data, room)
                sizes = [int.from_bytes(word[:8], "little") for word in words]
                if max(sizes) <= room - 8:
                    return [pickle.loads(word[8 : 8 + size]) for word, size in zip(words, sizes, strict=True)]
                room = max(sizes) + 8
        except RuntimeError as error:
            raise lost() from error

    def each(self, action: Callable[[], T]) -> T:
        """Let every process do something and return its own result.

        What an action raises is raised in its process, the first of them if it fails in several; the others then leave
        without a word, by PeerFailure. In an action no words are exchanged: a process that has failed would not answer.
        """
        if self.size == 1:
            return action()
        try:
            result = action()
        except Exception:
            with contextlib.suppress(UserError):  # if the others have gone, what happened here is what there is to say
                first = [about for about, _ in self._words(FAILED, None)].index(FAILED)
                if first != self.rank:
                    raise PeerFailure from None
            raise
        self.gathered(None, "whether all could go on")
        return result

    def first(self, action: Callable[[], T]) -> T:
        """Let the first process do something for all, and return its result in each; errors as with `each`."""
        result = self.each(lambda: None if self.rank else action())
        return self.gathered(result, "what the first has done")[0]  # type: ignore[return-value]

    def end(self, message: str, *, code: str) -> NoReturn:
        """End all processes, which all call this; only the first one reports the error.

        Raises UserError in the first and PeerFailure in the others.
        """
        if self.rank:
            raise PeerFailure
        raise UserError(message, code=code)

    def _exchanged(self, data: bytes, room: int) -> list[bytes]:
        """Return the first `room` bytes that each process has to say, its size before them."""
        word = (len(data).to_bytes(8, "little") + data)[:room].ljust(room, b"\0")
        sent = torch.frombuffer(bytearray(word), dtype=torch.uint8)
        received = [torch.empty_like(sent) for _ in range(self.size)]
        distributed.all_gather(received, sent)
        return [tensor.numpy().tobytes() for tensor in received]


ALONE = Group()
"""The group of a process that trains alone."""


@contextlib.contextmanager
def joined() -> Iterator[Group]:
    """Join the processes that torchrun started with this one, or stand alone if it started none.

    Words on the CPU go by gloo, gradients on GPUs by NCCL; each process takes the GPU of its local rank. Raises
    UserError when the others cannot be reached, and when one of them goes while something is exchanged with it.
    A caller may have joined them already.
    """
    if distributed.is_initialized():
        yield Group(distributed.get_rank(), distributed.get_world_size())
        return
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or "MASTER_ADDR" not in os.environ:
        yield ALONE
        return
    place = int(os.environ.get("LOCAL_RANK", "0"))
    backend = "gloo"
    if int(os.environ.get("LOCAL_WORLD_SIZE", "1")) <= torch.cuda.device_count():
        torch.cuda.set_device(place)
        backend = "cpu:gloo,cuda:nccl"
    try:
        distributed.init_process_group(backend, timeout=TIMEOUT)
    except (RuntimeError, ValueError) as error:
        raise UserError(f"The other processes of this run cannot be reached: {error}", code="process-lost") from error
    try:
        yield Group(distributed.get_rank(), distributed.get_world_size())
    except RuntimeError as error:
        if not gone(error):
            raise
        raise lost() from error
    gc.collect()  # models in cycles hold the buffers of the group: torch may abort where they go last
    distributed.destroy_process_group()  # after an error others may be dead or waiting: then exiting is what ends it


def gone(error: BaseException) -> bool:
    """Return whether an error of a collective operation means that another process has ended."""
    if isinstance(error, torch.OutOfMemoryError):
        return False
    return isinstance(error, distributed.DistError) or (
        isinstance(error, RuntimeError) and any(sign in str(error) for sign in SIGNS)
    )


def lost() -> UserError:
    """Return the error to raise when the others have gone or do not answer."""
    return UserError(
        "Another process of this run has ended or does not answer; what it said comes first. The same command goes on "
        "from the last checkpoint.",
        code="process-lost",
    )
