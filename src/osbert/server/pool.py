"""The server's side of the worker processes: accepts requests, assigns them, and reassigns them if a worker dies.

An accepted request stays here until it is answered, by a worker or with 503 after DEATHS workers died over it. So no
request is lost with a worker. Any request in its pass may have caused a worker's death. Each of them is therefore sent
again to be read alone: the faulty one fails, and the others are answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import pickle
import socket
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from osbert.errors import UserError
from osbert.processes import holding_interrupts
from osbert.server.calls.schemas import Refusal
from osbert.server.limits import ServerLimits
from osbert.server.log import Log
from osbert.server.metrics import ServerMetrics
from osbert.server.wire import (
    HEAD,
    AnswerSlice,
    Cancellation,
    Dispatch,
    LoadFailure,
    LoadReport,
    Nudge,
    Orders,
    PassReport,
    PassStart,
    WorkerAnswer,
    WorkerLoadError,
    WrittenPart,
    answer_refusal,
    frame,
)
from osbert.tasks.edges import Edge
from osbert.training.run_folder import RunFolder

AGAIN = 5
"""Value of Retry-After, in seconds, if a model cannot be loaded."""
DEATHS = 3
"""A request is answered with 503 when this many workers have died over it."""
PAUSES = (0.0, 0.5, 2.0, 5.0)
"""Seconds before a worker is started again, by the number of failures in a row."""
RECENT = 64
"""Number of latest answers from which the rate of answers is computed."""
NUDGES = 4
"""Pings to a silent worker before it is killed."""


@dataclass(kw_only=True, eq=False)
class PendingRequest:
    """An accepted request: its content, the worker that answers it, and how many workers died over it.

    `parts`: the parts of a streamed answer that have not been sent to the client yet. `came`: the number of parts
    received; after a death another worker writes the first ones again, and they are skipped. `news` is set with every
    part and with the answer. `slices`: what has come of the answer's body before its end.
    """

    asking: Dispatch
    answer: asyncio.Future[WorkerAnswer]
    worker: _Worker | None = None
    deaths: int = 0
    parts: deque[bytes] = field(default_factory=deque)
    came: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)
    slices: list[bytes] = field(default_factory=list)

    @property
    def body(self) -> list[bytes]:
        """The body of the answer, which must be there, in slices."""
        return [*self.slices, self.answer.result().body]

    def take(self, part: WrittenPart) -> None:
        """Append a part, unless it was received before."""
        if part.part_index == self.came:
            self.came += 1
            self.parts.append(part.body)
            self.news.set()


@dataclass(kw_only=True, eq=False)
class _Worker:
    """A worker process with loaded models: its requests, and how often it was pinged since its last message.

    `begun`: the numbers of the requests in its current pass; empty between passes.
    """

    process: asyncio.subprocess.Process
    writer: asyncio.StreamWriter
    given: dict[int, PendingRequest] = field(default_factory=dict)
    begun: Collection[int] = ()
    unanswered: int = 0

    def send(self, message: Dispatch | Cancellation | Nudge) -> None:
        """Send a message, unless the worker is known to be dead. Its end of file may not have been read yet."""
        if not self.writer.is_closing():
            self.writer.write(frame(message))


class WorkerPool:
    """The workers, and the accepted requests without an answer."""

    def __init__(self, orders: Orders, limits: ServerLimits, metrics: ServerMetrics, *, workers: int = 1) -> None:
        """Create the pool without workers; `start` starts them.

        `problem`: why a worker cannot be restarted, "" if all run. Clients see it, so it contains no paths.
        """
        self.orders = orders
        self.limits = limits
        self.metrics = metrics
        self.count = workers
        self.pending: dict[int, PendingRequest] = {}
        self.models: list[dict[str, Any]] = []
        self.edges: Sequence[Edge] = ()
        self.problem = ""
        self._numbers = itertools.count()
        self._ready: list[_Worker] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._log = Log()
        self._logged = ""
        self._verified: list[Any] | None = None  # stamps of the files last compared with their hashes
        self._times: deque[float] = deque(maxlen=RECENT)
        metrics.count(lambda: len(self.pending))
        metrics.ready.set_function(lambda: len(self._ready))

    @property
    def ready(self) -> bool:
        """Return whether at least one worker has loaded its models."""
        return bool(self._ready)

    async def start(self) -> list[str]:
        """Start the workers, wait until they have loaded the models, and return remarks on the models.

        Raises UserError if a model cannot be loaded.
        """
        loop = asyncio.get_running_loop()
        first: list[asyncio.Future[list[str]]] = [loop.create_future() for _ in range(self.count)]
        self._tasks = [loop.create_task(self._keep(future)) for future in first]
        self._tasks.append(loop.create_task(self._watch()))
        try:
            remarks = await asyncio.gather(*first)
        except BaseException:
            await self.close()
            raise
        return remarks[0]

    async def close(self) -> None:
        """Kill the workers. Pending requests get no answer."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def submit(self, call: str, request: dict[str, Any], deadline: float) -> PendingRequest:
        """Accept a request, to be answered before `deadline` (time.monotonic). Raises Refusal as `admit` does."""
        self.admit()
        number = next(self._numbers)
        asking = Dispatch(number, call, request, time.monotonic(), deadline)
        pending = PendingRequest(asking=asking, answer=asyncio.get_running_loop().create_future())
        pending.answer.add_done_callback(lambda answer: pending.news.set())
        self.pending[number] = pending
        self._give(pending)
        return pending

    def admit(self) -> None:
        """Raise Refusal: 429 if the queue is full, 503 if no worker runs and none can be started."""
        if not self._ready:
            self.check_loadable()
        if len(self.pending) >= self.limits.queue:
            raise Refusal(
                429,
                f"{len(self.pending)} requests are already waiting; try again later.",
                retry_after=self.retry_after(),
            )

    def check_loadable(self) -> None:
        """Raise Refusal (503) if a worker cannot be restarted."""
        if self.problem:
            raise Refusal(503, self.problem, retry_after=AGAIN)

    def retry_after(self) -> int:
        """Return the whole seconds (1 to 60) until the queue is empty at the rate of the latest answers."""
        if len(self._times) < 2:
            return 1
        rate = (len(self._times) - 1) / max(time.monotonic() - self._times[0], 1e-3)
        return min(max(1, math.ceil(len(self.pending) / rate)), 60)

    def forget(self, pending: PendingRequest) -> None:
        """Cancel a request. Does nothing if it has been answered."""
        number = pending.asking.number
        if self.pending.pop(number, None) is None:
            return
        if pending.worker:
            pending.worker.given.pop(number, None)
            pending.worker.send(Cancellation(number))
            pending.worker = None

    def _give(self, pending: PendingRequest) -> None:
        """Send a request to the worker with the fewest requests. If no worker is ready, it waits for one."""
        able = (candidate for candidate in self._ready if not candidate.writer.is_closing())
        worker = min(able, key=lambda candidate: len(candidate.given), default=None)
        if worker:
            pending.worker = worker
            worker.given[pending.asking.number] = pending
            worker.send(pending.asking._replace(alone=pending.deaths > 0))

    async def _keep(self, first: asyncio.Future[list[str]]) -> None:
        """Keep one worker running: start another when it dies. `first` gets the remarks or the error of the first."""
        try:
            await self._keep_one(first)
        except Exception as error:  # a mistake of ours: whoever waits for the first worker is to see it
            if not first.done():
                first.set_exception(error)
            raise

    async def _keep_one(self, first: asyncio.Future[list[str]]) -> None:
        # failures in a row to load the models; a worker that loaded them resets the count, however it ends
        failures = 0
        while True:
            try:
                self._check_folders()
                stamps = [RunFolder(run.folder).stamps() for run in self.orders.runs]  # equal for unchanged files
                async with self._start_worker(known=stamps == self._verified) as (reader, worker):
                    report = await _message(reader)
                    if isinstance(report, LoadFailure):
                        raise WorkerLoadError(report)
                    failures = 0
                    if self.problem:
                        self._log.write_again("osbert serve: the models are loaded again.")
                    self.problem = self._logged = ""
                    self._verified = stamps
                    if not first.done():
                        first.set_result(report.remarks)
                    await self._listen(reader, worker, report)
            except WorkerLoadError as error:
                failed = error.failed
            except (EOFError, ConnectionError):
                failed = LoadFailure("The worker died while it loaded the models; is there memory enough?")
            except OSError as error:
                failed = LoadFailure(f"A worker cannot be started: {error.strerror or error}.")
            else:
                continue
            if not first.done():
                first.set_exception(UserError(failed.message, code=failed.code))
                return
            failures += 1
            if failures >= DEATHS or failed.model:
                self._give_up(failed)
            await asyncio.sleep(PAUSES[min(failures, len(PAUSES)) - 1])

    def _check_folders(self) -> None:
        """Raise WorkerLoadError if a model folder is missing. This saves the start of a process."""
        for run in self.orders.runs:
            if not run.folder.is_dir():
                message = f"{run.folder}: there is no such folder."
                raise WorkerLoadError(LoadFailure(message, run.name, code="missing-file"))

    def _give_up(self, failed: LoadFailure) -> None:
        """Record why no worker can start, and refuse the waiting requests if there is no other worker."""
        which = f"The model '{failed.model}'" if failed.model else "The models"
        self.problem = f"{which} cannot be loaded again; the server goes on trying, and its log says why."
        if self._logged != failed.message:
            self._logged = failed.message
            self._log.write_again(f"osbert serve: a worker cannot be started again, for now: {failed.message}")
        if not self._ready:
            for number, pending in list(self.pending.items()):
                del self.pending[number]
                pending.answer.set_result(answer_refusal(number, Refusal(503, self.problem, retry_after=AGAIN)))

    async def _watch(self) -> None:
        """Kill workers that have sent nothing for `patience` seconds although they were pinged."""
        while True:
            await asyncio.sleep(self.limits.patience / NUDGES)
            for worker in self._ready:
                # Pings are counted, not seconds: a server that was itself stopped (docker pause, a loaded machine) has
                # not read yet what its workers sent meanwhile.
                if worker.unanswered == NUDGES:
                    self._log.write_again(f"osbert serve: a worker hangs, for {self.limits.patience:g} s by now.")
                    worker.process.kill()
                else:
                    worker.send(Nudge())
                worker.unanswered += 1

    @contextlib.asynccontextmanager
    async def _start_worker(self, *, known: bool) -> AsyncIterator[tuple[asyncio.StreamReader, _Worker]]:
        """Start a process and send it its orders. It is killed at the end of the block and on cancellation.

        `known`: a worker has already compared these files with their hashes, so they are not hashed again.
        """
        server_end, worker_end = socket.socketpair()
        # Two descriptors, because asyncio closes a transport when a write fails: the messages that a dying worker
        # sent last can still be read from the other one.
        ends = (server_end.dup(), server_end)
        async with contextlib.AsyncExitStack() as held:
            for end in ends:
                held.callback(end.close)
                end.setblocking(False)
            with worker_end, holding_interrupts():
                process = await asyncio.create_subprocess_exec(
                    # -P: do not import modules from the current directory, which may be untrusted
                    *(sys.executable, "-P", "-m", "osbert.server.worker"),
                    stdin=worker_end.fileno(),
                )
            held.push_async_callback(_end, process)
            reader, reading = await asyncio.open_connection(sock=ends[0])
            held.callback(reading.transport.abort)
            _, writer = await asyncio.open_connection(sock=ends[1])
            held.callback(writer.transport.abort)
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(frame(replace(self.orders, opening=self.orders.opening.again) if known else self.orders))
            yield reader, _Worker(process=process, writer=writer)

    async def _listen(self, reader: asyncio.StreamReader, worker: _Worker, report: LoadReport) -> None:
        """Receive a worker's messages until it dies, and then reassign its requests."""
        self.models, self.edges = report.models, report.edges
        self._ready.append(worker)
        for pending in [request for request in self.pending.values() if request.worker is None]:
            self._give(pending)
        try:
            while True:
                self._take(await _message(reader), worker)
                worker.unanswered = 0
        except (EOFError, OSError):
            self._ready.remove(worker)
            self._bury(worker)
            status = await worker.process.wait()
            end = f"killed by signal {-status}" if status < 0 else f"status {status}"
            self._log.write_again(f"osbert serve: a worker died ({end}); another takes over its requests.")

    def _take(self, read: PassReport | PassStart | AnswerSlice, worker: _Worker) -> None:
        """Record the requests of a pass that begins, or pass on the answers and parts of one that ended."""
        if isinstance(read, AnswerSlice):
            if answering := self.pending.get(read.number):
                answering.slices.append(read.body)
            return
        if isinstance(read, PassStart):
            worker.begun = read.numbers
            return
        worker.begun = ()
        for part in read.parts:
            if written := self.pending.get(part.number):
                written.take(part)
        for answered in read.answers:
            pending = self.pending.pop(answered.number, None)
            worker.given.pop(answered.number, None)
            if pending and not pending.answer.done():
                pending.answer.set_result(answered)
                self._times.append(time.monotonic())
        if read.items:
            self.metrics.read(read.model, items=read.items, tokens=read.tokens, seconds=read.seconds)

    def _bury(self, worker: _Worker) -> None:
        """Count a death for the requests that may have caused it, and assign all of the worker's requests to others."""
        self.metrics.deaths.inc()
        for number, pending in worker.given.items():
            pending.worker = None
            pending.slices.clear()
            # Outside a pass, such as while it tokenizes, any of its requests may be the cause.
            pending.deaths += not worker.begun or number in worker.begun
            if pending.deaths >= DEATHS:
                del self.pending[number]
                why = f"{DEATHS} workers died over this request, one after the other."
                pending.answer.set_result(answer_refusal(number, Refusal(503, why)))
            else:
                self._give(pending)


async def _message(reader: asyncio.StreamReader) -> Any:
    """Return the next message. Raises EOFError if the worker has ended."""
    (size,) = HEAD.unpack(await reader.readexactly(HEAD.size))
    return pickle.loads(await reader.readexactly(size))


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()
