"""Recovery when memory runs out: repeat the work on halves of the micro-batches, and keep to halves from then on.

The gradient of a step is a sum over its sequences, however they are divided into passes (gradients.py), so halves give
the same gradient up to rounding. Only dropout differs, because its random numbers depend on the pass.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from osbert.data.batch import Batch, halves
from osbert.errors import UserError
from osbert.processes import return_memory

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


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    return str(error).strip().partition("\n")[0] or "no memory left"


@dataclass(frozen=True, kw_only=True)
class Shortage:
    """The report of a process whose memory was too small for some batches.

    `message`: that of the error. `most`: the tokens of the largest batch; `half`: of the largest half.
    `single`: no batch can be halved; `whole`: because the loss compares all sequences of a step.
    """

    message: str
    most: int
    half: int
    single: bool
    whole: bool = False

    @classmethod
    def of(cls, batches: Sequence[Batch], message: str) -> Shortage:
        """Measure `batches` and their halves."""
        return cls(
            message=message,
            most=max((batch.pass_size for batch in batches), default=0),
            half=max((batch.pass_size for batch in parts(batches, 1)), default=0),
            single=all(halves(batch)[0] is batch for batch in batches),
            whole=any(batch.whole for batch in batches),
        )


@contextlib.contextmanager
def explain_shortage(what: str, advice: str) -> Iterator[None]:
    """Turn an out-of-memory error into a UserError that names `what` needed the memory and gives advice."""
    try:
        yield
    except (RuntimeError, MemoryError, OSError) as error:
        if not ran_out(error):
            raise
        raise UserError(
            f"There is not enough memory for {what} ({first_line(error)}). {advice} The same command continues "
            "from the last checkpoint.",
            code="out-of-memory",
        ) from error


def parts(batches: Sequence[Batch], halvings: int) -> list[Batch]:
    """Halve batches `halvings` times. Batches of one sequence or record stay whole."""
    micro_batches = list(batches)
    for _ in range(halvings):
        micro_batches = [half for batch in micro_batches for half in halves(batch)]
    return micro_batches


def release() -> None:
    """Return cached memory to the system. Call it after the tensors of the failed work are gone."""
    gc.collect()
    # Exceptions keep tensors alive in reference cycles, so collect garbage before the cache is emptied.
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return_memory()


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

    Of a CPU's memory, processes of the machine get equal parts, and a container's limit counts (control groups, v2).
    """
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    free = device_memory(device)
    with contextlib.suppress(OSError):
        if match := re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE):
            free = int(match[1]) * 1024
    return min(free, _left_in_container()) // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def _left_in_container(root: Path = Path("/sys/fs/cgroup"), group_file: Path = Path("/proc/self/cgroup")) -> int:
    """Return the bytes up to the nearest limit of this process's control group and of those above it.

    `group_file`: the file that names the group. sys.maxsize without a limit.
    """
    # "0::/user.slice/user.scope"; a container's own group is "/" where it has a namespace of its own.
    match = None
    with contextlib.suppress(OSError):
        match = re.search(r"^0::/(.*)$", group_file.read_text(), re.MULTILINE)
    group = root / (match[1] if match else "")
    # A namespace can name a group outside of what is mounted ("/../other"): then the root alone is known.
    inside = [group, *group.parents] if ".." not in group.parts else [root]
    return min(_left_in_group(folder) for folder in inside if folder.is_relative_to(root))


def _left_in_group(group: Path) -> int:
    """Return the bytes up to the limit of one control group, sys.maxsize without a limit.

    The page cache of files counts as free: the kernel drops it before it refuses memory.
    """
    try:
        limit = int((group / "memory.max").read_text())  # "max", a ValueError, is no limit
        cache = re.search(r"^inactive_file (\d+)$", (group / "memory.stat").read_text(), re.MULTILINE)
        return limit - int((group / "memory.current").read_text()) + int(cache[1] if cache else 0)
    except (OSError, ValueError):
        return sys.maxsize
