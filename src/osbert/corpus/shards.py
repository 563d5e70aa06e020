"""A finished corpus: memory-mapped shards, divided into blocks of whole sentences for the loader.

A shard is a folder of four arrays, n pieces in s sentences: `ids.npy` (n,) uint16 or uint32; `sentences.npy` (s + 1,)
uint32, the first piece of each sentence, then n; `documents.npy` (d,) uint32, the first sentence of each document (a
document continued from the shard before has no entry); `words.npy`, the bits of the word starts, eight to a byte;
`capitals.npy`, if the corpus has marks of capitals, those of the starts of capitalised words.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from osbert.corpus import integrity
from osbert.errors import Problems, UserError
from osbert.guarded import read_json
from osbert.remote import find_stores
from osbert.text.document import Documents

FORMAT = 1
MANIFEST = "corpus.json"
COUNTS = "counts.npy"
PIECES = ("ids.npy", "words.npy", "capitals.npy")
"""The files of a shard with an entry for each piece; the others divide them into sentences and documents."""


class ShardBlock(NamedTuple):
    """Sentences [first, last) of a shard."""

    shard: int
    first: int
    last: int


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of a mixed corpus: its name, its numbers of shards and tokens, and its fraction of an epoch's tokens."""

    name: str
    shards: int
    tokens: int
    fraction: float


@dataclass(frozen=True, kw_only=True)
class Shard:
    """The memory-mapped arrays of one shard (see the module); data is read when it is used."""

    ids: NDArray[np.integer]
    sentences: NDArray[np.uint32]
    documents: NDArray[np.uint32]
    words: NDArray[np.uint8]
    capitals: NDArray[np.uint8] | None = None

    @classmethod
    def open(cls, folder: Path, elsewhere: Mapping[str, Any] | None = None) -> Shard:
        """Memory-map the arrays of a shard folder, but for those `elsewhere`, which are given by name."""
        arrays: dict[str, Any] = {**(elsewhere or {})}
        for name in ("ids", "sentences", "documents", "words", "capitals"):
            if name in arrays or (name == "capitals" and not (folder / f"{name}.npy").exists()):
                continue
            array = np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
            arrays[name] = array.view(np.ndarray)  # a plain view: slicing a memmap costs many times more
        return cls(**arrays)

    def word_starts(self, start: int, end: int) -> NDArray[np.bool_]:
        """Return whether each of the pieces [start, end) begins a word."""
        return _unpack_bits(self.words, start, end)

    def capital_starts(self, start: int, end: int) -> NDArray[np.bool_] | None:
        """Return whether each of the pieces [start, end) begins a capitalised word; None if none are marked."""
        return None if self.capitals is None else _unpack_bits(self.capitals, start, end)


class PieceStore(Protocol):
    """Has the files of shards that are not in the folder of a corpus (PIECES); it can be pickled."""

    def arrays(self, shard: Mapping[str, Any], vocabulary: int) -> Mapping[str, Any]:
        """Return the arrays of a shard by name, of which slices can be taken. `shard`: its entry in the manifest."""

    def prepare(self, reads: Sequence[Callable[[], None]]) -> None:
        """Do some reads of slices, several at a time."""


