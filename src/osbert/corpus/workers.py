"""Encodes portions on all cores, and yields them in order, so that the number of cores does not affect the result."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from osbert.corpus.encode import Portion, PortionTokens, encode_portion
from osbert.corpus.state import BuildSettings
from osbert.errors import UserError
from osbert.processes import end_with_parent, holding_interrupts
from osbert.text.file_tokenizer import AnyTokenizer

PART = 1 << 19
"""Characters per job of a worker: small, so that no worker waits long for the others at the end."""

Label = TypeVar("Label")


def encode_in_order(
    portions: Iterable[tuple[Portion, Label]], tokenizer: AnyTokenizer, settings: BuildSettings, *, workers: int
) -> Iterator[tuple[Sequence[PortionTokens], Label]]:
    """Yield each portion encoded, in parts, with its label, in order; at most 2 * workers + 1 portions are in memory.

    Raises UserError if a worker dies, and any error from reading the portions.
    """
    if workers == 1:
        marks = settings.marks(tokenizer)
        for portion, label in portions:
            yield [encode_portion(portion, tokenizer, **marks)], label
        return
    context = multiprocessing.get_context("spawn")
    before = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(tokenizer, settings))
    waiting: deque[tuple[list[Future[PortionTokens]], Label]] = deque()
    try:
        for portion, label in portions:
            with holding_interrupts():  # the first jobs start the processes
                waiting.append(([pool.submit(_encode, part) for part in _parts(portion)], label))
            del portion  # only the pool holds the text now, and only until it is sent
            # Enough portions ahead to keep all workers busy while the oldest one is finished.
            if len(waiting) > 2 * workers:
                yield _result(waiting)
        while waiting:
            yield _result(waiting)
    except BrokenProcessPool as error:
        # A worker that was being started meanwhile is not known to the pool, which would wait for it for ever.
        for child in set(multiprocessing.active_children()) - before:
            child.kill()
        raise UserError(
            "A worker process was ended from outside, most often for want of memory. Finished shards are kept: "
            f"give the same command again with fewer --workers (now {workers}).",
            code="out-of-memory",
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _parts(portion: Portion) -> Iterator[Portion]:
    part: list[tuple[str, bool]] = []
    size = 0
    for chunk in portion:
        part.append(chunk)
        size += len(chunk[0])
        if size >= PART:
            yield part
            part, size = [], 0
    if part:
        yield part


def _result(waiting: deque[tuple[list[Future[PortionTokens]], Label]]) -> tuple[list[PortionTokens], Label]:
    futures, label = waiting.popleft()
    return [future.result() for future in futures], label


_tokenizer: AnyTokenizer  # of a worker process; these are set once when it begins
_marks: dict[str, Any]


def _begin(tokenizer: AnyTokenizer, settings: BuildSettings) -> None:
    global _tokenizer, _marks
    _tokenizer, _marks = tokenizer, settings.marks(tokenizer)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # each worker has a core of its own
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends its workers
    end_with_parent()


def _encode(portion: Portion) -> PortionTokens:
    return encode_portion(portion, _tokenizer, **_marks)
