"""Exact duplicates: finds lines and documents of a corpus that repeat earlier ones, and removes them from shards.

Lines are compared by the 64-bit hashes from encoding, documents by a hash of the hashes of their lines. Hashes are
partitioned on disk and one partition is sorted at a time, so memory does not grow with the corpus.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from osbert.corpus.shards import Shard

PARTITION = 1 << 22
"""Hashes per partition: about 200 MB of memory."""

_RECORD = np.dtype([("hash", "<u8"), ("place", "<u8")])
_STEP = np.uint64(0x9E3779B97F4A7C15)

Hashes = NDArray[np.uint64]


@dataclass(frozen=True, kw_only=True)
class Lines:
    """The l lines of one shard: `hashes` (l,), `starts` (l,) the first sentence of each, and the `documents` array."""

    hashes: Hashes
    starts: NDArray[np.uint32]
    documents: NDArray[np.uint32]


def first_occurrences(hashes: Iterable[Hashes], total: int, folder: Path) -> NDArray[np.bool_]:
    """Return a mask (total,), True at the first occurrence of each hash, memory-mapped in `folder`.

    The hashes come in several arrays with `total` elements together. They are distributed over files by value, each
    small enough to sort in memory.
    """
    folder.mkdir(parents=True, exist_ok=True)
    partitions = -(-total // PARTITION) or 1
    paths = [folder / f"partition-{number:05d}" for number in range(partitions)]
    for path in paths:
        path.write_bytes(b"")
    position = 0
    for array in hashes:
        for start in range(0, len(array), PARTITION):
            part = array[start : start + PARTITION]
            _spread(part, position, paths)
            position += len(part)
    keep = _falses(folder / "keep.npy", total)
    for path in paths:
        records = np.fromfile(path, _RECORD)
        order = np.argsort(records["hash"], kind="stable")  # stable: equal hashes stay in the order of their places
        ordered = records["hash"][order]
        # A sorted hash is a first occurrence if it differs from its predecessor.
        first = np.concatenate([[True], ordered[1:] != ordered[:-1]]) if len(ordered) else np.zeros(0, bool)
        keep[records["place"][order[first]]] = True
        path.unlink()
    return keep


def document_hashes(shards: Iterable[Lines]) -> Iterator[Hashes]:
    """Yield the hashes of the documents that end in each shard, and finally of the last document."""
    total = np.zeros(1, np.uint64)  # of the document that goes on into the next shard
    count = np.zeros(1, np.uint64)
    begun = False
    for shard in shards:
        if not len(shard.hashes):
            continue
        starts = np.searchsorted(shard.starts, shard.documents)
        # The first lines belong to the last document of the shard before.
        continues = not len(starts) or starts[0] > 0
        if continues:
            starts = np.concatenate([[0], starts])
        lengths: NDArray[np.int64] = np.diff(np.append(starts, len(shard.hashes)))
        # Position of each line in its document; lines of the continued one count on from the shard before.
        positions = (np.arange(len(shard.hashes)) - np.repeat(starts, lengths)).astype(np.uint64)
        if continues:
            positions[: lengths[0]] += count
        # A sum of mixed (hash + position * step): depends on the order, and can be continued in the next shard.
        totals = np.add.reduceat(_mix_bits(shard.hashes + (positions + np.uint64(1)) * _STEP), starts)
        counts = lengths.astype(np.uint64)
        if continues:
            totals[:1] += total
            counts[:1] += count
        # The shard begins with a new document, so the carried one is complete.
        elif begun:
            yield _mix_bits(total + count)
        # The last document may go on in the next shard.
        yield _mix_bits(totals[:-1] + counts[:-1])
        total, count, begun = totals[-1:], counts[-1:], True
    if begun:
        yield _mix_bits(total + count)


@dataclass
class LineRemoval:
    """Removes lines from shards in order, and tracks documents that span several shards."""

    documents: int = 0
    """Number of documents that began so far, dropped ones included."""
    last: int = 0
    """Number (from 1) of the document of the last kept sentence."""

    def apply(self, shard: Shard, lines: Lines, keep: NDArray[np.bool_]) -> dict[str, np.ndarray]:
        """Return the arrays of a shard without the lines whose `keep` (l,) is False.

        A document begins at its first kept sentence; a document without one disappears.
        """
        sentences = len(shard.sentences) - 1
        # From lines to sentences, and from sentences to pieces: each mask is repeated by the sizes.
        sentence_mask = np.repeat(keep, np.append(lines.starts[1:], np.uint32(sentences)) - lines.starts)
        lengths = shard.sentences[1:] - shard.sentences[:-1]
        pieces = np.repeat(sentence_mask, lengths)
        opens = np.zeros(sentences, np.int64)
        opens[shard.documents] = 1
        # The document number of each kept sentence; a change starts a document.
        numbers = (np.cumsum(opens) + self.documents)[sentence_mask]
        starts = np.flatnonzero(np.diff(numbers, prepend=self.last))
        self.documents += len(shard.documents)
        self.last = int(numbers[-1]) if len(numbers) else self.last
        marks = {"words": shard.word_starts(0, len(shard.ids)), "capitals": shard.capital_starts(0, len(shard.ids))}
        return {
            "ids": shard.ids[pieces],
            "sentences": np.concatenate([[0], np.cumsum(lengths[sentence_mask])]).astype(np.uint32),
            "documents": starts.astype(np.uint32),
            **{name: np.packbits(mark[pieces]) for name, mark in marks.items() if mark is not None},
        }


def _falses(path: Path, total: int) -> NDArray[np.bool_]:
    """Return an array (total,) of False on disk, memory-mapped.

    It is written in full first: filling the holes of a sparse file on a full disk would kill the process with SIGBUS.
    """
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": np.lib.format.dtype_to_descr(np.dtype(np.bool_)), "fortran_order": False, "shape": (total,)}
        )
        for start in range(0, total, PARTITION):
            file.write(bytes(min(PARTITION, total - start)))
    return np.lib.format.open_memmap(path, mode="r+")


def _spread(hashes: Hashes, position: int, paths: list[Path]) -> None:
    """Append hashes, with their positions from `position` on, to the files of their partitions."""
    records = np.empty(len(hashes), _RECORD)
    records["hash"] = hashes
    records["place"] = np.arange(position, position + len(hashes), dtype=np.uint64)
    owner = (hashes % np.uint64(len(paths))).astype(np.int64)
    # Grouped by partition, in order, so that each file gets one write.
    records = records[np.argsort(owner, kind="stable")]
    ends = np.cumsum(np.bincount(owner, minlength=len(paths)))
    for path, start, end in zip(paths, np.concatenate([[0], ends[:-1]]), ends):
        if start < end:
            with open(path, "ab") as file:
                file.write(records[start:end].view(np.uint8).data)  # tofile does not tell a full disk as such


def _mix_bits(values: Hashes) -> Hashes:
    """Return the values mixed so that every bit depends on every input bit (the finaliser of splitmix64)."""
    values = values.copy()
    values ^= values >> np.uint64(30)
    values *= np.uint64(0xBF58476D1CE4E5B9)
    values ^= values >> np.uint64(27)
    values *= np.uint64(0x94D049BB133111EB)
    values ^= values >> np.uint64(31)
    return values
