"""Encodes portions on all cores and gives the results in the order of the portions, so their number changes nothing."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from osbert.corpus.encode import Encoded, Portion, encode_portion
from osbert.errors import UserError
from osbert.text.tokenizer import Tokenizer

Label = TypeVar("Label")


def encode_in_order(
    portions: Iterable[tuple[Portion, Label]], tokenizer: Tokenizer, *, workers: int
) -> Iterator[tuple[Encoded, Label]]:
    """Yield each portion encoded, with its label, in order; at most 2 * workers + 1 portions are held at a time.

    Raises UserError when a worker dies, and whatever reading the portions raises.
    """
    if workers == 1:
        for portion, label in portions:
            yield encode_portion(portion, tokenizer), label
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(tokenizer,))
    waiting: deque[tuple[Future[Encoded], Label]] = deque()
    try:
        for portion, label in portions:
            waiting.append((pool.submit(_encode, portion), label))
            del portion  # only the pool holds the text now, and only until it is sent
            if len(waiting) > 2 * workers:
                yield _result(waiting)
        while waiting:
            yield _result(waiting)
    except BrokenProcessPool as error:
        raise UserError(
            "A worker process was ended from outside, most often for want of memory. Finished shards are kept: "
            f"give the same command again with fewer --workers (now {workers})."
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _result(waiting: deque[tuple[Future[Encoded], Label]]) -> tuple[Encoded, Label]:
    future, label = waiting.popleft()
    return future.result(), label


_tokenizer: Tokenizer  # of a worker process; set once when it begins


def _begin(tokenizer: Tokenizer) -> None:
    global _tokenizer
    _tokenizer = tokenizer
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends its workers
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process when the parent is gone, which a killed one cannot ask for."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _encode(portion: Portion) -> Encoded:
    return encode_portion(portion, _tokenizer)
