"""CoNLL-U, the format of Universal Dependencies: the words of a sentence with their universal parts of speech.

https://universaldependencies.org/format.html. Whole trees are read by osbert_lab.analysis.tree_files.
"""

from __future__ import annotations

import io
import re
from typing import ClassVar

from osbert.errors import UserError
from osbert.reading.data_file import DataFile
from osbert.reading.form import TableReading, read_text
from osbert.reading.table import Entry, FileForm
from osbert_lab.analysis.tree_files import COLUMNS, SUFFIX, is_trees

NO_WORD = re.compile(r"[0-9]+[-.][0-9]+")
"""The number of a multiword token or of an empty node."""
UNSPECIFIED = ("_", "")


class Conllu(FileForm):
    """A .conllu file: comments, multiword tokens (3-4) and empty nodes (5.1) are skipped."""

    title: ClassVar[str] = "CoNLL-U"
    unit: ClassVar[str] = "line"
    suffixes = (SUFFIX,)

    @classmethod
    def claims(cls, file: DataFile) -> bool:
        """Return whether the name of a file ends in .conllu, compressed or not."""
        return is_trees(file.path)

    def load(self, file: DataFile, reading: TableReading) -> list[Entry]:
        """Return the sentences with `tokens` and `tags`, numbered by their first lines."""
        entries: list[Entry] = []
        first, words, tags = 0, list[str](), list[str]()
        # Texts may contain U+2028 and others at which str.splitlines ends a line, too.
        text = io.StringIO(read_text(file, reading.encoding), newline=None)
        for number, line in enumerate([*text, ""], 1):
            columns = line.rstrip("\n").split("\t")
            if line.startswith("#"):
                continue
            if not line.strip():
                if words:
                    entries.append((first, _sentence(words, tags)))
                first, words, tags = 0, [], []
            elif len(columns) != COLUMNS:
                error = f"the row has {len(columns)} columns; CoNLL-U has {COLUMNS}, separated by tabs"
                entries.append((number, ValueError(error)))
            elif columns[0].isdecimal():
                first = first or number
                words.append(columns[1])
                tags.append(columns[3])
            elif not NO_WORD.fullmatch(columns[0]):
                entries.append((number, ValueError(f"{columns[0]!r} is no number of a word, such as 3, 3-4 or 3.1")))
        if not entries:
            raise UserError(f"{file.path} contains no sentences.", code="no-data")
        return entries


def _sentence(words: list[str], tags: list[str]) -> dict[str, list[str]] | ValueError:
    """Return the row of a sentence, without tags if no word has one."""
    if all(tag in UNSPECIFIED for tag in tags):
        return {"tokens": words}
    for word, tag in zip(words, tags):
        if tag in UNSPECIFIED:
            return ValueError(f"the word {word!r} has no part of speech; others of its sentence have one")
    return {"tokens": words, "tags": tags}
