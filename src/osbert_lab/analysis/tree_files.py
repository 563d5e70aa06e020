"""Reads dependency trees in CoNLL-U, the format of Universal Dependencies: words, heads and relations.

Multiword tokens (3-4) and empty nodes (5.1) are skipped: a tree consists of the plain words.
https://universaldependencies.org/format.html
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from osbert.errors import Problems, UserError
from osbert.reading.form import decoding_error, open_text, plain_suffix

SUFFIX = ".conllu"
COLUMNS = 10


@dataclass(frozen=True, kw_only=True)
class Tree:
    """A sentence of W words: `heads` are indices of words from 0, -1 for the root.

    `relations` are those of the file ("nsubj:pass"), `tags` the universal parts of speech. `line`: its first line.
    """

    words: tuple[str, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]
    tags: tuple[str, ...]
    path: Path
    line: int

    @property
    def place(self) -> str:
        """Return its file and line, for messages."""
        return f"{self.path}, line {self.line}"


def is_trees(path: Path) -> bool:
    """Return whether the name of a file ends in .conllu, compressed or not."""
    return plain_suffix(path) == SUFFIX


def read_trees(path: Path, problems: Problems, *, encoding: str = "utf-8") -> Iterator[Tree]:
    """Yield the trees of a file; malformed ones are skipped and added to `problems` with their line.

    Raises UserError if the file is not text, or if a line does not have the columns of CoNLL-U.
    """
    lines: list[tuple[int, list[str]]] = []
    try:
        with open_text(path, encoding) as text:
            for number, raw in enumerate(text, 1):
                line = raw.rstrip("\r\n")
                if line.startswith("#"):
                    continue
                if line.strip():
                    lines.append((number, _columns(line, path, number)))
                elif lines:
                    yield from _tree(lines, path, problems)
                    lines = []
    except UnicodeError as error:
        raise decoding_error(path, encoding) from error
    if lines:
        yield from _tree(lines, path, problems)


def _columns(line: str, path: Path, number: int) -> list[str]:
    columns = line.split("\t")
    if len(columns) != COLUMNS:
        raise UserError(
            f"{path}, line {number}: the row has {len(columns)} columns; CoNLL-U has {COLUMNS}, separated by tabs.",
            code="wrong-format",
        )
    return columns


def _tree(lines: Sequence[tuple[int, list[str]]], path: Path, problems: Problems) -> Iterator[Tree]:
    """Yield the tree of some lines, if it is well-formed."""
    words = [(number, columns) for number, columns in lines if columns[0].isdecimal()]
    if not words:
        return
    tree = Tree(
        words=tuple(columns[1] for _, columns in words),
        # A head that is no number becomes len(words), which the check below reports.
        heads=tuple(int(columns[6]) - 1 if columns[6].isdecimal() else len(words) for _, columns in words),
        relations=tuple(columns[7] for _, columns in words),
        tags=tuple(columns[3] for _, columns in words),
        path=path,
        line=words[0][0],
    )
    for number, (line, columns) in enumerate(words, 1):
        if columns[0] != str(number):
            problems.add(
                f"{path}, line {line}: expected word {number}, but the row has word {columns[0]}.", code="unusable-row"
            )
            return
        if not 0 <= int(tree.heads[number - 1]) + 1 <= len(words):
            problems.add(
                f"{path}, line {line}: the head of word {number} must be a number from 0 to {len(words)}, not "
                f"'{columns[6]}'.",
                code="unusable-row",
            )
            return
    if (loop := cycle(tree.heads)) is not None:
        line = words[loop][0]
        problems.add(f"{path}, line {line}: the heads of word {loop + 1} form a cycle.", code="unusable-row")
        return
    yield tree


def cycle(heads: Sequence[int]) -> int | None:
    """Return a word on a cycle of heads, None if all words lead to a root.

    >>> cycle([1, -1, 1]), cycle([1, 2, 0])
    (None, 0)
    """
    safe: set[int] = {-1}
    for word in range(len(heads)):
        path: list[int] = []
        above = word
        while above not in safe:
            if above in path:
                return above
            path.append(above)
            above = heads[above]
        # Words known to lead to the root: each word is walked over once, so the search is linear.
        safe.update(path)
    return None
