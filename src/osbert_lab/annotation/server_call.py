"""POST /v1/annotate: adds the model's predictions to an annotation tool's records, in the tool's own format."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from osbert.errors import Problems
from osbert.reading.memory import tables
from osbert.reading.table import AnnotatedTable, Row
from osbert.runs.rows.forms.contract import RowLayout
from osbert.runs.rows.forms.records import JsonRecords
from osbert.runs.rows.prediction_settings import PredictionColumns, WrittenPrediction
from osbert.server.calls.contract import Call, Item, RequestFields, item_of, windows
from osbert.server.calls.models import ServerModel
from osbert.server.calls.schemas import Refusal, Reply, Request

ToolRecords = list[dict[str, Any]]


class AnnotateRequest(Request, title="Annotate"):
    """Records of an annotation tool, as its file holds them: doccano, Label Studio, Prodigy or spaCy."""

    reads = ("records", "examples")
    records: Annotated[ToolRecords, Field(min_length=1, fail_fast=True)]
    examples: Annotated[ToolRecords, Field(fail_fast=True)] = Field(
        default=[], description="Further records of the file, from which its form is found as well; not answered."
    )

    def parts(self) -> Iterator[tuple[str, str]]:
        """Yield (field, text) for every string in the records."""
        for name in self.reads:
            for index, record in enumerate(getattr(self, name)):
                yield from ((f"{name}[{index}]", text) for text in _strings(record))


class AnnotateAnswer(Reply, title="Annotated"):
    """What /v1/annotate answers: the form; of each record its text, itself with the suggestion, and the prediction."""

    __qualname__ = "Annotated"

    form: str
    texts: list[str]
    records: ToolRecords
    predictions: ToolRecords
    windows: list[int] | None = Field(default=None, description="Of each record, if a text had several.")


class AnnotateCall(Call):
    """Suggests an annotation for each record, in the form that `osbert predict` writes."""

    what = "annotate records (/v1/annotate)"
    request = AnnotateRequest
    reply = AnnotateAnswer

    def items(self, model: ServerModel, values: RequestFields) -> list[Item]:
        """Return an item for the text of each record."""
        _, rows = _read(values)
        tagged = model.engine.fine_tuned.per_token  # read in windows; any other text must fit, as in /v1/predict
        return [
            item_of(model, (row.values.get("text", ""),), f"records[{index}]", empty=tagged)
            for index, row in enumerate(rows)
        ]

    def fields(
        self, model: ServerModel, values: RequestFields, items: Sequence[Item], results: Sequence[Any]
    ) -> dict[str, Any]:
        """Return the form of the records, and the records with their predictions."""
        table, rows = _read(values)
        task = model.engine.fine_tuned
        form = JsonRecords(RowLayout(file=Path(), columns=table.columns, headings=(), table=table, task=task))
        written = []
        for number, (row, prediction) in enumerate(zip(rows, results, strict=True)):
            result = WrittenPrediction(task=task, columns=PredictionColumns(), prediction=prediction)
            written.append(form.row(row, result, number))
        counts = [windows(model, item).get("windows", 1) for item in items]
        return {
            "form": table.form.title,
            "texts": [row.values.get("text", "") for row in rows],
            "records": [json.loads(line) for line in written],
            "predictions": [task.reply(prediction) for prediction in results],
            **({"windows": counts} if max(counts) > 1 else {}),
        }


def _read(values: Mapping[str, Any]) -> tuple[AnnotatedTable, list[Row]]:
    """Return the records as a table, and the row of each. Raises Refusal (422) unless each record has one text."""
    table = tables([*values["examples"], *values["records"]])["all"]
    if not isinstance(table, AnnotatedTable):
        raise Refusal(
            422,
            "The format of the records is not supported: they are not the export of a known annotation tool.",
            field="records",
        )
    # The further examples come first in the table, and its lines count from 1.
    first = len(values["examples"]) + 1
    problems = Problems(heading="The records cannot be read")
    rows: dict[int, list[Row]] = {number: [] for number in range(len(values["records"]))}
    for row in table.rows(problems):
        if row.line >= first:
            rows[row.line - first].append(row)
    for number, record_rows in rows.items():
        if len(record_rows) != 1:
            raise Refusal(
                422, f"The record has {len(record_rows)} texts; it must have one.", field=f"records[{number}]"
            )
    return table, [row for (row,) in rows.values()]


def _strings(value: Any) -> Iterator[str]:
    """Yield all strings in a JSON value, recursively."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _strings(part)
