"""Where the computing is done and in which precision: "auto" made definite."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Literal

import torch

from osbert.errors import UserError

Precision = Literal["auto", "fp32", "bf16"]


@dataclass(frozen=True, kw_only=True)
class Processor:
    """A device and the precision of the products made on it; weights and sums stay in float32."""

    device: torch.device
    precision: Literal["fp32", "bf16"]

    def __str__(self) -> str:
        """Return for example "cpu fp32"."""
        return f"{self.device} {self.precision}"

    @property
    def generator(self) -> torch.Generator:
        """Return the generator that dropout draws from on this device."""
        if self.device.type == "cuda":
            index = torch.cuda.current_device() if self.device.index is None else self.device.index
            return torch.cuda.default_generators[index]
        return torch.default_generator

    def autocast(self) -> contextlib.AbstractContextManager[object]:
        """Return a context in which matrix products are made in this precision."""
        if self.precision == "fp32":
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)


def choose(device: str = "auto", precision: Precision = "auto") -> Processor:
    """Return the processor meant: "auto" is a CUDA GPU where there is one, and bf16 where the processor truly has it.

    A CPU without bf16 instructions only imitates it, more slowly than float32. Raises UserError when there is no such
    device.
    """
    try:
        place = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device)
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        what = str(error).strip().splitlines()[0]
        raise UserError(f"device '{device}' cannot be used: {what} Use cpu, cuda, cuda:N or auto.") from error
    if precision == "auto":
        precision = "bf16" if has_bf16(place) else "fp32"
    return Processor(device=place, precision=precision)


def has_bf16(device: torch.device) -> bool:
    """Return whether a device has instructions for bf16 products."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type == "cpu":
        return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return False
