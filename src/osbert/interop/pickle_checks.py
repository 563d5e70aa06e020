"""Checks of a PyTorch file before torch reads it: the names in its pickle, and the memory that its parts need.

`torch.load(weights_only=True)` runs no code, but it allocates byte arrays and tensors of any size that a pickle states,
and it decompresses parts. A file of weights needs neither.
"""

from __future__ import annotations

import pickletools
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import torch
from torch import Tensor

NAMED = re.compile(
    r"collections OrderedDict|torch\.nn\.parameter Parameter|torch Size|torch (\w+Storage|u?int\d+|b?float\d+\w*|bool)"
    r"|torch\.storage \w+Storage|torch\._utils _rebuild_(tensor|tensor_v2|tensor_v3|parameter)"
)
"""The names that occur in a pickle of a state_dict."""
STEPS = 2_000_000
"""Most instructions of a pickle; a tensor takes about 20."""
PICKLES = 5
"""Pickles at the beginning of a file of PyTorch before 1.6: two numbers, the machine, the tensors and their keys."""
SHARED = 4
"""Most bytes of tensors per byte of the file. Above 1, since tied tensors and views share their storage."""


def check_pickle(path: Path) -> None:
    """Raise ValueError if a file contains something that no file of weights contains."""
    with path.open("rb") as file:
        try:
            _check(file, path.stat().st_size)
        except (ValueError, MemoryError):
            raise
        except Exception as error:  # damaged archives and pickles raise errors of many classes
            raise ValueError(f"its parts cannot be found ({error})") from error


def check_tensors(tensors: Mapping[str, Tensor], size: int) -> None:
    """Raise ValueError if tensors from a file of `size` bytes would take far more memory once copied."""
    for name, tensor in tensors.items():
        if tensor.layout != torch.strided or tensor.device.type != "cpu":
            raise ValueError(f"{name} is no plain tensor")
        # Strides of 0 make a huge tensor from a small storage.
        if tensor.nbytes > tensor.untyped_storage().nbytes():
            raise ValueError(f"{name} {tuple(tensor.shape)} repeats a part of itself")
    if (total := sum(tensor.nbytes for tensor in tensors.values())) > SHARED * size:
        raise ValueError(f"its tensors have {total:,} bytes, the file {size:,}")


def _check(file: IO[bytes], size: int) -> None:
    # Files of PyTorch before 1.6 are pickles in a row, later ones a zip archive.
    if not zipfile.is_zipfile(file):
        file.seek(0)
        for _ in range(PICKLES):
            _check_steps(file)
        return
    with zipfile.ZipFile(file) as archive:
        parts = archive.infolist()
        # A compressed part could expand to any size.
        if any(part.compress_type != zipfile.ZIP_STORED for part in parts):
            raise ValueError("its parts are compressed, which PyTorch's are not")
        if sum(part.file_size for part in parts) > size:
            raise ValueError("its parts are together larger than the file")
        for part in parts:
            if part.filename.endswith(".pkl"):
                with archive.open(part) as pickle:
                    _check_steps(pickle)


def _check_steps(pickle: IO[bytes]) -> None:
    for count, (step, argument, _) in enumerate(pickletools.genops(pickle)):
        if count > STEPS:
            raise ValueError(f"its pickle has more than {STEPS:,} instructions")
        if step.name in ("GLOBAL", "INST") and not NAMED.fullmatch(str(argument)):
            raise ValueError(f"its pickle names {str(argument).replace(' ', '.')}, which does not belong to weights")
