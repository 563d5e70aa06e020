"""Weight files: tensors by name from safetensors or PyTorch files, whole or in shards, and back, atomically."""

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
"""Most bytes of a safetensors header, which has about 100 for a tensor."""


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """Return all tensors of a folder's weights, on the CPU.

    Looks for model.safetensors, its shards, pytorch_model.bin, its shards, in this order. Raises UserError when there
    are none, when a shard is missing, when a file is cut short or otherwise unreadable, or when a number is NaN or
    infinite.
    """
    for name in (SAFE, PICKLED):
        whole, index = folder / name, folder / f"{name}.index.json"
        if whole.is_file():
            return read_file(whole)
        if index.is_file():
            return _read_shards(index)
    foreign = [name for name in FOREIGN if (folder / name).is_file()]
    found = f" ({foreign[0]} is another framework's.)" if foreign else ""
    raise UserError(
        f"{folder} holds no weights: neither {SAFE} nor {PICKLED}, whole or in shards.{found}", code="not-a-model"
    )


def read_file(path: Path) -> dict[str, Tensor]:
    """Return the tensors of one .safetensors or .bin file.

    Raises UserError when it is cut short or unreadable, and when a number in it is NaN or infinite.
    """
    tensors = _tensors(path)
    require_finite({path: tensors.items()})
    return tensors


def require_finite(files: Mapping[Path, Iterable[tuple[str, Tensor]]]) -> None:
    """Raise UserError that lists the tensors, by file and name, that are not finite numbers in float32.

    A model holds its weights in float32, so a float64 of 1e300 is infinite there.
    """
    problems = Problems(heading="These weights cannot be used: a model holds finite numbers in float32")
    for path, tensors in files.items():
        for name, tensor in tensors:
            if fault := _fault(tensor):
                problems.add(f"{path}: {name}, {fault}", code="not-finite")
    problems.stop_if_any()


def _fault(tensor: Tensor) -> str:
    """Return why a model cannot hold a tensor, and what to do; "" if it can."""
    if not _castable(tensor.dtype):
        return f"of {tensor.dtype}, which has no numbers in float32. Convert it where the file was made."
    if count := _broken(tensor):
        return (
            f"{count:,} of {tensor.numel():,} numbers are NaN or infinite. Copy the file again; if that does not "
            "help, their training has failed."
        )
    return ""


def _castable(dtype: torch.dtype) -> bool:
    """Return whether torch makes float32 of a dtype. Of packed ones, such as two 4-bit floats in a byte, it does not.

    A complex number would lose its imaginary part.
    """
    try:
        return not dtype.is_complex and torch.empty(1, dtype=dtype).float().dtype == torch.float32
    except RuntimeError:
        return False


def _broken(tensor: Tensor) -> int:
    """Return how many numbers of a tensor are NaN or infinite in float32."""
    if not tensor.is_floating_point():
        return 0
    # One NaN or infinity makes the sum NaN or infinite. A sum can overflow without one: then every number is tested.
    if torch.isfinite(tensor.sum(dtype=torch.float32)):
        return 0
    return int((~torch.isfinite(tensor.float())).sum())  # as float32 also since torch has no such test of float8


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
        except Exception as error:  # what damage makes of a header has no one class
            raise UserError(
                f"{path}: not a readable safetensors file: {error}. Copy or download it again.", code="damaged-file"
            ) from error
    try:
        check_pickle(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # a damaged pickle is another program, which fails in any way
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
    """Return a hash of tensors with their names, in whichever files they were."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def write_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write a .safetensors file that is either there whole or not at all; OSError when it cannot be."""
    require_utf8(path)
    whole = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
    try:
        replace_file(path, lambda temporary: save_file(whole, temporary, metadata={"format": "pt"}))
    except SafetensorError as error:
        raise system_error(error, path) from error


def _read_shards(index: Path) -> dict[str, Tensor]:
    shards = read_object(index).get("weight_map")
    if not isinstance(shards, dict):
        raise UserError(f"{index}: has no weight_map that says which file holds which tensor.", code="damaged-file")
    problems = Problems(heading=f"{index} names files that cannot be", shown=5)
    for tensor, name in shards.items():
        if not isinstance(name, str) or not name or Path(name).name != name:
            problems.add(f"{tensor} is said to be in {name!r}, which is no file's name.", code="damaged-file")
    problems.stop_if_any()
    names = sorted(set(shards.values()))
    if len(names) > MOST_SHARDS:
        raise UserError(
            f"{index} names {len(names):,} files; weights are in at most {MOST_SHARDS:,}.", code="too-large"
        )
    missing = [name for name in names if not (index.parent / name).is_file()]
    if missing:
        shown = ", ".join(missing[:5]) + (f" and {len(missing) - 5:,} others" if len(missing) > 5 else "")
        raise UserError(
            f"{index.parent} lacks {shown}, named in {index.name}. Copy or download them.", code="missing-file"
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
    """Compare the size with what the header promises, so that a broken copy is called that, with its numbers."""
    size = path.stat().st_size
    with path.open("rb") as file:
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
