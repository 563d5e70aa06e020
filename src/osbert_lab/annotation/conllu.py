"""CoNLL-U, the format of Universal Dependencies: the words of a sentence with their universal parts of speech.

https://universaldependencies.org/format.html. Trees are read by osbert_lab.analysis.tree_files.
"""

from __future__ import annotations

from typing import ClassVar

from osbert.errors import UserError
from osbert.reading.data_file import DataFile
from osbert.reading.form import TableReading, plain_suffix, read_text
from osbert.reading.table import Entry, FileForm

SUFFIX = ".conllu"
COLUMNS = 10


class Conllu(FileForm):
    """A .conllu file: comments, multiword tokens (3-4) and empty nodes (5.1) are skipped."""

    title: ClassVar[str] = "CoNLL-U"
    unit: ClassVar[str] = "line"
    suffixes = (SUFFIX,)

    @classmethod
    def claims(cls, file: DataFile) -> bool:
        """Return whether the name of a file ends in .conllu, compressed or not."""
        return plain_suffix(file.path) == SUFFIX

    def load(self, file: DataFile, reading: TableReading) -> list[Entry]:
        """Return the sentences with `tokens` and `tags`, numbered by their first lines."""
        entries: list[Entry] = []
        first, words, tags = 0, list[str](), list[str]()
        for number, line in enumerate([*read_text(file, reading.encoding).splitlines(), ""], 1):
            columns = line.split("\t")
            if line.startswith("#"):
                continue
            if not line.strip():
                if words:
                    entries.append((first, {"tokens": words, "tags": tags}))
                first, words, tags = 0, [], []
            elif len(columns) != COLUMNS:
                error = f"the row has {len(columns)} columns; CoNLL-U has {COLUMNS}, separated by tabs"
                entries.append((number, ValueError(error)))
            elif columns[0].isdecimal():
                first = first or number
                words.append(columns[1])
                tags.append(columns[3])
        if not entries:
            raise UserError(f"{file.path} contains no sentences.", code="no-data")
        return entries
