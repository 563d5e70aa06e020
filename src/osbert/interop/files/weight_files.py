"""Weight files: reads safetensors and PyTorch files, whole or in shards, and writes safetensors atomically.

A PyTorch file is checked before torch reads it: the names in its pickle, and the memory that its parts need.
"""

from __future__ import annotations

import hashlib
import pickletools
import re
import struct
import tarfile
import zipfile
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from osbert import guarded
from osbert.errors import Problems, UserError
from osbert.files import replace_file, require_utf8, system_error
from osbert.guarded import read_object

ONNX = "model.onnx"
"""The file of an export."""
SAFE = "model.safetensors"
PICKLED = "pytorch_model.bin"
FOREIGN = ("tf_model.h5", "flax_model.msgpack", "model.ckpt.index", "bert_model.ckpt.index", "model.onnx")
ADAPTER = "adapter_config.json"
"""The file of an adapter of PEFT, whose weights lie beside those of its model or in a folder of their own."""
MERGING = "merge it into its model (PEFT's merge_and_unload) and save that."
MOST_SHARDS = 10_000
LARGEST_HEADER = 1 << 23
"""Largest safetensors header in bytes; it has about 100 for each tensor."""


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """Return all tensors of a folder's weights, on the CPU.

    Looks for model.safetensors, its shards, pytorch_model.bin, its shards, in this order. Raises UserError if there
    are none, if a shard is missing, if a file is truncated or unreadable, or if a number is NaN or infinite.
    """
    for name in (SAFE, PICKLED):
        whole, index = folder / name, folder / f"{name}.index.json"
        if whole.is_file():
            return read_file(whole)
        if index.is_file():
            return _read_shards(index)
    foreign = [name for name in FOREIGN if (folder / name).is_file()]
    remark = f" ({foreign[0]} is another framework's.)" if foreign else ""
    if (folder / ADAPTER).is_file():
        remark = f" It holds an adapter of PEFT alone ({ADAPTER}): {MERGING}"
    raise UserError(
        f"{folder} holds no weights: neither {SAFE} nor {PICKLED}, whole or in shards.{remark}", code="not-a-model"
    )


def read_file(path: Path) -> dict[str, Tensor]:
    """Return the tensors of one .safetensors or .bin file.

    Raises UserError if it is truncated or unreadable, or if a number is NaN or infinite.
    """
    tensors = _tensors(path)
    require_finite({path: tensors.items()})
    return tensors


def require_finite(files: Mapping[Path, Iterable[tuple[str, Tensor]]]) -> None:
    """Raise UserError that lists, by file and name, the tensors with numbers that are not finite in float32.

    Weights are converted to float32, in which a float64 of 1e300 is infinite.
    """
    problems = Problems(heading="These weights cannot be used: a model holds finite numbers in float32")
    for path, tensors in files.items():
        for name, tensor in tensors:
            if fault := _fault(tensor):
                problems.add(f"{path}: {name}, {fault}", code="not-finite")
    problems.stop_if_any()


def _fault(tensor: Tensor) -> str:
    """Describe why a tensor cannot be a weight, and what to do; "" if it can."""
    try:
        # Packed types, such as two 4-bit floats in a byte, cannot be cast; complex numbers would lose a part.
        castable = not tensor.is_complex() and torch.empty(1, dtype=tensor.dtype).float().dtype == torch.float32
    except RuntimeError:
        castable = False
    if not castable:
        return f"of {tensor.dtype}, which has no numbers in float32. Convert it where the file was made."
    # One NaN or infinity makes the sum NaN or infinite. A sum can overflow without one: then every number is tested.
    if not tensor.is_floating_point() or torch.isfinite(tensor.sum(dtype=torch.float32)):
        return ""
    count = int((~torch.isfinite(tensor.float())).sum())  # as float32, since torch has no isfinite for float8
    remedy = "Copy the file again; if that does not help, their training has failed."
    return f"{count:,} of {tensor.numel():,} numbers are NaN or infinite. {remedy}" if count else ""


