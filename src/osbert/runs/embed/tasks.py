"""Vectors in tasks: each task embeds a range of rows into columns of its own; these are joined in order."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from osbert.inference.vectors.files import ENDS
from osbert.inference.vectors.growing import GrowingFiles
from osbert.runs.embed.opened_texts import EmbeddedRows, EmbeddingSource
from osbert.runs.rows.tasks import RowRange, require_facts, require_whole
from osbert.runs.rows.texts import TextRows

STARTS = "starts"
"""The column with the first token of each text, and at its end the number of tokens."""
BLOCK = 2**25
"""Bytes of a column that are copied at a time."""


@dataclass(frozen=True, kw_only=True)
class EmbeddingWork:
    """The embedding of a range of rows. `facts`: those of the model and the file that the command has opened."""

    source: EmbeddingSource
    facts: Mapping[str, Any]

    @property
    def inputs(self) -> tuple[Path, ...]:
        """The paths of the model and of the file."""
        return self.source.model, self.source.texts.path

    @classmethod
    def of(cls, source: EmbeddingSource, facts: Mapping[str, Any]) -> EmbeddingWork:
        """Return the work, ready for another process: with absolute paths."""
        texts = replace(source.texts, path=source.texts.path.absolute())
        return cls(source=replace(source, model=source.model.absolute(), texts=texts), facts=facts)

    def __call__(self, rows: RowRange, folder: Path) -> None:
        """Write the columns of the rows into `folder`, after the last window that a killed task has written."""
        opened = EmbeddedRows.open(self.source, TextRows.open(self.source.texts, folder))
        require_facts(opened.facts, self.facts, opened.rows.name)
        growing = GrowingFiles(folder)
        growing.tally = growing.tally or {"rows": rows.start}  # JSON lines number the rows of the whole file
        for _ in opened.grow(growing, rows.stop):
            pass
        opened.rows.before.require_rows(growing.tally["rows"], rows.stop)
        opened.rows.before.require_same(whole=True)


def join_columns(parts: Sequence[tuple[RowRange, Path]], folder: Path) -> GrowingFiles:
    """Join the columns of all parts in a folder, which is made anew; offsets then count from the first part on.

    Raises UserError if a part is damaged or not whole.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    whole = GrowingFiles(folder)
    tally: Counter[str] = Counter()
    for rows, part_folder in parts:
        part = GrowingFiles(part_folder)
        require_whole(rows, part.tally.get("rows"), part_folder)
        before = dict(whole.sizes)
        for name in part.sizes:
            base = tally["pieces"] if name == STARTS else before.get(name.removesuffix(ENDS), 0)
            for block in _blocks(part, name, base, skipped=name == STARTS and bool(before)):
                # All columns grow together: the others by nothing.
                whole.append({column: block if column == name else b"" for column in part.sizes}, {})
        tally.update(part.tally)
        tally.subtract({"rows": rows.start})
    whole.tally = dict(tally)
    return whole


def _blocks(part: GrowingFiles, name: str, base: int, *, skipped: bool) -> Iterator[bytes]:
    """Yield the bytes of a column; offsets plus `base`. `skipped`: without the first one, the last of the part before.

    The columns of offsets are `starts`, of tokens, and those of the ends of texts.
    """
    offsets = name == STARTS or (name.endswith(ENDS) and name.removesuffix(ENDS) in part.sizes)
    with part.path(name).open("rb") as file:
        file.seek(8 if skipped else 0)
        while block := file.read(BLOCK):
            yield (np.frombuffer(block, np.int64) + base).tobytes() if offsets else block
