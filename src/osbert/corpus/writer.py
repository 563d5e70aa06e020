"""Collects encoded portions into shards and writes each atomically, with the data to detect duplicates."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from osbert.corpus.arrays import write_arrays
from osbert.corpus.duplicates import Lines
from osbert.corpus.encode import PortionTokens


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


def read_counts(building: Path, number: int) -> np.ndarray:
    """Return the unigram counts (V,) int64 of a written shard."""
    counts: np.ndarray = np.load(lines_folder(building, number) / "counts.npy")
    return counts


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
