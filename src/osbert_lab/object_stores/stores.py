"""What `osbert.remote` calls for addresses of object stores: files and folders in and out, and corpora."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from osbert_lab.object_stores.addresses import ObjectAddress
from osbert_lab.object_stores.output_folders import write_folder
from osbert_lab.object_stores.stored_corpus import open_corpus

__all__ = ["fetch", "open_corpus", "write_file", "write_folder"]


def fetch(given: Path | str, without: Sequence[str]) -> Path:
    """Return the path of a copy of an address; see `osbert.remote.local_copy`."""
    address = ObjectAddress.of(given)
    assert address is not None
    return address.fetch(without)


@contextmanager
def write_file(given: Path | str, inputs: Sequence[Path | str]) -> Iterator[Path]:
    """Yield the local path of an output at an address, uploaded when the block ends; see `local_output`."""
    address = ObjectAddress.of(given)
    assert address is not None
    with address.growing(inputs) as (files, folder):
        with address.naming(folder / address.name):
            yield folder / address.name
        address.upload(files, folder)
        shutil.rmtree(folder)