class Corpus:
    """A finished corpus folder. Cheap to open and to pickle; a shard is mapped when it is first read."""

    def __init__(self, folder: Path, manifest: dict[str, Any], store: PieceStore | None = None) -> None:
        """Use `open` instead: it reads and checks the manifest. `store`: has the pieces that are not in the folder."""
        self.folder = folder
        self.store = store
        self.manifest = manifest
        self.report: dict[str, Any] = manifest["report"]
        self.documents: int = self.report["documents"]
        self.sentences: int = self.report["sentences"]
        self.tokens: int = self.report["tokens"]
        self.vocabulary: int = manifest["vocabulary"]
        self.fingerprint: str = manifest["identity"]["tokenizer"]
        self._shards: dict[int, Shard] = {}

    @classmethod
    def open(cls, folder: Path | str) -> Corpus:
        """Open a corpus folder.

        Raises UserError if there is no finished corpus, or with each file that is missing or has another size.
        """
        folder = Path(folder)
        manifest = read_manifest(folder)
        problems = Problems(heading=f"{folder}: {integrity.ADVICE}")
        try:
            corpus = cls(folder, manifest)
            for path, written in integrity.files(folder, manifest):
                if wrong := integrity.wrong_size(path, written["bytes"]):
                    problems.add(wrong, code="damaged-file")
        except (KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"{folder / MANIFEST}: the file is incomplete ({error!r}). The corpus is damaged; build it again.",
                code="damaged-file",
            ) from None
        problems.stop_if_any()
        return corpus

    def verify(self, *, most: int | None = None) -> None:
        """Read all files and compare their hashes with the manifest; skipped if they have more than `most` bytes.

        Raises UserError with each file of different content: a flipped bit, or a shard of another corpus.
        """
        files = [
            (path, written)
            for path, written in integrity.files(self.folder, self.manifest)
            if self.store is None or path.name not in PIECES
        ]
        if most is not None and sum(written["bytes"] for _, written in files) > most:
            return
        problems = Problems(heading=f"{self.folder}: {integrity.ADVICE}")
        for path, written in files:
            if wrong := integrity.wrong_content(path, written["sha256"]):
                problems.add(wrong, code="damaged-file")
        problems.stop_if_any()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only the folder and the manifest: a worker of the loader maps the shards itself."""
        return Corpus, (self.folder, self.manifest, self.store)

    def prepare(self, blocks: Sequence[ShardBlock]) -> None:
        """Fetch blocks that will be read, several at a time; those of a local corpus are there."""
        if self.store is not None:
            self.store.prepare([partial(self._touch, block) for block in blocks])

    @property
    def marks_capitals(self) -> bool:
        """Return whether capitalised words are marked."""
        return bool(self.manifest["identity"]["settings"].get("capitals"))

    @property
    def content(self) -> str:
        """Return the SHA-256 of the hashes of all shards, and of a mixture's parts, which identifies a run's corpus."""
        facts = [shard["files"] for shard in self.manifest["shards"]] + self.manifest.get("mixture", [])
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    @property
    def mixed(self) -> bool:
        """Return whether it is a mixture, whose parts have fractions of their own."""
        return "mixture" in self.manifest

    @property
    def parts(self) -> list[Part]:
        """Return the parts of a mixture, in the order of the shards; of another corpus all of it."""
        if self.mixed:
            return [Part(**part) for part in self.manifest["mixture"]]
        shards = len(self.manifest["shards"])
        return [Part(name=self.folder.name, shards=shards, tokens=self.tokens, fraction=1.0)]

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """Count of each piece of the vocabulary, (V,)."""
        counts: NDArray[np.int64] = np.load(self.folder / COUNTS, allow_pickle=False)
        return counts

    @property
    def unigram_entropy(self) -> float:
        """Return the unigram entropy of the corpus in nats: the lowest loss of a model that ignores context."""
        probabilities = self.counts[self.counts > 0] / self.counts.sum()
        return float(-(probabilities * np.log(probabilities)).sum())

    @property
    def deduplicated(self) -> bool:
        """Return whether repeated lines were removed."""
        return bool(self.manifest["identity"]["settings"].get("deduplicate"))

    @cached_property
    def document_sentences(self) -> NDArray[np.int64]:
        """Number of sentences of each document, (d,)."""
        before = accumulate((shard["sentences"] for shard in self.manifest["shards"]), initial=0)
        starts = [self._shard(number).documents + np.int64(first) for number, first in enumerate([*before][:-1])]
        return np.diff(np.concatenate([*starts, [self.sentences]]))

    @cached_property
    def _documents_before(self) -> list[int]:
        """Number of documents that begin before each shard."""
        return list(accumulate((shard["documents"] for shard in self.manifest["shards"]), initial=0))

    def blocks(self, tokens: int = 65536) -> list[ShardBlock]:
        """Divide the corpus, in order, at sentence starts into blocks of at most `tokens` pieces within a shard.

        A longer sentence is a block of its own.
        """
        if tokens < 1:
            raise ValueError(f"tokens must be positive, not {tokens}")
        blocks = []
        for number in range(len(self.manifest["shards"])):
            starts = self._shard(number).sentences
            first, sentences = 0, len(starts) - 1
            while first < sentences:
                # The bound has the array's own type, else the search would first convert all of the array.
                bound = np.uint32(min(int(starts[first]) + tokens, 2**32 - 1))
                fitting = int(np.searchsorted(starts, bound, side="right")) - 1
                last = max(fitting, first + 1)
                blocks.append(ShardBlock(number, first, last))
                first = last
        return blocks

    def read(self, block: ShardBlock) -> Documents:
        """Return the documents of a block, in order; the first and the last may be parts of longer documents.

        Their `source` is the index of the document in the whole corpus, so that parts in other blocks and shards agree.
        Raises UserError with the file if a shard has changed since the corpus was opened, or has ids beyond the
        vocabulary.
        """
        shard = self._shard(block.shard)
        self._check_harm(block.shard)
        # A block is [first, last) in sentences of the shard; it may begin and end within a document.
        starts = shard.sentences[block.first : block.last + 1].astype(np.int64)
        begin, end = int(starts[0]), int(starts[-1])
        starts -= begin
        ids = shard.ids[begin:end].copy()
        if end > begin and int(ids.max()) >= self.vocabulary:
            self._refuse_pieces(block.shard, begin, ids)
        words = shard.word_starts(begin, end)
        low, high = np.searchsorted(shard.documents, np.array([block.first, block.last], np.uint32))
        cuts = np.concatenate(
            [[0], shard.documents[low:high].astype(np.int64) - block.first, [block.last - block.first]]
        )
        before = self._documents_before[block.shard] + int(low) - 1  # the document that the block's start may belong to
        # The part before the first document start is empty if the block begins with a document.
        filled = np.flatnonzero(np.diff(cuts))
        cut = np.zeros(len(filled), np.bool_)
        cut[:1] |= not self._begins_document(block.shard, block.first)
        cut[-1:] |= not self._begins_document(block.shard, block.last)
        return Documents(
            ids=ids,
            sentences=starts,
            words=words,
            capitals=shard.capital_starts(begin, end),
            starts=np.append(cuts[filled], cuts[-1]),
            sources=before + filled,
            cut=cut,
        )

    def size(self, block: ShardBlock) -> int:
        """Return the number of pieces of a block."""
        sentences = self._shard(block.shard).sentences
        return int(sentences[block.last]) - int(sentences[block.first])

    def cut(self, block: ShardBlock, tokens: int) -> tuple[ShardBlock, ShardBlock]:
        """Cut a block of several sentences before the last ones, which have `tokens` pieces or more if they can."""
        starts = self._shard(block.shard).sentences[block.first : block.last + 1].astype(np.int64)
        before = int(np.searchsorted(starts, starts[-1] - tokens, side="right")) - 1
        middle = block.first + min(max(1, before), len(starts) - 2)
        return ShardBlock(block.shard, block.first, middle), ShardBlock(block.shard, middle, block.last)

    def outline(self, block: ShardBlock) -> tuple[int, NDArray[np.int64]]:
        """Return the number of pieces of a block, and the pieces at which documents begin (d,)."""
        shard = self._shard(block.shard)
        begin, end = (int(shard.sentences[bound]) for bound in (block.first, block.last))
        low, high = np.searchsorted(shard.documents, np.array([block.first, block.last], np.uint32))
        return end - begin, shard.sentences[shard.documents[low:high]].astype(np.int64) - begin

    def _begins_document(self, number: int, sentence: int) -> bool:
        """Return whether a sentence of a shard, or the one behind its last, begins a document or ends the corpus."""
        if sentence == len(self._shard(number).sentences) - 1:
            number, sentence = number + 1, 0
            if number == len(self.manifest["shards"]):
                return True
        documents = self._shard(number).documents
        index = int(np.searchsorted(documents, np.uint32(sentence)))
        return index < len(documents) and int(documents[index]) == sentence

    def _shard(self, number: int) -> Shard:
        if number not in self._shards:
            self._check_harm(number, missing=True)
            entry = self.manifest["shards"][number]
            elsewhere = None if self.store is None else self.store.arrays(entry, self.vocabulary)
            self._shards[number] = Shard.open(self.folder / entry["name"], elsewhere)
        return self._shards[number]

    def _touch(self, block: ShardBlock) -> None:
        """Read the pieces of a block, which then lie in the cache of the store."""
        shard = self._shard(block.shard)
        begin, end = (int(shard.sentences[bound]) for bound in (block.first, block.last))
        shard.ids[begin:end], shard.word_starts(begin, end), shard.capital_starts(begin, end)

    def _check_harm(self, number: int, *, missing: bool = False) -> None:
        """Raise UserError if a file of a shard has another size: reading a mapping beyond its end kills the process.

        A deleted file does no harm while it is mapped; it is an error only with `missing`.
        """
        shard = self.manifest["shards"][number]
        problems = Problems(heading=f"{self.folder}: {integrity.ADVICE}")
        for name, written in shard["files"].items():
            path = self.folder / shard["name"] / name
            if self.store is not None and name in PIECES:
                continue
            if (missing or path.exists()) and (wrong := integrity.wrong_size(path, written["bytes"])):
                problems.add(wrong, code="damaged-file")
        problems.stop_if_any()

    def _refuse_pieces(self, number: int, begin: int, ids: NDArray[np.integer]) -> None:
        index = int(np.argmax(ids >= self.vocabulary))
        path = self.folder / self.manifest["shards"][number]["name"] / "ids.npy"
        raise UserError(
            f"{path}: token {begin + index:,} has id {int(ids[index]):,}, but the vocabulary has "
            f"{self.vocabulary:,} pieces: {integrity.ADVICE}.",
            code="mismatched-tokenizer",
        )


def _unpack_bits(marks: NDArray[np.uint8], start: int, end: int) -> NDArray[np.bool_]:
    # Unpack whole bytes, then drop the bits before `start` in the first one.
    bits = np.unpackbits(marks[start // 8 : -(-end // 8)])
    return bits[start % 8 : start % 8 + end - start].view(np.bool_)


def open_corpus(given: Path | str, *, whole: bool = True) -> Corpus:
    """Open a corpus, of an object store as a copy, or by blocks if it is larger than the cache, or not `whole`.

    Raises UserError for a corpus that is not whole, and if the store cannot be read.
    """
    stores = find_stores(given)
    return Corpus.open(Path(given)) if stores is None else stores.open_corpus(given, whole=whole)


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the content of corpus.json. Raises UserError if there is none or if it has another format."""
    path = folder / MANIFEST
    if not path.is_file():
        begun = (folder / "building.json").is_file()
        hint = "its build was not finished: give the same command again" if begun else "`osbert corpus build` makes one"
        raise UserError(f"{folder}: there is no corpus ({MANIFEST} is missing); {hint}.", code="not-a-model")
    try:
        manifest: dict[str, Any] = read_json(path)
    except ValueError as error:
        raise UserError(
            f"{path}: this is not JSON ({error}). The corpus is damaged; build it again.", code="wrong-format"
        ) from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise UserError(
            f"{path}: the corpus does not have format {FORMAT}. Build it again with this version.", code="not-a-model"
        )
    return manifest
