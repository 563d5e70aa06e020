"""The group of processes that train together, started by torchrun, and the values that they exchange besides gradients.

Common decisions, such as the end of a run, are made by every process from the same gathered values, so that all decide
alike. A single process is a group of one, for which nothing here has a cost.

torchrun restarts a group of processes but keeps its key-value store (torch 2.13; pytorch/pytorch issue 135712). There
the new processes would read the addresses of the dead ones and fail to connect. torchrun gives them nothing that
identifies the start: its count of restarts differs between nodes. So the first process draws a name for the start, and
each of the others joins only after the first one has answered that very process (`fresh_store`).
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, NoReturn, TypeGuard, TypeVar

import torch
from torch import Tensor, distributed

from osbert.data.step import RankPart
from osbert.errors import UserError

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

T = TypeVar("T")

TIMEOUT = timedelta(minutes=10)
"""Longest time that a process waits for the others, including while the first one writes a checkpoint."""
ROOM = 1024
"""Bytes of a message in the first round; a longer message needs a second round."""
FAILED = "a failure"
"""The subject of a message from a process that cannot go on."""
SIGNS = ("gloo", "NCCL", "c10d", "Connection closed by peer", "Connection reset by peer")
"""Parts of the messages of torch's RuntimeErrors that mean that another process has ended."""
START = "osbert/start"
"""The key of the name of the newest start."""
PATIENCE = 0.02
"""Seconds between two looks into the store."""


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
                f"The processes of this run are out of step: at the same time they exchange {exchanges}. Start all "
                "of them with the same command and version. The same command continues from the last checkpoint.",
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
                # messages are. The size comes first, so that a truncated message still announces how much room it
                # needs.
                word = (len(data).to_bytes(8, "little") + data)[:room].ljust(room, b"\0")
                sent = torch.frombuffer(bytearray(word), dtype=torch.uint8)
                received = [torch.empty_like(sent) for _ in range(self.size)]
                distributed.all_gather(received, sent)
                words = [tensor.numpy().tobytes() for tensor in received]
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
        if self.size == 1:
            return action()
        result = self.each(lambda: None if self.rank else action())
        return self.gather(result, "what the first has done")[0]  # type: ignore[return-value]

    def end(self, message: str, *, code: str) -> NoReturn:
        """End all processes; all must call. Only the first one reports the error.

        Raises UserError in the first process and PeerFailure in the others.
        """
        if self.rank:
            raise PeerFailure
        raise UserError(message, code=code)


ALONE = Group()
"""The group of a process that trains alone."""


class Parallel:
    """A way to distribute a learner over processes; this one is for a single process, which exchanges nothing."""

    sharded: ClassVar[bool] = False
    """Whether no process has all of a weight."""

    def backward(self, loss: Tensor, *, last: bool) -> None:
        """Add the gradients of `loss` () to the weights'; sum over processes if it is the `last` pass of a step."""
        loss.backward()

    def give_up(self, *, owing: bool) -> bool:
        """After an error here, let the others finish the step or evaluation; return whether they can.

        `owing`: they wait for this process's gradients, or will.
        """
        return True

    def whole(self, tensor: Tensor) -> Tensor:
        """Return the full tensor of a weight or of its moments in the first process. All processes must call."""
        return tensor

    def own(self, tensor: Tensor, like: Tensor) -> Tensor:
        """Return this process's part of a full tensor that belongs to the weight `like`."""
        return tensor


def is_dealt(tensor: Tensor) -> TypeGuard[DTensor]:
    """Return whether a tensor is sharded over processes.

    Detected by an attribute that only DTensor has: importing that class takes most of a second in every run.
    """
    return hasattr(tensor, "placements")


def shard_like(tensor: Tensor, weight: Tensor) -> Tensor:
    """Return this process's shard of a full tensor, sharded like `weight`; all of it if that is not sharded."""
    if not is_dealt(weight):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor, weight.device_mesh, weight.placements, src_data_rank=None)


def local(tensor: Tensor) -> Tensor:
    """Return this process's shard of a tensor; all of it if it is not sharded."""
    return tensor.to_local() if is_dealt(tensor) else tensor


@contextlib.contextmanager
def join_group() -> Iterator[Group]:
    """Join the process group that torchrun started; without torchrun yield a group of one.

    CPU values are exchanged with gloo, GPU gradients with NCCL. Each process uses the GPU of its local rank. Raises
    UserError when the others cannot be reached, and when one of them goes while something is exchanged with it.
    A caller may have joined them already.
    """
    if distributed.is_initialized():
        yield Group(distributed.get_rank(), distributed.get_world_size())
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
        yield Group(distributed.get_rank(), distributed.get_world_size())
    except RuntimeError as error:
        if not gone(error):
            raise
        raise process_lost_error() from error
    gc.collect()  # models in cycles hold the buffers of the group: torch may abort where they go last
    distributed.destroy_process_group()  # after an error others may be dead or waiting: then exiting is what ends it


def _initialize(backend: str) -> None:
    """Initialise torch's process group. torchrun may have kept the store of an earlier start."""
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
        "Another process of this run has ended or does not answer; its error is printed above. The same command "
        "continues from the last checkpoint.",
        code="process-lost",
    )


def open_agent_store(timeout: timedelta) -> distributed.Store | None:
    """Return the store that torchrun keeps between its starts; None if each start has a store of its own."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return distributed.TCPStore(host, port, is_master=False, timeout=timeout)


def fresh_store(store: distributed.Store, rank: int, size: int, timeout: timedelta) -> distributed.Store:
    """Return a part of `store` that only the processes of this start use. All of them call it.

    Raises RuntimeError if the others have not come within `timeout`.
    """
    deadline = time.monotonic() + timeout.total_seconds()
    # Written over by each start, so that no process mistakes the answer to an earlier one for its own.
    token = secrets.token_hex(8)
    name = _answer_others(store, token, size, deadline) if rank == 0 else _await_answer(store, token, rank, deadline)
    return distributed.PrefixStore(f"osbert/{name}", store)


def _answer_others(store: distributed.Store, name: str, size: int, deadline: float) -> str:
    """In the first process: name the start and answer each of the others; return the name."""
    store.set(START, name)
    for rank in range(1, size):
        asking = f"osbert/{name}/asks/{rank}"
        while not store.check([asking]):
            _wait(deadline)
        store.set(f"osbert/{name}/answers/{rank}", store.get(asking).decode())
    return name


def _await_answer(store: distributed.Store, token: str, rank: int, deadline: float) -> str:
    """In another process: ask to take part in the newest start until its first process answers; return its name."""
    last_name = ""
    while True:
        name = store.get(START).decode() if store.check([START]) else ""
        if name and name != last_name:
            store.set(f"osbert/{name}/asks/{rank}", token)
            last_name = name
        answer = f"osbert/{name}/answers/{rank}"
        # The first process of an earlier start has answered another process of this rank, or nobody.
        if name and store.check([answer]) and store.get(answer).decode() == token:
            return name
        _wait(deadline)


def _wait(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise RuntimeError("the other processes of this run did not start in time")
    time.sleep(PATIENCE)
