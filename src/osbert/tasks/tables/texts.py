"""One text or a pair of texts a row, and one label: what classify and regress stand on; no task itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from osbert.data.example import Example
from osbert.data.pack import Packer, Run
from osbert.data.table import Row, Table
from osbert.data.table_columns import Columns, choose
from osbert.errors import UserError
from osbert.tasks import Record
from osbert.tasks.tables import TableTask


@dataclass(frozen=True, kw_only=True)
class TextTask(TableTask):
    """A task on texts, or pairs of texts, with one label each."""

    text: str = ""
    """The column with the text; found by its name when left open."""
    pair: str = ""
    """The column with the second text, where texts come in pairs."""
    label: str = ""
    """The column with the label; found by its name when left open."""

    @property
    def named(self) -> tuple[str, ...]:
        """Return the columns that the user named."""
        return (self.text, self.pair, self.label)

    def columns(self, table: Table, *, labelled: bool) -> Columns:
        """Return the columns that hold text, pair and label; without `labelled` the label may be absent."""
        asked = Columns(text=self.text, pair=self.pair, label=self.label)
        return choose(table.columns, asked=asked, path=str(table.path), numbers=self.numbers, labelled=labelled)

    def resolved(self) -> Self:
        """Return the task with the columns of its training file written down by name."""
        columns = self.columns(self.open(self.file("train")), labelled=True)
        return dataclasses.replace(self, text=columns.text, pair=columns.pair, label=columns.label)

    def moved(self, data: Path, given: Mapping[str, Any]) -> Self:
        """Return the task for other data, a file or a folder: how to read the training file is forgotten.

        The columns keep their names where the new file has them, else they are found anew; `given` overrides.

        Raises UserError when the model reads pairs and the file has single texts, or the other way round.
        """
        task = super().moved(data, given)
        if not data.is_file():
            return task
        table = task.open(data)
        kept = {"text": self.text, "pair": self.pair} if {self.text, self.pair} - {""} <= {*table.columns} else {}
        label = self.label if self.label in table.columns else ""
        task = dataclasses.replace(task, **({"text": "", "pair": "", "label": label} | kept | dict(given)))
        columns = task.columns(table, labelled=False)
        if self.text and bool(columns.pair) != bool(self.pair):
            wanted = "pairs of texts: give --text NAME --pair NAME" if self.pair else "single texts: give --text NAME"
            raise UserError(
                f"{data} has the columns {', '.join(table.columns)}; in use are {', '.join(columns.texts)}. "
                f"The model was trained on {wanted}."
            )
        return dataclasses.replace(task, text=columns.text, pair=columns.pair)

    def value(self, text: str) -> Any:
        """Return the label that a cell stands for; raises ValueError, saying why, when it stands for none."""
        return text

    def record(self, row: Row, columns: Columns, *, path: str = "") -> Record:
        """Return the record of a row; raises ValueError, saying why, when its label or text cannot be used."""
        missing = [name for name in (*columns.texts, columns.label) if name and name not in row.values]
        if missing:
            raise ValueError(f"there is no '{missing[0]}' in it")
        texts = tuple(row.values[name] for name in columns.texts)
        label = self.value(row.values[columns.label].strip()) if columns.label else None
        return Record(number=0, texts=texts, label=label, path=path, line=row.line)

    def asked(self, texts: Sequence[str]) -> Record:
        """Return the record of one text, or of the two of a pair; UserError when the task reads the other."""
        if self.text and len(texts) != (wanted := 2 if self.pair else 1):
            kind = "pairs of texts, not single ones" if wanted == 2 else "single texts, not pairs"
            raise UserError(f"The run was fine-tuned on {kind}.")
        return super().asked(texts)

    def encode(self, record: Record, packer: Packer) -> list[Example]:
        """Return the one sequence of a text or a pair."""
        runs = [_run(text, packer) for text in record.texts]
        if len(runs) == 1:
            return [packer.single(runs[0].ids, runs[0].words, record=record.number)]
        if len(runs) == 2:
            return [packer.pair(runs[0], runs[1], record=record.number)]
        raise UserError(f"{record.place}: {self.name} reads one text or a pair, not {len(runs)} texts.")


def _run(text: str, packer: Packer) -> Run:
    ids = packer.tokenizer.encode(text)
    return Run(ids, ~packer.tokenizer.continuation[ids])
