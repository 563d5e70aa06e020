"""A corpus on an object store that is larger than the cache: its blocks are fetched when they are read.

The files that divide shards into sentences and documents, and all small ones, are copied and held while the corpus is
read. Of the pieces each block is an entry of the cache: fetched when it is first read, evicted by least recent use, and
read into memory whole, so that nothing of it is mapped. Whole shards would not do: the order of an epoch is random, so
that nearly every block is of another shard than the one before.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osbert.corpus import integrity
from osbert.corpus.shards import MANIFEST, PIECES, Corpus, read_manifest
from osbert.errors import Problems, UserError
from osbert.files import sync, whole_folder
from osbert_lab.object_stores.addresses import REQUESTS, Listing, ObjectAddress, StoredObject, retry
from osbert_lab.object_stores.cache import bound, cache_folder, make_room
from osbert_lab.object_stores.output_folders import BEGUN

LARGE = tuple(f"*/{name}" for name in PIECES)
"""Patterns of the names that are not copied."""
BLOCK = "block"
"""The file of an entry of the cache."""
ROOM = 16
"""The cache is asked for room for this part of its bound at a time, because looking through its entries takes long."""


def open_corpus(given: Path | str, *, whole: bool = True) -> Corpus:
    """Open a corpus as a copy, or by blocks if it is larger than the cache, or not `whole`.

    Raises UserError for a corpus that is not whole, and if the store cannot be read.
    """
    address = ObjectAddress.of(given)
    assert address is not None
    listing = address.listing(address.open_store(), ())
    if whole and MANIFEST in listing and sum(stored_object.size for stored_object in listing.values()) <= bound():
        return Corpus.open(address.fetch())
    return open_by_blocks(address, listing)


def open_by_blocks(address: ObjectAddress, listing: Listing) -> Corpus:
    """Open a corpus whose pieces stay in the store.

    Raises UserError with each file that is missing there, or of another size.
    """
    if MANIFEST not in listing:
        hint = "its upload was not finished: give its command again" if BEGUN in listing else "see the address"
        raise UserError(f"{address.url}: there is no corpus ({MANIFEST} is missing); {hint}.", code="not-a-model")
    folder = address.fetch(LARGE)
    manifest = read_manifest(folder)
    problems = Problems(heading=f"{address.url}: the corpus on the store is incomplete; upload it again")
    for path, written in integrity.files(folder, manifest):
        name = path.relative_to(folder).as_posix()
        if name not in listing:
            problems.add(f"{address.url}/{name}: missing", code="damaged-file")
        elif (size := listing[name].size) != written["bytes"]:
            problems.add(f"{address.url}/{name}: {size:,} bytes, must be {written['bytes']:,}", code="damaged-file")
    problems.stop_if_any()
    objects = {name: stored_object for name, stored_object in listing.items() if name.rpartition("/")[2] in PIECES}
    return Corpus(folder, manifest, StoredPieces(address, objects))


@dataclass
class _Room:
    """Bytes that may still be written before the cache is asked for room again."""

    left: int = 0
    writing: int = 0
    """Bytes that other threads are writing, which the cache does not count yet."""
    refused: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


class StoredPieces:
    """The pieces of a corpus in a store. `objects`: those that hold them, as they were when the corpus was opened."""

    def __init__(self, address: ObjectAddress, objects: Listing) -> None:
        """Open nothing yet: each process opens the store when it first reads."""
        self.address = address
        self.objects = objects
        self.room = _Room()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what another process needs to open the store itself."""
        return StoredPieces, (self.address, self.objects)

    @cached_property
    def files(self) -> Any:
        """fsspec's file system."""
        return self.address.open_store()

    def arrays(self, shard: Mapping[str, Any], vocabulary: int) -> Mapping[str, StoredArray]:
        """Return the arrays of a shard by name."""
        ids = np.dtype("<u2" if vocabulary <= 1 << 16 else "<u4")
        lengths = {"ids.npy": shard["tokens"], "words.npy": -(-shard["tokens"] // 8)}
        return {
            name.removesuffix(".npy"): StoredArray(
                pieces=self,
                name=f"{shard['name']}/{name}",
                length=lengths.get(name, lengths["words.npy"]),
                dtype=ids if name == "ids.npy" else np.dtype(np.uint8),
            )
            for name in PIECES
            if name in shard["files"]
        }

    def prepare(self, reads: Sequence[Callable[[], None]]) -> None:
        """Do some reads, several at a time: a block takes as long to ask for as to fetch."""
        with ThreadPoolExecutor(REQUESTS) as pool:
            for _ in pool.map(lambda read: read(), reads):
                pass

    def fetch(self, name: str, start: int, end: int) -> bytes:
        """Return the bytes [start, end) of an object, of the cache or the store. Raises UserError if it has changed."""
        facts = [os.environ.get("AWS_ENDPOINT_URL", ""), self.address.url, name, self.objects[name].tag, start, end]
        entry = cache_folder() / hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:24]
        with suppress(OSError):  # not there, or just evicted
            data = (entry / BLOCK).read_bytes()
            if len(data) == end - start:
                os.utime(entry)
                return data
        data = self.address.part(self.files, name, start, end)
        self._require_same(name)
        with suppress(OSError, UserError):  # without room in the cache a block is only read
            self._keep(entry, data)
        return data

    def _require_same(self, name: str) -> None:
        with self.address.explain_errors("read"):
            current_object = StoredObject.of(retry(partial(self.files.info, f"{self.address.path}/{name}")))
        if current_object != self.objects[name]:
            raise UserError(
                f"{self.address.url}/{name} has changed since the command began. Give the command again.",
                code="file-changed",
            )

    def _keep(self, entry: Path, data: bytes) -> None:
        with self.room.lock:
            if self.room.left < len(data):
                wanted = max(len(data), bound() // ROOM)
                self.room.left = wanted
                try:
                    make_room(wanted + self.room.writing, self.address.url)
                    self.room.refused = False
                except (OSError, UserError):  # asked again when as much has been read
                    self.room.refused = True
            self.room.left -= len(data)
            if self.room.refused:
                return
            self.room.writing += len(data)
        try:
            with whole_folder(entry) as aside:
                (aside / BLOCK).write_bytes(data)
                sync(aside / BLOCK)
        finally:
            with self.room.lock:
                self.room.writing -= len(data)


@dataclass(frozen=True, kw_only=True)
class StoredArray:
    """A one-dimensional array in an .npy file of a store, of which slices can be taken."""

    pieces: StoredPieces
    name: str
    length: int
    dtype: np.dtype[Any]

    def __getitem__(self, item_slice: slice) -> NDArray[Any]:
        """Return the items [start, stop), fetched if they are not in the cache."""
        start, stop, _ = item_slice.indices(self.length)
        if start >= stop:
            return np.empty(0, self.dtype)
        width = self.dtype.itemsize
        before = self.pieces.objects[self.name].size - self.length * width  # the header of the file
        data = self.pieces.fetch(self.name, before + start * width, before + stop * width)
        return np.frombuffer(data, self.dtype)
