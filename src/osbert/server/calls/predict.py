"""POST /v1/predict: labels, numbers and choices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, Field

from osbert.errors import UserError
from osbert.server.calls.contract import Call, Item, RequestFields, encode_record, item_of, windows
from osbert.server.models import ServerModel
from osbert.server.schemas import Refusal, Reply, Request, Row, shorten


class PredictRequest(Request, title="Predict"):
    """Texts, or pairs of texts, or records for a model that chooses."""

    texts: (
        Annotated[
            list[str | Annotated[list[str], Field(min_length=2, max_length=2)]], Field(min_length=1, fail_fast=True)
        ]
        | None
    ) = Field(default=None, description="Texts, or pairs [first, second] where the model reads pairs.")
    records: Annotated[list[Row], Field(min_length=1, fail_fast=True)] | None = Field(
        default=None, description="For a model that chooses: rows by column, or {context, choices: [...]}."
    )

    def parts(self) -> Iterator[tuple[str, str]]:
        """Yield (field, text) for every text of the request."""
        yield from super().parts()
        for index, record in enumerate(self.records or ()):
            for name, value in record.items():
                for text in (value,) if isinstance(value, str) else value:
                    yield f"records[{index}].{shorten(name)}", text

    def count(self) -> tuple[str, int]:
        """Return the field in use and its length, or that of its longest list of choices."""
        if self.records is None:
            return super().count()
        lists = [value for record in self.records for value in record.values() if isinstance(value, list)]
        return "records", max([len(self.records), *map(len, lists)])


class PredictValue(BaseModel, title="Prediction"):
    """Of a text or a record: a label, or all labels that it has, or a number (value), or a choice."""

    __qualname__ = "Prediction"

    label: str | None = None
    labels: list[str] | None = None
    value: float | None = None
    choice: int | None = None
    probabilities: dict[str, float] | list[float] | None = None
    left_out: int | None = Field(
        default=None,
        description="Of a model with more than 100 labels: how many less likely ones have no probability here.",
    )
    windows: int | None = Field(default=None, description="Told where a long text was read in several windows.")


class PredictAnswer(Reply, title="Predictions"):
    """What /v1/predict answers."""

    __qualname__ = "Predictions"

    predictions: list[PredictValue]


class PredictCall(Call):
    """Predicts for each text, pair or row."""

    what = "predict (/v1/predict)"
    request = PredictRequest
    reply = PredictAnswer

    def items(self, model: ServerModel, values: RequestFields) -> list[Item]:
        """Return an item for each text, pair or row. Raises Refusal (422) if one does not fit the model."""
        texts, rows = values.get("texts"), values.get("records")
        if (texts is None) == (rows is None):
            raise Refusal(422, "Give one of texts and records.", field="texts")
        if rows is not None:
            if not model.engine.fine_tuned.reads_rows:
                raise Refusal(422, f"The model {model.name} reads texts, not records.", field="records")
            return [_row(model, row, f"records[{index}]") for index, row in enumerate(rows)]
        return [
            item_of(model, (text,) if isinstance(text, str) else tuple(text), f"texts[{index}]")
            for index, text in enumerate(texts or ())
        ]

    def fields(
        self, model: ServerModel, values: RequestFields, items: Sequence[Item], results: Sequence[Any]
    ) -> dict[str, Any]:
        """Return the predictions as objects."""
        reply = model.engine.fine_tuned.reply
        pairs = zip(items, results, strict=True)
        return {"predictions": [reply(prediction) | windows(model, item) for item, prediction in pairs]}


def _row(model: ServerModel, row: Mapping[str, Any], field: str) -> Item:
    try:
        record = model.engine.fine_tuned.row(row, where=field)
    except (UserError, ValueError) as error:
        raise Refusal(422, str(error), field=field) from error
    return encode_record(model, record, field)
