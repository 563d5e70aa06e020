"""Memory that runs out: work on micro-batches is done again on their halves, and from then on always so.

The gradient of a step is a sum over its sequences, however they are dealt out to passes (gradients.py), so that halves
give what the whole would have given, to rounding. Only dropout draws other numbers, since it goes by pass.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from osbert.data.batch import Batch
from osbert.data.halves import halves
from osbert.errors import UserError

SIGNS = (
    *("can't allocate memory", "out of memory", "not enough memory", "bad_alloc"),
    *("CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED"),
)
"""Words in the errors of torch that mean that memory ran out, on a CPU or in a library of the GPU."""
ONEDNN = ("could not create a primitive", "could not execute a primitive")
"""What oneDNN has to say about it; with more words it means something else."""


def ran_out(error: BaseException) -> bool:
    """Return whether an error says that there was no memory left."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    text = str(error)
    return isinstance(error, RuntimeError) and (text in ONEDNN or any(sign in text for sign in SIGNS))


def told(error: BaseException) -> str:
    """Return in a line what an error says of the memory."""
    return str(error).strip().partition("\n")[0] or "no memory left"


@dataclass(frozen=True, kw_only=True)
class Shortage:
    """What a process reports to the others when its memory did not suffice for some batches.

    `told`: the message of the error. `most`: the tokens of the largest batch; `half`: of the largest half. `single`: no
    batch has two sequences that may be parted, so that there are no halves; `whole`: because the loss compares all.
    """

    told: str
    most: int
    half: int
    single: bool
    whole: bool = False

    @classmethod
    def of(cls, batches: Sequence[Batch], told: str) -> Shortage:
        """Describe the shortage."""
        return cls(
            told=told,
            most=max((batch.size for batch in batches), default=0),
            half=max((batch.size for batch in parts(batches, 1)), default=0),
            single=all(len(halves(batch)) == 1 for batch in batches),
            whole=any(batch.whole for batch in batches),
        )


@contextlib.contextmanager
def needed(what: str, advice: str) -> Iterator[None]:
    """Make a lack of memory in the block an error for the user, who reads what it was for and what to do."""
    try:
        yield
    except (RuntimeError, MemoryError, OSError) as error:
        if not ran_out(error):
            raise
        raise UserError(
            f"Memory does not suffice for {what} ({told(error)}). {advice} The same command goes on from the last "
            "checkpoint.",
            code="out-of-memory",
        ) from error


def parts(batches: Sequence[Batch], halvings: int) -> list[Batch]:
    """Return batches cut into halves so many times; single sequences stay whole."""
    found = list(batches)
    for _ in range(halvings):
        found = [half for batch in found for half in halves(batch)]
    return found


def release() -> None:
    """Give back what is held for later use, after the tensors of the work that failed have gone."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def device_memory(device: torch.device) -> int:
    """Return the bytes of memory that a device has; of a CPU, those of the machine, without bound if it hides them."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[1]
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):  # not every Unix has these names
        return sys.maxsize
