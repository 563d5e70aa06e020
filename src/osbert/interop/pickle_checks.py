"""Checks of a PyTorch file before torch reads it: the names in its pickle, and the memory that its parts need.

`torch.load(weights_only=True)` runs no code, but it allocates byte arrays and tensors of any size that a pickle states,
and it decompresses parts. A file of weights needs neither.
"""

from __future__ import annotations

import pickletools
import re
import struct
import tarfile
import zipfile
from collections import Counter
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
REFUSED = {"STACK_GLOBAL", "EXT1", "EXT2", "EXT4", "NEWOBJ", "NEWOBJ_EX", "OBJ"}
"""Instructions that name something by other means than a line of text, or that make an object."""
STEPS = 2_000_000
"""Most instructions of a pickle; a tensor takes about 20."""
PICKLES = 5
"""Pickles at the beginning of a file of PyTorch before 1.6: two numbers, the machine, the tensors and their keys."""
ZIP = b"PK\3\4"
"""The first bytes of a zip archive that has a part."""
_END, _LOCATOR, _RECORD = struct.Struct("<4s4H2LH"), struct.Struct("<4sLQL"), struct.Struct("<4sQ2H2L4Q")
"""The records at the end of a zip archive: ZIP64's record and its locator come before the end record."""
_TAIL = _RECORD.size + _LOCATOR.size + _END.size
_UNKNOWN = 2**32 - 1
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
    # As torch.load decides: by the first bytes alone. A zip's list of parts is at the end, so a file can be both.
    begins_as_zip = file.read(len(ZIP)) == ZIP
    file.seek(0)
    if begins_as_zip:
        _check_archive(file, size)
        return
    _refuse_tar(file)
    for _ in range(PICKLES):
        _check_steps(file)


def _refuse_tar(file: IO[bytes]) -> None:
    """Raise ValueError if torch would take the file for an archive of its first releases; else go to its start."""
    try:
        tarfile.TarFile(fileobj=file).close()
    except tarfile.TarError:
        file.seek(0)
    else:
        raise ValueError("it is a tar archive, as PyTorch wrote before 2017")


def _check_archive(file: IO[bytes], size: int) -> None:
    _require_one_list(file, size)
    with zipfile.ZipFile(file) as archive:
        parts = archive.infolist()
        # A compressed part could expand to any size.
        if any(part.compress_type != zipfile.ZIP_STORED for part in parts):
            raise ValueError("its parts are compressed, which PyTorch's are not")
        if sum(part.file_size for part in parts) > size:
            raise ValueError("its parts are together larger than the file")
        # torch finds parts whatever the case of their names, and a name ends for it at the first zero.
        if any("\0" in part.orig_filename for part in parts):
            raise ValueError("the name of a part has a zero in it")
        if repeated := [name for name, count in Counter(part.filename.lower() for part in parts).items() if count > 1]:
            raise ValueError(f"it has the part {repeated[0]} twice, in upper or lower case")
        for part in parts:
            if part.filename.lower().endswith(".pkl"):
                with archive.open(part) as pickle:
                    _check_steps(pickle)


def _require_one_list(file: IO[bytes], size: int) -> None:
    """Raise ValueError unless the list of parts lies where every reader of zip archives looks for it.

    The list ends where its end record begins (APPNOTE.TXT, 4.3.16; with ZIP64, 4.3.14 and 4.3.15), the last thing in
    the file. Of other files torch and zipfile could read different lists.
    """
    file.seek(max(size - _TAIL, 0))
    tail = file.read(_TAIL)
    file.seek(0)
    end = size - _END.size
    mark, _, _, _, _, length, start, comment = _END.unpack(tail[-_END.size :])
    if (locator := _LOCATOR.unpack(tail[_RECORD.size : -_END.size]))[0] == b"PK\6\7":
        end -= _LOCATOR.size + _RECORD.size
        record = _RECORD.unpack(tail[: _RECORD.size])
        if record[0] != b"PK\6\6" or locator[2] != end:
            raise ValueError("its end is not that of a zip archive")
        # In the old record a number is the same, or "see the other one".
        old = (_UNKNOWN if length == _UNKNOWN else record[8], _UNKNOWN if start == _UNKNOWN else record[9])
        if (length, start) != old:
            raise ValueError("its two end records differ")
        length, start = record[8:]
    if mark != b"PK\5\6" or comment or start + length != end:
        raise ValueError("its list of parts is not at its end")


def _check_steps(pickle: IO[bytes]) -> None:
    for count, (step, argument, _) in enumerate(pickletools.genops(pickle)):
        if count > STEPS:
            raise ValueError(f"its pickle has more than {STEPS:,} instructions")
        if step.name in ("GLOBAL", "INST") and not NAMED.fullmatch(str(argument)):
            raise ValueError(f"its pickle names {str(argument).replace(' ', '.')}, which does not belong to weights")
        if step.name in REFUSED:
            raise ValueError(f"its pickle has the instruction {step.name}, which does not belong to weights")
