"""The data of an analysis: a random sample of texts and trees, laid out as the model reads them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Generic, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Booleans, Example
from osbert.data.pack import Packer, PieceRun
from osbert.errors import Problems
from osbert.reading.splits import USUAL
from osbert.terminal import format_count
from osbert.text.file_tokenizer import AnyTokenizer
from osbert.text.normalize import is_punctuation
from osbert.text.tokenizer import Form
from osbert_lab.analysis.coreference_files import LinkedText
from osbert_lab.analysis.kinds.contract import PlacedTree, PlacedWords, TokenMarks
from osbert_lab.analysis.tree_files import Tree

Item = TypeVar("Item")
Part = Literal["select", "score"]
"""The parts of a form's data: one to select heads or train probes on, one to score them on."""
PARTS: dict[Part, tuple[str, ...]] = {"select": USUAL["train"], "score": (*USUAL["dev"], *USUAL["test"])}
"""Words in file names that mark each part."""
UNUSUAL = 0.02
"""Fraction of the pieces, or of the texts, above which a note reports that they are unknown or repeated."""
CHARACTERS = 16
"""Characters of a text that are tokenized for each token of the model; few pieces are that long on average."""


class Sample(Protocol):
    """A sample of one form of data; its length is the number of its items."""

    def __len__(self) -> int:
        """Return how many items there are."""

    @property
    def read(self) -> int:
        """Return the number of items that it was sampled from."""

    @property
    def tokens(self) -> int:
        """Return the number of tokens that the model reads, for progress."""

    @property
    def sha256(self) -> str:
        """Return a hash of all that is read of it."""

    @property
    def notes(self) -> Sequence[str]:
        """Return notes on what was read and what was left out."""


@dataclass(frozen=True, kw_only=True)
class ItemSample(Generic[Item]):
    """Items that an analysis lays out by itself. `tokens`: estimated number of tokens that the model will read."""

    items: Sequence[Item]
    read: int = 0
    tokens: int = 0
    notes: Sequence[str] = ()

    def __len__(self) -> int:
        """Return how many items there are."""
        return len(self.items)

    @property
    def sha256(self) -> str:
        """Return a hash of the items, which are frozen dataclasses of texts and numbers."""
        return hashlib.sha256("\n".join(map(repr, self.items)).encode("utf-8", "backslashreplace")).hexdigest()


@dataclass(frozen=True, kw_only=True)
class TextSample:
    """Sampled texts as sequences; for trees and labelled words also the tokens of each word.

    `read`: the number of texts that it was sampled from. `short`: texts that were too short to be read. `cut`: texts of
    which only a part is read.
    """

    examples: Sequence[Example]
    trees: Sequence[PlacedTree] = ()
    labelled: Sequence[PlacedWords] = ()
    read: int = 0
    short: int = 0
    cut: int = 0
    notes: Sequence[str] = ()

    def __len__(self) -> int:
        """Return how many texts there are."""
        return len(self.examples)

    @property
    def tokens(self) -> int:
        """Return the number of tokens, special pieces included."""
        return sum(map(len, self.examples))

    @property
    def sha256(self) -> str:
        """Return a hash of all that is read of the sample."""
        digest = hashlib.sha256()
        for example in self.examples:
            # Little-endian 64 bit, so that the hash is the same on every machine; | separates texts.
            digest.update(np.asarray(example.ids, "<i8").tobytes() + b"|")
        for tree in self.trees:
            digest.update(f"{tree.part} {tree.tree.heads} {tree.tree.relations}".encode())
        for words in self.labelled:
            digest.update(f"{words.part} {words.labels}".encode())
        return digest.hexdigest()


def oddities(sample: TextSample, unknown: int) -> list[str]:
    """Describe what makes figures of a sample doubtful: many unknown pieces, or repeated texts."""
    notes = []
    count = sum(int((example.ids[~example.special] == unknown).sum()) for example in sample.examples)
    pieces = sum(int((~example.special).sum()) for example in sample.examples)
    if count > UNUSUAL * pieces:
        notes.append(f"{count / pieces:.0%} of the pieces are unknown to the tokenizer: are the texts of its language?")
    repeated = len(sample.examples) - len({example.ids.tobytes() for example in sample.examples})
    if repeated > UNUSUAL * len(sample.examples):
        notes.append(f"{format_count(repeated, 'repeated text')}: intervals are narrower than they should be")
    return notes


