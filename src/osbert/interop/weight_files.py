"""Weight files: reads safetensors and PyTorch files, whole or in shards, and writes safetensors atomically."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from osbert import guarded
from osbert.errors import Problems, UserError
from osbert.files import replace_file, require_utf8, system_error
from osbert.interop.json_files import read_object
from osbert.interop.pickle_checks import check_pickle, check_tensors

SAFE = "model.safetensors"
PICKLED = "pytorch_model.bin"
FOREIGN = ("tf_model.h5", "flax_model.msgpack", "model.ckpt.index", "bert_model.ckpt.index", "model.onnx")
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
    if not _castable(tensor.dtype):
        return f"of {tensor.dtype}, which has no numbers in float32. Convert it where the file was made."
    if count := _broken(tensor):
        return (
            f"{count:,} of {tensor.numel():,} numbers are NaN or infinite. Copy the file again; if that does not "
            "help, their training has failed."
        )
    return ""


def _castable(dtype: torch.dtype) -> bool:
    """Return whether torch converts a dtype to float32 without loss of meaning.

    It cannot for packed types, such as two 4-bit floats in a byte; complex numbers would lose their imaginary part.
    """
    try:
        return not dtype.is_complex and torch.empty(1, dtype=dtype).float().dtype == torch.float32
    except RuntimeError:
        return False


def _broken(tensor: Tensor) -> int:
    """Return the number of elements of a tensor that are NaN or infinite in float32."""
    if not tensor.is_floating_point():
        return 0
    # One NaN or infinity makes the sum NaN or infinite. A sum can overflow without one: then every number is tested.
    if torch.isfinite(tensor.sum(dtype=torch.float32)):
        return 0
    return int((~torch.isfinite(tensor.float())).sum())  # as float32, since torch has no isfinite for float8


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
        digest.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
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
    absent = sorted(set(shards) - set(tensors))
    if absent:
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
