"""The demo's task: which library does a passage describe? All names that would give it away are masked."""

from __future__ import annotations

import csv
import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from osbert.errors import UserError
from osbert_lab.demo.docstrings import DocstringText

MASK = "library"
"""Replaces a masked name: a word that occurs in every class."""

ALIASES = {
    "torch": ("pytorch", "aten", "c10", "caffe2", "torchscript", "libtorch"),
    "numpy": ("np", "npy", "ndarray", "ufunc", "ufuncs"),
    "scipy": ("sp",),
    "sklearn": ("scikit", "scikit-learn"),
    "networkx": ("nx",),
    "python": ("py", "cpython", "pep", "stdlib"),
    "transformers": ("huggingface",),
    "huggingface_hub": ("huggingface", "hf"),
}

_KNOWN_NAMES = frozenset(ALIASES) | {alias for aliases in ALIASES.values() for alias in aliases}
_IDENTIFIER = re.compile(r"[A-Za-z_][\w]*(?:[.-][A-Za-z_]\w*)*")
_SENTENCE = re.compile(r"(?<=[.!?])\s+")


LabelledText = tuple[str, str]
"""A text and its label."""
Words = tuple[int, int]
"""The fewest and the most words of a text."""
WORDS: Words = (12, 60)
CLASSES = 7
"""Most libraries, which are the classes."""
HELD_OUT = 80
"""Most rows of a library in each of dev and test."""


@dataclass(frozen=True, kw_only=True)
class LibraryTask:
    """Rows of the task "which library does a passage describe?": for training, choosing an epoch (dev), and scoring
    (test)."""

    labels: tuple[str, ...]
    train: list[LabelledText]
    dev: list[LabelledText]
    test: list[LabelledText]
    masked: tuple[str, ...]


def split(file: str) -> str:
    """Return "dev" or "test" for files that are held out of all training, pretraining included; else "train".

    The hash of the name decides: one file in twelve for dev, one for test.
    """
    # The first byte of the SHA-256 modulo 12: the split of a file never depends on the other files.
    return {0: "dev", 1: "test"}.get(hashlib.sha256(file.encode()).digest()[0] % 12, "train")


def make_task(passages: Sequence[DocstringText], *, train: int = 450) -> LibraryTask:
    """Draw a balanced classification task from the libraries with the most passages.

    At most `train` rows per class, and HELD_OUT for each of dev and test, whose files are disjoint (`split`). A row is
    the beginning of a passage up to the end of a sentence, with a number of words in WORDS.
    """
    long_enough = [passage for passage in passages if len(passage.text.split()) >= WORDS[0]]
    sizes = Counter(passage.library for passage in long_enough)
    labels = tuple(sorted(library for library, count in sizes.most_common(CLASSES) if count >= 20))
    if len(labels) < 2:
        raise UserError(
            "There are too few docstrings to make a task: at least two packages must have 20 passages each. Was "
            "Python installed without its .py files?",
            code="no-data",
        )
    chosen = [passage for passage in long_enough if passage.library in labels]
    names = telling_names(chosen) | {passage.library.lower() for passage in passages} | set(_KNOWN_NAMES)
    wanted = {"train": train, "dev": HELD_OUT, "test": HELD_OUT}
    rows: dict[str, dict[str, list[LabelledText]]] = {name: defaultdict(list) for name in wanted}
    seen = set()
    # Sorting by hash is a shuffle that is the same on every machine.
    for passage in sorted(chosen, key=lambda passage: hashlib.sha256(passage.text.encode()).digest()):
        name = split(passage.file)
        column = rows[name][passage.library]
        if len(column) == wanted[name]:
            continue
        text = mask_names(_beginning(passage.text, WORDS), names)
        if len(text.split()) >= WORDS[0] and text not in seen:
            seen.add(text)
            column.append((text, passage.library))
    drawn = {name: _interleave(columns) for name, columns in rows.items()}
    return LibraryTask(labels=labels, masked=tuple(sorted(names)), **drawn)


def telling_names(passages: Iterable[DocstringText]) -> frozenset[str]:
    """Return the lower-case names of the passages' libraries, and of their modules unless they are ordinary words.

    A module's name is an ordinary word if the passages of most other libraries use it too, such as "string" or "graph".
    """
    modules: dict[str, set[str]] = defaultdict(set)
    users: dict[str, Counter[str]] = defaultdict(Counter)
    for passage in passages:
        parts = passage.file.partition(":")[2].removesuffix(".py").split("/")
        modules[passage.library].update(part.strip("_").lower() for part in parts)
        for word in {word.lower() for word in re.findall(r"\w+", passage.text)}:
            users[word][passage.library] += 1
    libraries = set(modules)
    names = set(libraries)
    for owner, module_names in modules.items():
        for module in module_names - {"", "init"}:
            elsewhere = [library for library in libraries - {owner} if users[module][library]]
            # Ordinary words are used by at least half of the other libraries.
            if len(module) > 1 and 2 * len(elsewhere) < len(libraries) - 1:
                names.add(module)
    return frozenset(names)


def mask_names(text: str, names: frozenset[str]) -> str:
    """Return the text with every name in `names` replaced by MASK.

    A whole identifier is masked if one of its parts (split at dots, hyphens and underscores) is a name, or if it
    contains a library's name, in any case.
    """
    within = names & _SUBSTRINGS

    def replace(match: re.Match[str]) -> str:
        word = match.group().lower()
        telling = (
            word in names or any(name in word for name in within) or not names.isdisjoint(re.split(r"[._-]+", word))
        )
        return MASK if telling else match.group()

    # Adjacent masks collapse into one: their number would give "huggingface transformers" away.
    return re.sub(rf"\b{MASK}(?:[\s-]+{MASK}\b)+", MASK, _IDENTIFIER.sub(replace, text))


def write_table(path: Path, rows: Sequence[LabelledText], *, header: tuple[str, ...] = ("text", "label")) -> None:
    """Write rows as CSV with a header line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def _beginning(text: str, words: Words) -> str:
    """Return the longest run of whole sentences from the start within the word limit; "" if it is too short."""
    least, most = words
    prefix: list[str] = []
    for sentence in _SENTENCE.split(text):
        piece = sentence.split()
        if len(prefix) + len(piece) > most:
            break
        prefix += piece
    return " ".join(prefix) if len(prefix) >= least else ""


def _interleave(rows: Mapping[str, list[LabelledText]]) -> list[LabelledText]:
    """Return the rows of all classes in round-robin order."""
    turns = zip_longest(*(rows[label] for label in sorted(rows)))
    return [row for turn in turns for row in turn if row is not None]


_SUBSTRINGS = frozenset(
    ("torch", "numpy", "scipy", "sklearn", "scikit", "sympy", "networkx")
    + ("python", "transformers", "huggingface", "pydantic")
)