def _tensors(path: Path) -> dict[str, Tensor]:
    guarded.require_regular(path)
    if path.suffix == ".safetensors":
        require_utf8(path)
        _check_size(path)
        try:
            with guarded.native(path):
                return dict(load_file(path))
        except (OSError, MemoryError, UserError):
            raise
        except Exception as error:  # a damaged header raises errors of many classes
            raise UserError(
                f"{path}: not a readable safetensors file: {error}. Copy or download it again.", code="damaged-file"
            ) from error
    try:
        check_pickle(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # a damaged pickle is an arbitrary program, which fails in any way
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(
            f"{path}: cannot be read as weights alone: {reason}. It is damaged or holds code; "
            f"copy it again, or convert it to {SAFE} where it is trusted.",
            code="damaged-file",
        ) from error
    if not isinstance(state, dict) or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in state.items()
    ):
        raise UserError(f"{path}: expected a dictionary of tensors.", code="damaged-file")
    try:
        check_tensors(state, path.stat().st_size)
    except ValueError as error:
        raise UserError(f"{path}: {error}. It is damaged: copy or download it again.", code="damaged-file") from error
    return dict(state)


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """Return a hash of tensors and their names, which does not depend on the files that held them."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def write_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write a .safetensors file atomically. Raises OSError if that fails."""
    require_utf8(path)
    # Copied even on the CPU: safetensors rejects tensors that share memory.
    whole = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
    try:
        replace_file(path, lambda temporary: save_file(whole, temporary, metadata={"format": "pt"}))
    except SafetensorError as error:
        raise system_error(error, path) from error


def _read_shards(index: Path) -> dict[str, Tensor]:
    shards = read_object(index).get("weight_map")
    if not isinstance(shards, dict):
        raise UserError(f"{index}: has no weight_map that says which file holds which tensor.", code="damaged-file")
    problems = Problems(heading=f"{index} names files that cannot be", limit=5)
    for tensor, name in shards.items():
        if not isinstance(name, str) or not name or Path(name).name != name:
            problems.add(f"{tensor} is mapped to {name!r}, which is not the name of a file.", code="damaged-file")
    problems.stop_if_any()
    names = sorted(set(shards.values()))
    if len(names) > MOST_SHARDS:
        raise UserError(
            f"{index} names {len(names):,} files; weights are in at most {MOST_SHARDS:,}.", code="too-large"
        )
    missing = [name for name in names if not (index.parent / name).is_file()]
    if missing:
        missing_list = ", ".join(missing[:5]) + (f" and {len(missing) - 5:,} others" if len(missing) > 5 else "")
        raise UserError(
            f"{index.parent} lacks {missing_list}, named in {index.name}. Copy or download them.", code="missing-file"
        )
    files = {index.parent / name: _tensors(index.parent / name) for name in names}
    require_finite({path: held.items() for path, held in files.items()})
    tensors = {name: tensor for held in files.values() for name, tensor in held.items()}
    if absent := sorted(set(shards) - set(tensors)):
        raise UserError(
            f"{index} promises {len(absent)} tensors that its files do not hold, first {absent[0]}.",
            code="damaged-file",
        )
    return tensors


def _check_size(path: Path) -> None:
    """Raise UserError if the file is shorter than its header says: the message then names a truncated copy."""
    size = path.stat().st_size
    with path.open("rb") as file:
        # A safetensors file: 8 bytes with the header's length, the header as JSON, then the data.
        if (length := int.from_bytes(file.read(8), "little")) > LARGEST_HEADER and length + 8 <= size:
            raise UserError(
                f"{path}: its header has {length:,} bytes; one has at most {LARGEST_HEADER:,}.", code="too-large"
            )
        header = file.read(length) if length + 8 <= size else b""
    try:
        tensors = guarded.parse_json(header.decode())
        ends = [tensor["data_offsets"][1] for name, tensor in tensors.items() if name != "__metadata__"]
        promised = 8 + length + max(ends, default=0)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path}: the file is cut short, or no safetensors file: its {size:,} bytes hold no whole header. "
            "Copy or download it again.",
            code="damaged-file",
        ) from error
    if size < promised:
        raise UserError(
            f"{path}: the file is cut short: its header promises {promised:,} bytes, there are {size:,}. "
            "Copy or download it again.",
            code="damaged-file",
        )


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
"""In a number of the end record: ZIP64's record has the number."""
SHARED = 4
"""Most bytes of tensors per byte of the file. Above 1, since tied tensors and views share their storage."""


def check_pickle(path: Path) -> None:
    """Raise ValueError if a file contains something that no file of weights contains."""
    with path.open("rb") as file:
        try:
            # As torch.load decides: by the first bytes alone. A zip's list of parts is at the end, so a file can be
            # both.
            begins_as_zip = file.read(len(ZIP)) == ZIP
            file.seek(0)
            if begins_as_zip:
                _check_archive(file, path.stat().st_size)
            else:
                _refuse_tar(file)
                for _ in range(PICKLES):
                    _check_steps(file)
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
