"""The worker process: loads the models, receives requests from the server, batches them and sends the answers.

It has one thread. Between two passes of a model it receives and tokenizes new requests, so that a cancelled or expired
request is never computed. It has no state that the server lacks: if the process dies, no request is lost.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from osbert.errors import UserError
from osbert.runs.similarity.served_search import SearchedFiles, ServedSearch
from osbert.server.batching import JobSlice, Queue, ServerJob
from osbert.server.calls.models import ModelFolder, ServerModel, find
from osbert.server.calls.schemas import Refusal
from osbert.server.log import Log
from osbert.server.wire import (
    Cancellation,
    Dispatch,
    LoadFailure,
    LoadReport,
    Nudge,
    Orders,
    PassReport,
    PassStart,
    Wire,
    WorkerAnswer,
    WorkerLoadError,
    WrittenPart,
    answer_refusal,
    in_slices,
)

if TYPE_CHECKING:
    from osbert.inference.engine import Engine
    from osbert.interop.folder import Folder
    from osbert.server.calls.contract import AnswerStep

SLICE = 0.05
"""Seconds of generation for one request before the worker turns to others; one step may take longer."""


class BatchKey(NamedTuple):
    """Requests with equal keys can share a pass. `alone`: the number of a request that must not share one."""

    call: str
    model: str
    option: Hashable
    alone: int | None = None


@dataclass(kw_only=True, eq=False)
class WritingJob(ServerJob):
    """A request whose answer is generated in steps; `parts`: the number of parts sent."""

    steps: Iterator[AnswerStep]
    parts: int = 0


class Worker:
    """The models of one process, and their waiting requests."""

    def __init__(self, orders: Orders) -> None:
        """Load the models. Raises WorkerLoadError if one cannot be loaded."""
        from osbert.server.call_table import all_calls

        self.log = Log()
        searched = orders.searched.models if orders.searched else set()
        self.models = {run.name: _load_model(run, orders, searched) for run in orders.runs}
        if orders.searched:
            _add_search(self.models, orders.searched, orders, self.log)
        self.edges = [model.edge for model in self.models.values() if model.edge.is_own]
        self.calls = all_calls(model.edge for model in self.models.values())
        self.queue = Queue(tokens=orders.batch_tokens, wait=orders.wait)
        self.writing: deque[WritingJob] = deque()
        self.read_last = False  # whether the last pass was of the queue, where both have work

    def ready(self) -> LoadReport:
        """Return the facts, remarks and edges of the models, for the server."""
        remarks = [f"{model.name}: {remark}" for model in self.models.values() for remark in model.remarks]
        return LoadReport([model.facts() for model in self.models.values()], remarks, self.edges)

    def take_in(self, messages: Sequence[Dispatch | Cancellation]) -> list[WorkerAnswer]:
        """Process messages; return the answers to requests that are refused at once.

        Cancelled and expired requests are skipped before their texts are tokenized, which can take long.
        """
        # Cancellations first: one may concern a request in the same list.
        dropped = {message.number for message in messages if isinstance(message, Cancellation)}
        for number in dropped:
            self.queue.drop(number)
        self.writing = deque(job for job in self.writing if job.number not in dropped)
        requests = [message for message in messages if isinstance(message, Dispatch) and message.number not in dropped]
        return [answer for message in requests for answer in self._enqueue(message)]

    def _enqueue(self, message: Dispatch) -> list[WorkerAnswer]:
        """Tokenize a request and add it to the queue; return its answer if it is refused, else an empty list."""
        if message.deadline <= time.monotonic():
            return [answer_refusal(message.number, self.calls[message.call].too_late())]
        try:
            call = self.calls[message.call]
            name, labels = map(message.request.get, ("model", "labels"))
            model = find(self.models, name, call.needs or message.call, call.what, labels)
            items = call.items(model, message.request)
            option = call.option(message.request)
            steps = call.steps(model, message.request, items)
        except Refusal as refusal:
            return [answer_refusal(message.number, refusal)]
        except Exception as error:
            return [self._broken(message.number, message.request.get("model"), error)]
        job: dict[str, Any] = {
            "number": message.number,
            "group": BatchKey(message.call, model.name, option, message.number if message.alone else None),
            "items": items,
            "sizes": [item.tokens for item in items],
            "arrived": message.arrived,
            "deadline": message.deadline,
            "request": message.request,
        }
        if steps is None:
            self.queue.add(ServerJob(**job))
        else:
            self.writing.append(WritingJob(**job, steps=steps))
        return []

    def work(self, begun: Callable[[PassStart], None] = lambda start: None) -> PassReport:
        """Run one pass; return its report, with the answers to finished and expired requests.

        `begun` is called with the requests of the pass before it begins.
        """
        expired = self.queue.remove_expired(time.monotonic())
        late = [answer_refusal(job.number, self.calls[_group(job).call].too_late()) for job in expired]
        # If both have work, passes of the queue and slices of generation alternate.
        if self.writing and (self.read_last or not self.queue.jobs):
            self.read_last = False
            begun(PassStart([self.writing[0].number]))
            written = self._write()
            return written._replace(answers=late + written.answers)
        if not self.queue.jobs:
            return PassReport(late)
        self.read_last = True
        parts = self.queue.take()
        begun(PassStart([part.job.number for part in parts]))
        begin = time.monotonic()
        answers = self._read(parts)
        return PassReport(
            answers=late + answers,
            model=_group(parts[0].job).model,
            items=sum(part.last - part.first for part in parts),
            tokens=sum(sum(part.job.sizes[part.first : part.last]) for part in parts),
            seconds=time.monotonic() - begin,
        )

    def _read(self, parts: Sequence[JobSlice]) -> list[WorkerAnswer]:
        """Compute slices of one group in one pass. If that fails, each job is tried alone, to find the faulty one."""
        group = _group(parts[0].job)
        call, model = self.calls[group.call], self.models[group.model]
        try:
            results = iter(call.read(model, [item for part in parts for item in part.items], group.option))
            for part in parts:
                part.job.results += [next(results) for _ in part.items]
            return [self._answer(part.job, part.job.results) for part in parts if part.last == len(part.job.items)]
        except Exception as error:
            if len(parts) > 1:
                # Remove the results that this pass appended before it failed: each job computes them again.
                for part in parts:
                    del part.job.results[part.first :]
                return [answer for part in parts for answer in self._read([part])]
            self.queue.drop(parts[0].job.number)
            return [self._broken(parts[0].job.number, group.model, error)]

    def _write(self) -> PassReport:
        """Generate for SLICE seconds for the request that has waited longest; report its parts or its answer."""
        job = self.writing.popleft()
        key, parts = _group(job), list[WrittenPart]()
        begin = now = time.monotonic()
        try:
            while now < job.deadline:
                part, results = next(job.steps)
                now = time.monotonic()
                if results is not None:
                    answer = self._answer(job, results)
                    return PassReport([answer], key.model, len(job.items), sum(job.sizes), now - begin, parts)
                if part is not None:
                    parts.append(WrittenPart(job.number, job.parts, _json(part)))
                    job.parts += 1
                if now >= begin + SLICE:
                    self.writing.append(job)
                    return PassReport([], parts=parts)
        except Exception as error:
            return PassReport([self._broken(job.number, key.model, error)], parts=parts)
        return PassReport([answer_refusal(job.number, self.calls[key.call].too_late())], parts=parts)

    def _answer(self, job: ServerJob, results: Sequence[Any]) -> WorkerAnswer:
        key = _group(job)
        answer = self.calls[key.call].answer(self.models[key.model], job.request, job.items, results)
        return WorkerAnswer(job.number, 200, _json(answer))

    def due(self, now: float) -> float | None:
        """Return the seconds until the next pass should begin, 0 for at once; None if there is no work."""
        return 0.0 if self.writing else self.queue.due(now)

    def _broken(self, number: int, model: str | None, error: Exception) -> WorkerAnswer:
        """Log an unexpected error and return the answer to its request.

        Status 503 for a UserError, such as NaN scores, which is the model's fault; 500 for all other errors.
        """
        who = f"The model {model}" if model else "The server"
        if is_user_error := isinstance(error, UserError):
            self.log.write(f"{who}: {error}")
        else:
            traceback.print_exception(error)
        status = 503 if is_user_error else 500
        return answer_refusal(
            number, Refusal(status, f"{who} failed on this request. The server's log has the details.")
        )


def _load_model(run: ModelFolder, orders: Orders, searched: Collection[Path]) -> ServerModel:
    """Return a model to serve. `searched`: the folders of the models of searched files."""
    from osbert.inference.engine import load
    from osbert.interop.folder import open_folder

    try:
        source = open_folder(run.folder, orders.opening)
        if source.path.resolve() in searched:
            _ = source.fingerprint  # which a search compares, before the memory of the weights is freed
        engine = load(source, device=orders.device)
        return ServerModel(run.name, engine, orders.writing)
    except (UserError, OSError) as error:
        raise WorkerLoadError(LoadFailure.of(error, run.name)) from error


def _add_search(models: Mapping[str, ServerModel], files: SearchedFiles, orders: Orders, log: Log) -> None:
    """Give the model of the first file the search. Models that are served are not loaded a second time."""
    from osbert.inference.engine import load
    from osbert.runs.similarity.search import load_model

    engines = {model.engine.folder.resolve(): model.engine for model in models.values()}

    def load_once(source: Folder, device: str) -> Engine:
        folder = source.path.resolve()
        if folder not in engines:  # a search compares fingerprints of models of vectors, not of a reranker
            embeds = folder in files.models
            engines[folder] = load_model(source, device) if embeds else load(source, device=device)
        return engines[folder]

    search = ServedSearch(
        files, device=orders.device, opening=orders.opening, load_model=load_once, report=log.write_again
    )
    next(model for model in models.values() if model.engine is search.embedder.engine).search = search


def _json(content: Any) -> bytes:
    return json.dumps(content, ensure_ascii=False, allow_nan=False).encode()


def _group(job: ServerJob) -> BatchKey:
    assert isinstance(job.group, BatchKey)
    return job.group


def serve(wire: Wire) -> None:
    """Receive the orders, load the models, and answer requests until the server closes the wire (EOFError)."""
    # The first message is the orders. `receive` returns an empty list while only a part of it has arrived.
    while not (messages := wire.receive(None)):
        pass
    (orders,) = messages
    if orders.threads:
        import torch

        torch.set_num_threads(orders.threads)
    try:
        worker = Worker(orders)
        ready = worker.ready()
    except WorkerLoadError as error:
        wire.send(error.failed)
        return
    except (UserError, OSError) as error:
        wire.send(LoadFailure.of(error))
        return
    except Exception as error:
        traceback.print_exc()
        wire.send(LoadFailure(f"The models cannot be loaded: {error!r}"))
        return
    wire.send(ready)
    while True:
        messages = wire.receive(worker.due(time.monotonic()))
        _take_in(wire, worker, messages)
        if worker.due(time.monotonic()) == 0:
            for message in in_slices(worker.work(wire.send)):
                wire.send(message)


def _take_in(wire: Wire, worker: Worker, messages: Sequence[Dispatch | Cancellation | Nudge]) -> None:
    """Pass messages on to the worker and send refusals and signs of life.

    A request to be read alone is announced by a PassStart first: the worker may die while it tokenizes it, too.
    """
    dropped = [message for message in messages if isinstance(message, Cancellation)]
    requests = [message for message in messages if isinstance(message, Dispatch)]
    for message in requests:
        if message.alone:
            wire.send(PassStart([message.number]))
            wire.send(PassReport(worker.take_in([message, *dropped])))
    answers = worker.take_in([*dropped, *(message for message in requests if not message.alone)])
    if answers or Nudge() in messages:
        wire.send(PassReport(answers))


def main() -> None:
    """Run a worker on the socket that is the standard input."""
    for number in (signal.SIGINT, signal.SIGTERM):  # they go to all processes at once; the server ends its workers
        signal.signal(number, signal.SIG_IGN)
    try:
        serve(Wire(socket=socket.socket(fileno=sys.stdin.fileno())))
    except (EOFError, OSError):
        os._exit(0)


if __name__ == "__main__":
    main()
