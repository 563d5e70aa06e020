"""Predictions in tasks: each task predicts a range of rows into a part; the parts, in order, are the output."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from osbert.runs.predict.rows import PredictedFile, PredictionRows
from osbert.runs.rows.forms.contract import RowForm
from osbert.runs.rows.part import RowPart
from osbert.runs.rows.tasks import RowRange, require_facts, require_whole


@dataclass(frozen=True, kw_only=True)
class PredictionWork:
    """The prediction of a range of rows. `facts`: those of the model and the file that the command has opened."""

    source: PredictedFile
    facts: Mapping[str, Any]

    @property
    def inputs(self) -> tuple[Path, ...]:
        """The paths of the model and of the file."""
        return self.source.run, self.source.path

    @classmethod
    def of(cls, source: PredictedFile, facts: Mapping[str, Any]) -> PredictionWork:
        """Return the work, ready for another process: with absolute paths, and without the stream of the output."""
        run, path = source.run.absolute(), source.path.absolute()
        return cls(source=replace(source, run=run, path=path, output=replace(source.output, stream=None)), facts=facts)

    def __call__(self, rows: RowRange, folder: Path) -> None:
        """Write the predicted rows into `folder`, after the last window that a killed task has written."""
        opened = PredictionRows.open(self.source)
        require_facts(opened.facts, self.facts, self.source.name)
        part = RowPart(folder)
        # The tally counts from the start of the file: forms write the first row of all in another way than the others.
        tally: Mapping[str, int] = part.tally or {"read": rows.start, "rows": rows.start}
        for text, reached in opened.windows(tally, rows.stop):
            part.append(text, reached)
        opened.before.require_rows(part.tally.get("read", rows.start), rows.stop)
        opened.before.require_same(whole=True)


def join_parts(parts: Sequence[tuple[RowRange, Path]], form: RowForm, path: Path) -> Mapping[str, int]:
    """Write the rows of all parts, with what stands before and behind them, to `path`; return their tally.

    Raises UserError if a part is damaged or not whole.
    """
    tally: Counter[str] = Counter()
    with path.open("wb") as file:
        file.write(form.begin().encode("utf-8", "backslashreplace"))
        for rows, folder in parts:
            part = RowPart(folder)
            require_whole(rows, part.tally.get("read"), folder)
            with part.path.open("rb") as text:
                shutil.copyfileobj(text, file, 2**20)
            tally.update(part.tally)
            tally.subtract({"read": rows.start, "rows": rows.start})
        file.write(form.end(tally["rows"]).encode("utf-8", "backslashreplace"))
    return tally