def draw(items: Iterable[Item], count: int, rng: np.random.Generator) -> tuple[list[Item], int]:
    """Return at most `count` items, sampled and in their order, and the number of all (Vitter's algorithm R).

    >>> draw("abc", 5, np.random.default_rng(0))
    (['a', 'b', 'c'], 3)
    """
    sample: list[tuple[int, Item]] = []
    number = -1
    for number, item in enumerate(items):
        if len(sample) < count:
            sample.append((number, item))
        # Item `number` (from 0) is kept with probability count / (number + 1).
        elif (index := int(rng.integers(number + 1))) < count:
            sample[index] = (number, item)
    return [item for _, item in sorted(sample, key=lambda pair: pair[0])], number + 1


def split_by_name(files: Sequence[Path]) -> dict[Part, list[Path]] | None:
    """Return the files to choose on, called train, and to score on, called dev or test.

    None where the name of one says neither, or both, and where one part has none.
    """
    paths_by_part: dict[Part, list[Path]] = {
        part: [path for path in files if {*words} & {*re.findall("[a-z]+", path.name.lower())}]
        for part, words in PARTS.items()
    }
    # Each file must be in exactly one part: a name such as train-dev.txt would be in both.
    once = sorted(path for paths in paths_by_part.values() for path in paths) == sorted(files)
    return paths_by_part if all(paths_by_part.values()) and once else None


