"""Collects encoded portions into shards, writes each atomically, and removes lines and documents that are repeated.

Lines are compared by the 64-bit hashes from encoding, documents by a hash of the hashes of their lines. Hashes are
partitioned on disk and one partition is sorted at a time, so memory does not grow with the corpus.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osbert.corpus.encode import PortionTokens
from osbert.corpus.integrity import write_arrays
from osbert.corpus.shards import Shard

PARTITION = 1 << 22
"""Hashes per partition: about 200 MB of memory."""

_RECORD = np.dtype([("hash", "<u8"), ("place", "<u8")])
_STEP = np.uint64(0x9E3779B97F4A7C15)
"""The step of splitmix64 (Steele, Lea and Flood 2014)."""

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


def shard_name(number: int) -> str:
    """Return the folder name of a shard, such as shard-00003."""
    return f"shard-{number:05d}"


def lines_folder(building: Path, number: int) -> Path:
    """Return the folder of the lines and counts of a shard while the corpus is built."""
    return building / f"lines-{number:05d}"


def read_lines(building: Path, number: int, documents: np.ndarray) -> Lines:
    """Return the lines of a written shard, memory-mapped. `documents`: its array of document starts."""
    folder = lines_folder(building, number)
    hashes, starts = (np.load(folder / f"{name}.npy", mmap_mode="r").view(np.ndarray) for name in ("hashes", "starts"))
    return Lines(hashes=hashes, starts=starts, documents=documents)


@dataclass
class _Collected:
    """The collected portions of one shard, one array for each; positions count from the start of the shard."""

    tokens: int = 0
    sentences: int = 0
    text_bytes: int = 0
    sentence_ends: bool = False
    ids: list[bytes] = field(default_factory=list)
    starts: list[np.ndarray] = field(default_factory=list)
    documents: list[np.ndarray] = field(default_factory=list)
    words: list[tuple[np.ndarray, int]] = field(default_factory=list)
    capitals: list[tuple[np.ndarray, int]] = field(default_factory=list)
    hashes: list[np.ndarray] = field(default_factory=list)
    lines: list[np.ndarray] = field(default_factory=list)
    counts: np.ndarray = field(default_factory=lambda: np.zeros(1, np.int64))


class ShardWriter:
    """The shard being filled. Portions are added in order; `write` writes it and starts the next one."""

    def __init__(self, *, shards: Path, building: Path, id_type: np.dtype, opened: bool) -> None:
        """Write shards under `shards` and their lines under `building`.

        `opened`: whether the previous shard opened a document at its end whose text is still to come.
        """
        self.shards = shards
        self.building = building
        self.id_type = id_type
        self.opened = opened
        self._collected = _Collected()

    @property
    def tokens(self) -> int:
        """Return the number of pieces collected so far."""
        return self._collected.tokens

    def add(self, encoded: PortionTokens) -> None:
        """Append a portion."""
        into = self._collected
        into.ids.append(encoded.ids)
        into.starts.append(encoded.sentences + np.uint32(into.tokens))
        into.documents.append(encoded.documents + np.uint32(into.sentences))
        into.words.append((encoded.words, encoded.tokens))
        if encoded.capitals is not None:
            into.capitals.append((encoded.capitals, encoded.tokens))
        into.hashes.append(encoded.hashes)
        into.lines.append(encoded.lines + np.uint32(into.sentences))
        into.counts = into.counts + encoded.counts
        into.text_bytes += encoded.text_bytes
        into.sentence_ends |= encoded.sentence_ends
        into.tokens += encoded.tokens
        into.sentences += len(encoded.sentences)

    def write(self, number: int) -> dict[str, Any]:
        """Write shard `number`, start the next one, and return its entry for the state."""
        shard, self._collected = self._collected, _Collected()
        # A document that was opened at the end of the last shard starts at sentence 0 here; empty documents coincide
        # with the next one, hence unique.
        documents = np.unique(np.concatenate([np.zeros(int(self.opened), np.uint32), *shard.documents]))
        # A document that starts behind the last sentence belongs to the next shard.
        self.opened = bool(len(documents)) and int(documents[-1]) == shard.sentences
        documents = documents[: len(documents) - int(self.opened)]
        hashes = np.concatenate(shard.hashes)
        lines = {"hashes": hashes, "starts": np.concatenate(shard.lines), "counts": shard.counts}
        line_files = write_arrays(lines_folder(self.building, number), lines)
        ids = np.frombuffer(b"".join(shard.ids), self.id_type)
        shard.ids.clear()
        words = _join_bits(shard.words)
        arrays = {
            "ids": ids,
            "sentences": np.concatenate([*shard.starts, np.array([shard.tokens], np.uint32)]),
            "documents": documents,
            "words": np.packbits(words),
        }
        if shard.capitals:
            arrays["capitals"] = np.packbits(_join_bits(shard.capitals))
        return {
            "name": shard_name(number),
            "documents": len(documents),
            "sentences": shard.sentences,
            "tokens": shard.tokens,
            "words": int(np.count_nonzero(words)),
            "lines": len(hashes),
            "text_bytes": shard.text_bytes,
            "sentence_ends": shard.sentence_ends,
            "files": write_arrays(self.shards / shard_name(number), arrays),
            "line_files": line_files,
        }


def _join_bits(portions: list[tuple[np.ndarray, int]]) -> np.ndarray:
    """Return the bits of all portions, unpacked: a portion ends within a byte."""
    return np.concatenate([np.unpackbits(bits, count=count) for bits, count in portions])
