"""The device and the precision of the computation; resolves "auto"."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from osbert.errors import UserError
from osbert.models.fast.threads import compute_alone_after_fork
from osbert.models.random_numbers import deterministic
from osbert.training.settings import Compile, Precision

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Options of glibc's mallopt (malloc.h): free bytes that are kept, and least bytes of a block with its own mmap."""


@dataclass(frozen=True, kw_only=True)
class Processor:
    """A device and the precision of matrix products on it; weights and sums are float32."""

    device: torch.device
    precision: Literal["fp32", "bf16"]

    def __str__(self) -> str:
        """Return the device and the precision, such as "cpu fp32"."""
        return f"{self.device} {self.precision}"

    @property
    def model(self) -> str:
        """Return the name of the GPU or CPU, on which the libraries' choice of kernels depends."""
        if self.device.type == "cuda":
            return torch.cuda.get_device_name(self.device)
        return cpu_model()

    @property
    def generator(self) -> torch.Generator:
        """Return torch's default generator of this device, which dropout uses."""
        if self.device.type == "cuda":
            index = torch.cuda.current_device() if self.device.index is None else self.device.index
            return torch.cuda.default_generators[index]
        return torch.default_generator

    def autocast(self) -> contextlib.AbstractContextManager[object]:
        """Return a context in which matrix products have this precision."""
        if self.precision == "fp32":
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    @contextlib.contextmanager
    def repeatable(self) -> Iterator[None]:
        """Make a GPU add up in the same order at each repetition, wherever torch has an operation that can.

        Sums of rows by index (mean states, choices, CRFs) and recurrent layers have a deterministic variant on a GPU.
        """
        if self.device.type == "cpu":
            yield
            return
        with deterministic("warn"), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "[^ ]+ does not have a deterministic implementation")
            yield


def cpu_model() -> str:
    """Return the name of the CPU from Linux or macOS; elsewhere the architecture."""
    facts = Path("/proc/cpuinfo")
    if facts.exists() and (match := re.search(r"^model name\s*:\s*(.+)$", facts.read_text(), re.MULTILINE)):
        return match[1]
    if sys.platform == "darwin":
        named = subprocess.run(["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True)
        if named.stdout.strip():
            return named.stdout.strip()
    return platform.processor() or platform.machine()


def choose(device: str = "auto", precision: Precision = "auto") -> Processor:
    """Resolve the settings: "auto" is a CUDA GPU if there is one, and bf16 if the processor has instructions for it.

    A CPU without such instructions only emulates bf16, more slowly than float32. Raises UserError if the device cannot
    be used.
    """
    compute_alone_after_fork()  # whoever asks for a device computes on it
    try:
        torch_device = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device)
        # Fails now, with a message, rather than in the middle of the start.
        torch.empty(0, dtype=torch.float32, device=torch_device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        what = str(error).strip().splitlines()[0].rstrip(".")
        if device.startswith("cuda") and not torch.cuda.is_available():
            what = f"there is no GPU that torch can use ({what})"
        raise UserError(
            f"device '{device}' cannot be used: {what}. Use cpu, cuda, cuda:N or auto.", code="unavailable-device"
        ) from error
    if precision == "auto":
        precision = "bf16" if has_bf16(torch_device) else "fp32"
    return Processor(device=torch_device, precision=precision)


def has_bf16(device: torch.device) -> bool:
    """Return whether a device has instructions for bf16 matrix products."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type == "cpu":
        return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return False


def compiles(wanted: Compile, device: torch.device) -> bool:
    """Return whether layers are compiled on a device: always, never, or only on GPUs (auto)."""
    return wanted == "yes" or (wanted == "auto" and device.type == "cuda")


def compile_layers(learner: nn.Module, wanted: Compile, device: torch.device) -> None:
    """Compile the layers of `learner`, the members of its module lists, at their first call, if `compiles`.

    All layers share one compilation. It is dynamic in the number of tokens, since batches differ in size.
    """
    if compiles(wanted, device):
        for module in learner.modules():
            for layer in module if isinstance(module, nn.ModuleList) else ():
                layer.compile(dynamic=True)


def keep_memory() -> bool:
    """Let glibc keep the memory of freed tensors for reuse. Returns whether that is possible.

    By default it returns blocks of 32 MB and more to the system at once, and new ones cause page faults: up to a tenth
    of a small model's training time.
    """
    try:
        settle = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return all(settle(option, 2**31 - 1) for option in (M_MMAP_THRESHOLD, M_TRIM_THRESHOLD))


def too_few_devices(device: str, processes: int) -> str:
    """Return a message if the machine has too few GPUs for its processes; "" if it has enough or none is used."""
    if processes == 1:
        return ""
    gpus, here = torch.cuda.device_count(), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if gpus < here and choose(device).device.type == "cuda":
        return f"{here} processes were started here, but there are {gpus} GPUs. Start as many, or give --device cpu."
    return ""
