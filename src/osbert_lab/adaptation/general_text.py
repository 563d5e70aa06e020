"""General English text that every installation has: the prose in the docstrings of Python's standard library."""

from __future__ import annotations

import ast
import hashlib
import os
import re
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

NOT_READ = frozenset(
    ("test", "tests", "idle_test", "idlelib", "lib2to3", "__pycache__")  # not documentation
    + ("site-packages", "dist-packages", "_vendor", "pip")  # other libraries
)

_CODE = re.compile(r"[\\{}<>|=^~@#$%&]|->|::|\w\(\w|\]\[|__|``|\.\.\.")
_ORDINARY = re.compile(r"(?<![\w.'-])[A-Za-z]?[a-z]+(?:['-][a-z]+)*(?=[\s,.;:!?)'\"]|$)")
_SENTENCE_END = re.compile(r"[.!?][\"')]*$")


def general_text(characters: int) -> list[str]:
    """Return about `characters` of text: the prose of one docstring in each passage, one paragraph a line.

    Source files are parsed, never run. They are sorted by the hash of their names, so the text depends only on the
    installation. [] where the library has no sources.
    """
    passages: list[str] = []
    library = Path(sysconfig.get_paths()["stdlib"])
    names = sorted(
        (path.relative_to(library).as_posix() for path in _sources(library)),
        key=lambda name: hashlib.sha256(name.encode()).digest(),
    )
    for path in map(library.joinpath, names):
        for docstring in _docstrings(path):
            paragraphs = (" ".join(part.split()) for part in re.split(r"\n\s*\n", docstring))
            if text := "\n".join(paragraph for paragraph in paragraphs if is_prose(paragraph)):
                passages.append(text)
                characters -= len(text)
        if characters <= 0:
            break
    return passages


def is_prose(paragraph: str) -> bool:
    """Return whether a paragraph is English prose: at least four words, a sentence end, and 75 % ordinary words.

    >>> is_prose("Return the queue, which may be empty."), is_prose("x = queue.get() # may wait.")
    (True, False)
    """
    words = paragraph.split()
    if len(words) < 4 or not _SENTENCE_END.search(paragraph) or not paragraph[0].isalpha():
        return False
    # More than one code sign in 25 words: a formula or a signature.
    if len(_CODE.findall(paragraph)) * 25 > len(words):
        return False
    return len(_ORDINARY.findall(paragraph)) >= 0.75 * len(words)


def _sources(library: Path) -> Iterator[Path]:
    for folder, inner, names in os.walk(library):
        # Assigning to the slice prunes the walk: os.walk descends only into the folders left in this list.
        inner[:] = [name for name in inner if name not in NOT_READ]
        yield from (Path(folder, name) for name in names if name.endswith(".py") and not name.startswith("test_"))


def _docstrings(path: Path) -> Iterator[str]:
    """Yield the docstrings of a source file; none if it cannot be parsed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other people's invalid escapes are no concern of the reader's
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, SyntaxError, RecursionError):  # a template, or a file for another Python
            return
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield ast.get_docstring(node) or ""
