"""Sources and targets in a table: their columns, and the records of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from osbert.errors import UserError
from osbert.reading.columns import Header
from osbert.reading.table import Row
from osbert.tasks import Record
from osbert.tasks.tables import UnlabelledRow
from osbert.tasks.tables.cells import cell_texts

_SOURCES = (
    *("source", "src", "input", "inputs", "document", "article", "dialogue", "passage"),
    *("context", "text", "sentence", "content", "doc", "question"),
)
_TARGETS = (
    *("target", "tgt", "output", "outputs", "summary", "highlights", "translation", "reference", "references"),
    *("response", "answer", "title", "label"),
)
HEADINGS = (*_SOURCES, *_TARGETS)
"""A first line that contains one of these is a header."""


@dataclass(frozen=True, kw_only=True)
class SourceColumns:
    """The columns in use: one or several of the source, and that of the target, "" if there is none."""

    source: tuple[str, ...]
    label: str = ""

    def describe(self, *, labelled: bool = True) -> str:
        """Describe the columns. Without `labelled`, mention that the target is not read."""
        sources = f"source from {' and '.join(map(repr, self.source))}"
        target = f"target from '{self.label}'" if labelled else f"the targets in '{self.label}' are not read"
        return f"{sources}, {target if self.label else 'no target'}"


def choose(columns: Sequence[str], *, user_columns: SourceColumns, path: str, labelled: bool) -> SourceColumns:
    """Return the columns to use: the given ones (`user_columns`), else those with usual names; of two columns the other
    one.

    Raises UserError listing the columns if a given one is absent or none can be detected.
    """
    header = Header(columns, path)
    for name in user_columns.source:
        header.require(name, option="text")
    header.require(user_columns.label if labelled else "", option="target")
    target = user_columns.label if user_columns.label in columns else header.first(_TARGETS, but=user_columns.source)
    source = user_columns.source or tuple(filter(None, [header.first(_SOURCES, but=(target,))]))
    # A single remaining column is the source or the target, whichever is missing.
    others = [name for name in columns if name not in (*source, target)]
    if len(others) == 1 and (not source or (labelled and not target)):
        source, target = (source, others[0]) if source else ((others[0],), target)
    if not source:
        raise header.missing("source", ": give --text NAME (or NAME,NAME), the column that is read.")
    if labelled and not target:
        raise header.missing("target", ": give --target NAME, the column with the text to write.")
    if labelled and target in source:
        raise UserError(
            f"{path}: '{target}' is source and target, so that a model would learn to copy: give another --text or "
            "--target.",
            code="options-exclude-each-other",
        )
    return SourceColumns(source=source, label=target)


def record_of(row: Row, columns: SourceColumns, *, path: str) -> Record:
    """Return the source and the references of a row. Raises ValueError with the reason if they are unusable.

    A list in a source cell is joined with spaces. A list in a target cell holds several references of one source, all
    of which are used for training.
    """
    if missing := [name for name in (*columns.source, columns.label) if name and name not in row.values]:
        # UnlabelledRow: rows without a label are counted apart from unusable ones.
        raise (UnlabelledRow if missing == [columns.label] else ValueError)(f"there is no '{missing[0]}' in it")
    texts = tuple(" ".join(cell_texts(row, name)) for name in columns.source)
    references: tuple[str, ...] | None = None
    if columns.label:
        references = tuple(text for text in cell_texts(row, columns.label) if text.strip())
        if not references:
            raise UnlabelledRow("the target is empty")
    return Record(number=0, texts=texts, label=references, path=path, line=row.line)
