"""Files of sharded tensors: each process writes its own shards, and any number of processes reads them.

By torch.distributed.checkpoint, in its form for safetensors (its other one is a pickle, which runs what it contains).
The header of each file says where its shards lie within the full tensors, so no process ever needs a full one.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor
from torch.distributed import checkpoint
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from osbert.files import sync


def write_shards(folder: Path, rank: int, tensors: Mapping[str, Tensor]) -> list[Path]:
    """Write this process's shards; return its files, none if all of its shards are empty. All processes call.

    A tensor that is not sharded must be the same in all processes, and one of them writes it. Raises OSError in all
    processes if the write fails in one.
    """
    try:
        checkpoint.save(dict(tensors), storage_writer=HuggingFaceStorageWriter(str(folder), save_distributed=True))
    except CheckpointException as error:  # a BaseException of torch's
        raise OSError(
            "; ".join(f"process {process}: {failure[0]}" for process, failure in error.failures.items())
        ) from error
    sync(folder)
    return sorted(folder.glob(f"shard-{rank + 1:05d}-*"))


def read_shards(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Fill tensors, sharded ones too, with what other shards of them hold in files. All processes call."""
    _quietly_load(folder, tensors, no_dist=False)


def read_whole(folder: Path) -> dict[str, Tensor]:
    """Return all tensors in full, in this process alone."""
    tensors = {name: torch.empty(size, dtype=dtype) for name, (size, dtype) in shapes(folder).items()}
    _quietly_load(folder, tensors, no_dist=True)
    return tensors


def shapes(folder: Path) -> dict[str, tuple[torch.Size, torch.dtype]]:
    """Return shape and type of each full tensor."""
    tensors = HuggingFaceStorageReader(str(folder)).read_metadata().state_dict_metadata
    return {
        name: (metadata.size, metadata.properties.dtype)
        for name, metadata in tensors.items()
        if isinstance(metadata, TensorStorageMetadata)
    }


def _quietly_load(folder: Path, tensors: Mapping[str, Tensor], *, no_dist: bool) -> None:
    with warnings.catch_warnings():
        # That a single process loads is what is meant here.
        warnings.filterwarnings("ignore", message="torch.distributed is disabled", category=UserWarning)
        checkpoint.load(dict(tensors), storage_reader=HuggingFaceStorageReader(str(folder)), no_dist=no_dist)
