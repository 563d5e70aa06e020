"""Batches as .npz files: to inspect them, or to evaluate on them again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from osbert.data.batch import TOKEN_COLUMNS, Batch, BatchTarget
from osbert.errors import UserError
from osbert.files import replace_file
from osbert.guarded import require_regular

COLUMNS = (*TOKEN_COLUMNS, "starts", "records")
LABELS = ("labels", "index", "weights")
SOURCE = "source"


def write_batches(path: Path, batches: Sequence[Batch]) -> None:
    """Write batches atomically, as arrays "0.ids", "0.lengths", "0.mlm.labels" and so on; 0 is the first batch."""
    arrays: dict[str, np.ndarray] = {}
    for number, batch in enumerate(batches):
        arrays |= _columns(f"{number}", batch)
        if batch.source is not None:
            arrays |= _columns(f"{number}.{SOURCE}", batch.source)
        for name, target in batch.targets.items():
            arrays |= _arrays(f"{number}.{name}", target, LABELS)
            arrays[f"{number}.{name}.per_token"] = np.array(target.per_token)
            arrays[f"{number}.{name}.count"] = np.array(target.count)
    path.parent.mkdir(parents=True, exist_ok=True)

    def write(aside: Path) -> None:
        with aside.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)

    replace_file(path, write)


def read_batches(path: Path) -> list[Batch]:
    """Read the batches of a file. Raises UserError if it is damaged or not a file of batches."""
    try:
        require_regular(path)
        with path.open("rb") as handle, np.load(handle, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        # Batches are numbered without gaps, so the number of distinct prefixes is their number.
        count = len({name.partition(".")[0] for name in arrays})
        return [_batch(arrays, f"{number}.") for number in range(count)]
    except Exception as error:  # numpy and zipfile raise many kinds, all of which mean the same
        raise UserError(
            f"{path}: no file of batches, or a damaged one ({error}). Remove it.", code="damaged-file"
        ) from error


def _columns(prefix: str, batch: Batch) -> dict[str, np.ndarray]:
    """Return the arrays of a batch without its targets and its source."""
    sizes = {f"{prefix}.lengths": np.array(batch.lengths), f"{prefix}.together": np.array(batch.together)}
    return sizes | _arrays(prefix, batch, COLUMNS)


def _arrays(prefix: str, owner: object, names: Sequence[str]) -> dict[str, np.ndarray]:
    columns = {name: getattr(owner, name) for name in names}
    return {f"{prefix}.{name}": value.numpy() for name, value in columns.items() if value is not None}


def _batch(arrays: dict[str, np.ndarray], prefix: str) -> Batch:
    batch_arrays = {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}
    # What has a dot in its name belongs to a target ("mlm.labels") or to the source ("source.ids").
    names = {name.rpartition(".")[0] for name in batch_arrays if "." in name} - {SOURCE}
    source = _batch(batch_arrays, f"{SOURCE}.") if f"{SOURCE}.lengths" in batch_arrays else None
    columns: dict[str, Any] = {name: _tensor(batch_arrays, name) for name in COLUMNS}
    lengths = tuple(batch_arrays["lengths"].tolist())
    columns["together"] = bool(batch_arrays["together"])
    targets = {name: _target(batch_arrays, f"{name}.") for name in sorted(names)}
    return Batch(lengths=lengths, targets=targets, source=source, **columns)


def _target(batch_arrays: dict[str, np.ndarray], prefix: str) -> BatchTarget:
    columns: dict[str, Any] = {name: _tensor(batch_arrays, prefix + name) for name in LABELS}
    return BatchTarget(
        per_token=bool(batch_arrays[f"{prefix}per_token"]), count=float(batch_arrays[f"{prefix}count"]), **columns
    )


def _tensor(batch_arrays: dict[str, np.ndarray], name: str) -> Tensor | None:
    return torch.from_numpy(batch_arrays[name]) if name in batch_arrays else None
