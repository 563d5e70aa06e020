"""Recovery when memory runs out: repeat the work on halves of the micro-batches, and keep to halves from then on.

The gradient of a step is a sum over its sequences, however they are divided into passes (gradients.py), so halves give
the same gradient up to rounding. Only dropout differs, because its random numbers depend on the pass.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch

from osbert.data.batch import Batch
from osbert.data.halves import halves
from osbert.errors import UserError

SIGNS = (
    *("can't allocate memory", "out of memory", "not enough memory", "bad_alloc"),
    *("CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED"),
)
"""Parts of torch's error messages that mean that memory ran out, on a CPU or in a GPU library."""
ONEDNN = ("could not create a primitive", "could not execute a primitive")
"""oneDNN's whole messages when memory runs out; as parts of longer messages they mean something else."""


def ran_out(error: BaseException) -> bool:
    """Return whether an error means that memory ran out, on a CPU or a GPU."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    text = str(error)
    return isinstance(error, RuntimeError) and (text in ONEDNN or any(sign in text for sign in SIGNS))


def told(error: BaseException) -> str:
    """Return the first line of an error's message."""
    return str(error).strip().partition("\n")[0] or "no memory left"


@dataclass(frozen=True, kw_only=True)
class Shortage:
    """The report of a process whose memory was too small for some batches.

    `told`: the message of the error. `most`: the tokens of the largest batch; `half`: of the largest half. `single`: no
    batch can be halved; `whole`: because the loss compares all sequences of a step.
    """

    told: str
    most: int
    half: int
    single: bool
    whole: bool = False

    @classmethod
    def of(cls, batches: Sequence[Batch], told: str) -> Shortage:
        """Measure `batches` and their halves."""
        return cls(
            told=told,
            most=max((batch.size for batch in batches), default=0),
            half=max((batch.size for batch in parts(batches, 1)), default=0),
            single=all(len(halves(batch)) == 1 for batch in batches),
            whole=any(batch.whole for batch in batches),
        )


@contextlib.contextmanager
def needed(what: str, advice: str) -> Iterator[None]:
    """Turn an out-of-memory error into a UserError that names `what` needed the memory and gives advice."""
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
    """Halve batches `halvings` times. Batches of one sequence or record stay whole."""
    found = list(batches)
    for _ in range(halvings):
        found = [half for batch in found for half in halves(batch)]
    return found


def release() -> None:
    """Return cached memory to the system. Call it after the tensors of the failed work are gone."""
    gc.collect()
    # Exceptions keep tensors alive in reference cycles, so collect garbage before the cache is emptied.
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def device_memory(device: torch.device) -> int:
    """Return the bytes of a device's memory. For a CPU: the machine's memory, sys.maxsize if unknown."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[1]
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):  # not every Unix has these names
        return sys.maxsize


def free_memory(device: torch.device) -> int:
    """Return the bytes of memory that a process may still take on a device without swapping.

    They include those that it has taken from the system and uses no longer. Of a CPU's memory, processes of the machine
    get equal parts, and a container's limit counts (control groups, v2).
    """
    if device.type == "cuda":
        # torch keeps the memory of deleted tensors for new ones: the device counts it as taken.
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + kept
    free = device_memory(device)
    with contextlib.suppress(OSError):
        if found := re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE):
            free = int(found[1]) * 1024
    return max(min(free, _left_in_container()), 0) // int(os.environ.get("LOCAL_WORLD_SIZE", "1")) + _kept_blocks()


class _AllocatorState(ctypes.Structure):
    """The struct mallinfo2 of glibc's malloc.h."""

    # `fordblks`, the total of free blocks, is the ninth of ten.
    _fields_: ClassVar = [*((f"unused{number}", ctypes.c_size_t) for number in range(8)), ("fordblks", ctypes.c_size_t)]
    _fields_ += [("keepcost", ctypes.c_size_t)]


def _kept_blocks() -> int:
    """Return the bytes of deleted objects that glibc keeps for this process's new ones, 0 with other libraries.

    Training makes it keep gigabytes (processor.py). The system counts them as taken.
    """
    try:
        state = ctypes.CDLL(None).mallinfo2
    except (OSError, AttributeError):
        return 0
    state.restype = _AllocatorState
    return int(state().fordblks)


def _left_in_container(root: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the bytes up to the limit of this process's control group, sys.maxsize without a limit.

    The page cache of files counts as free: the kernel drops it before it refuses memory.
    """
    try:
        limit = int((root / "memory.max").read_text())  # "max", a ValueError, is no limit
        cache = re.search(r"^inactive_file (\d+)$", (root / "memory.stat").read_text(), re.MULTILINE)
        return limit - int((root / "memory.current").read_text()) + int(cache[1] if cache else 0)
    except (OSError, ValueError):
        return sys.maxsize