def draw_parts(
    files: Sequence[Path], read: Callable[[Sequence[Path]], Iterable[Item]], most: int, rng: np.random.Generator
) -> Iterator[tuple[Part, list[Item], int]]:
    """Yield at most `most` items of each part, and how many there were to sample from.

    Where the names of the files do not say their parts, all items together are halved.
    """
    if parts := split_by_name(files):
        for part, paths in parts.items():
            yield part, *draw(read(paths), most, rng)
        return
    drawn, count = draw(read(files), 2 * most, rng)
    # A random half, not the first half: neighbouring items may come from one document.
    chosen = {*rng.permutation(len(drawn))[: len(drawn) // 2].tolist()}
    yield "select", [item for index, item in enumerate(drawn) if index in chosen], len(chosen)
    yield "score", [item for index, item in enumerate(drawn) if index not in chosen], count - len(chosen)


def text_sample(
    texts: Iterable[str], packer: Packer, *, count: int, shortest: int, rng: np.random.Generator
) -> TextSample:
    """Return at most `count` of some texts, each as one sequence; if a text does not fit, a random part of it.

    Texts of fewer than `shortest` tokens, special pieces included, are left out and counted.
    """
    drawn, read = draw(texts, count, rng)
    examples: list[Example] = []
    cut = 0
    for text in drawn:
        part = random_part(text, packer.length * CHARACTERS, rng)
        whole = packer.run(part)
        run = _fitting(whole, packer.room(1), rng)
        example = packer.single(*run, record=len(examples))
        if len(example) >= shortest:
            examples.append(example)
            cut += len(part) < len(text) or len(run.ids) < len(whole.ids)
    return TextSample(examples=examples, read=read, short=len(drawn) - len(examples), cut=cut)


def random_part(text: str, most: int, rng: np.random.Generator) -> str:
    """Return a random part of a text of at most `most` characters, the whole text if it fits.

    It begins and ends at a space if one is near; Chinese text has none.
    """
    if len(text) <= most:
        return text
    start = int(rng.integers(len(text) - most + 1))
    space = text.find(" ", start, start + most // 2) if start else -1
    start = start if space < 0 else space + 1
    end = start + most
    space = text.rfind(" ", start + most // 2, end) if end < len(text) else -1
    return text[start : end if space < 0 else space]


def _fitting(run: PieceRun, room: int, rng: np.random.Generator) -> PieceRun:
    """Return a random part of `room` pieces that begins with a word, if one begins early enough."""
    if (over := len(run.ids) - room) <= 0:
        return run
    # Only starts that leave `room` pieces behind them.
    starts = np.flatnonzero(run.words[: over + 1])
    start = int(rng.choice(starts)) if len(starts) else 0
    return PieceRun(run.ids[start : start + room], run.words[start : start + room])


@dataclass(frozen=True, kw_only=True)
class LinkedItem:
    """A text of the sample. `part`: whether heads are chosen ("select") or scored ("score") on it."""

    text: LinkedText
    part: Part

    def lay_out(self, packer: Packer) -> tuple[Example, NDArray[np.float32]]:
        """Return the text as one sequence of T tokens, and which tokens each word has, as 0 or 1 (W, T)."""
        placed = place_words(self.text.words, self.text.place, packer, Problems(heading=""))
        assert placed is not None, "the form of data has left such texts out"
        return placed


def place_tree(tree: Tree, packer: Packer, problems: Problems, part: Part) -> tuple[Example, PlacedTree] | None:
    """Return a tree as one sequence, each word tokenized by itself, with the tokens of its words.

    None, and a line in `problems`, if the tokenizer has no piece for a word or if the tree does not fit.
    """
    layout = place_words(tree.words, tree.place, packer, problems)
    return layout and (layout[0], PlacedTree(tree=tree, tokens=layout[1], part=part))


def place_words(
    words: Sequence[str], location: str, packer: Packer, problems: Problems
) -> tuple[Example, NDArray[np.float32]] | None:
    """Return the words of a sentence as one sequence of T tokens, each tokenized by itself, and its tokens (W, T).

    None, and a line in `problems` that begins with `location`, if the tokenizer has no piece for a word or if the
    sentence does not fit.
    """
    # The words are joined by spaces; each range leaves out the space.
    ends = list(accumulate(len(word) + 1 for word in words))
    ranges = [(end - 1 - len(word), end - 1) for word, end in zip(words, ends, strict=True)]
    encoded = packer.tokenizer.encode_words(" ".join(words), ranges)
    # encode_words returns the ids of each word as bytes.
    counts = np.array([len(word_ids) for word_ids in encoded]) // packer.tokenizer.id_type.itemsize
    if not counts.all():
        word = int(np.flatnonzero(counts == 0)[0])
        problems.add(
            f"{location}: the tokenizer removes word {word + 1}, {words[word]!r}, entirely.", code="unusable-row"
        )
        return None
    if counts.sum() > packer.room(1):
        problems.add(
            f"{location}: the text has {counts.sum():,} pieces, but the model reads at most {packer.room(1):,}.",
            code="text-too-long",
        )
        return None
    ids = np.frombuffer(b"".join(encoded), packer.tokenizer.id_type).astype(np.int32)
    numbers = np.repeat(np.arange(len(counts)), counts)
    starts: Booleans = np.diff(numbers, prepend=-1) > 0
    example = packer.single(*PieceRun(ids, starts))
    tokens = np.zeros((len(counts), len(example)), np.float32)
    # Pieces follow the special pieces at the beginning, hence the offset.
    tokens[numbers, np.arange(len(ids)) + len(packer.form.before)] = 1
    return example, tokens


def punctuation(tokenizer: AnyTokenizer) -> Booleans:
    """Return which pieces (V,) are punctuation as in BERT: ASCII signs and the Unicode categories P."""
    signs = [tokenizer.decode([index]).strip() for index in range(len(tokenizer.vocabulary))]
    return np.array([bool(sign) and all(is_punctuation(ord(character)) for character in sign) for sign in signs])


def marks(example: Example, form: Form, signs: Booleans) -> TokenMarks:
    """Return the kinds of the tokens of a sequence. `signs` (V,): which pieces are punctuation."""
    before = np.arange(len(example)) < len(form.before)
    return TokenMarks(
        first=example.special & before,
        separator=example.special & ~before,
        punctuation=signs[example.ids] & ~example.special,
    )
