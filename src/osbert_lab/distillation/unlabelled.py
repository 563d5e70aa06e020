"""Texts without labels, of which a student learns more about its teacher."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from osbert.errors import Problems, UserError
from osbert.reading.memory import Data, tables
from osbert.runs.contract import Notice, Watch
from osbert.tasks import Record, Task
from osbert.terminal import format_count


def read_unlabelled(task: Task, texts: Data, watch: Watch) -> list[Record]:
    """Return records of a file, or of rows in memory, without labels."""
    if isinstance(texts, str | Path) and not Path(texts).is_file():
        raise UserError(
            f"{texts}: there is no such file. --texts takes a file with one text per row.", code="missing-file"
        )
    path_or_tables = Path(texts) if isinstance(texts, str | Path) else tables(texts)
    origin = path_or_tables if isinstance(path_or_tables, Path) else next(iter(path_or_tables.values()))
    inputs = task.source.switch_data(path_or_tables, {}).source.inputs(origin)
    problems = Problems(heading=f"{inputs.describe} cannot be used")
    records = [dataclasses.replace(record, label=None) for _, record in inputs.rows(problems) if record is not None]
    problems.stop_if_any()
    watch(Notice(f"texts: {inputs.describe}; {format_count(len(records), 'row')} without labels"))
    return records
