"""Predictions of tasks: POST /v1/predict (labels, numbers and choices), /v1/tag (entities) and /v1/answer.

A kind of task may declare a call of its own by its Edge, with one record in each request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, Field, create_model

from osbert.errors import UserError
from osbert.inference.label_settings import LabelNames, NamingOptions, list_names
from osbert.server.calls.contract import (
    Call,
    Item,
    Items,
    RequestFields,
    Results,
    encode_record,
    item_of,
    require_fit,
    require_text,
    windows,
)
from osbert.server.calls.models import PREDICT, ServerModel
from osbert.server.calls.schemas import Refusal, Reply, Request, Row, Texts, shorten
from osbert.tasks.edges import Edge, FieldType

LABELS, LABELLED = 2_000, 20_000
"""Most classes by name in a request, and most texts times classes."""
Labels = Annotated[list[str] | dict[str, str], Field(min_length=1, max_length=LABELS)]
"""Names, or descriptions by name."""
NamedLabels = tuple[LabelNames, NamingOptions]
"""Names, and how a model is asked for them."""


def label_parts(labels: list[str] | dict[str, str] | None) -> Iterator[tuple[str, str]]:
    """Yield (field, text) for every name and description."""
    items = labels.items() if isinstance(labels, dict) else [(label,) for label in labels or ()]
    for index, texts in enumerate(items):
        yield from ((f"labels[{index}]", text) for text in texts)


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

    labels: Labels | None = Field(
        default=None,
        description="Predict these classes, which the model was not trained for: names, or descriptions by name.",
    )
    multi: bool = Field(default=False, description="With labels: several may hold, or none. For models of entailment.")
    template: str = Field(default="", description="With labels: the sentence in which {label} stands for a class.")

    def parts(self) -> Iterator[tuple[str, str]]:
        yield from super().parts()
        yield from label_parts(self.labels)
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


class NamingCall(Call):
    """A call whose requests may name the labels."""

    def option(self, values: RequestFields) -> NamedLabels | None:
        """Return the labels by name, and how the model is asked for them; None for those of the model."""
        if not (labels := values.get("labels")):
            return None
        several = bool(values.get("multi") or values.get("nested"))
        # Answers do not depend on the other texts of a request: nothing is calibrated.
        options = NamingOptions(multi=several, template=values.get("template") or "", calibrate=False)
        return list_names(labels), options

    def read(self, model: ServerModel, items: Items, option: Any) -> Results:
        if option is None:
            return super().read(model, items, option)
        return model.label_predictor(*option).predict_encoded(items)


class PredictCall(NamingCall):
    """Predicts for each text, pair or row."""

    what = "predict (/v1/predict)"
    request = PredictRequest
    reply = PredictAnswer

    def items(self, model: ServerModel, values: RequestFields) -> list[Item]:
        """Return an item for each text, pair or row. Raises Refusal (422) if one does not fit the model."""
        texts, rows = values.get("texts"), values.get("records")
        if option := self.option(values):
            return _named_items(model, values, option)
        if values.get("multi") or values.get("template"):
            raise Refusal(422, "multi and template go with labels.", field="multi" if values["multi"] else "template")
        if model.edge.call != PREDICT:
            raise Refusal(422, f"The model {model.name} predicts classes by name alone: send labels.", field="labels")
        if (texts is None) == (rows is None):
            raise Refusal(422, "Send either texts or records, not both.", field="texts")
        if rows is not None:
            if not model.engine.fine_tuned.reads_rows:
                raise Refusal(422, f"The model {model.name} reads texts, not records.", field="records")
            return [_row(model, row, f"records[{index}]") for index, row in enumerate(rows)]
        return [
            item_of(model, (text,) if isinstance(text, str) else tuple(text), f"texts[{index}]")
            for index, text in enumerate(texts or ())
        ]

    def fields(self, model: ServerModel, values: RequestFields, items: Items, results: Results) -> dict[str, Any]:
        if option := self.option(values):
            named = model.label_predictor(*option).fine_tuned
            return {"predictions": [named.reply(prediction) for prediction in results]}
        reply = model.engine.fine_tuned.reply
        pairs = zip(items, results, strict=True)
        return {"predictions": [reply(prediction) | windows(model, item) for item, prediction in pairs]}


def _named_items(model: ServerModel, values: RequestFields, option: NamedLabels) -> list[Item]:
    """Return the items of texts with classes by name. Raises Refusal: 422, or 413 for too many of both together."""
    texts = values.get("texts")
    if texts is None or values.get("records") is not None:
        raise Refusal(422, "Send texts with labels, and no records.", field="texts")
    _require_few(texts, option[0])
    predictor = model.label_predictor(*option)
    items = []
    for index, text in enumerate(texts):
        field = f"texts[{index}]"
        if not isinstance(text, str):
            raise Refusal(422, "Classes by name are predicted for single texts, not for pairs.", field=field)
        require_text(model, text, field)
        record = predictor.fine_tuned.record_of((text,))
        items.append(require_fit(Item(record, tuple(predictor.encode(record))), field, length=predictor.packer.length))
    return items


def _require_few(texts: Sequence[Any], labels: LabelNames) -> None:
    if (count := len(texts) * len(labels)) > LABELLED:
        what = f"{len(texts):,} texts with {len(labels):,} labels are {count:,} questions, more than {LABELLED:,}."
        raise Refusal(413, what, field="labels")


def _row(model: ServerModel, row: Mapping[str, Any], field: str) -> Item:
    try:
        record = model.engine.fine_tuned.row(row, where=field)
    except (UserError, ValueError) as error:
        raise Refusal(422, str(error), field=field) from error
    return encode_record(model, record, field)


class TagRequest(Request, title="Tag"):
    """Texts in which entities are looked for."""

    texts: Texts
    labels: Labels | None = Field(
        default=None,
        description="For a model of spans by name: look for these types, names or descriptions by name.",
    )
    nested: bool = Field(default=False, description="With labels: entities may stand within others.")

    def parts(self) -> Iterator[tuple[str, str]]:
        yield from super().parts()
        yield from label_parts(self.labels)


class Entity(BaseModel):
    """An entity: text[start:end], in characters."""

    type: str
    start: int
    end: int
    text: str
    probability: float | None = None


class TagAnswer(Reply, title="Entities"):
    """What /v1/tag answers: the entities of each text."""

    __qualname__ = "Entities"

    entities: list[list[Entity]]
    windows: list[int] | None = None


class TagCall(NamingCall):
    """Tags the entities of each text."""

    what = "tag (/v1/tag)"
    request = TagRequest
    reply = TagAnswer

    def items(self, model: ServerModel, values: RequestFields) -> list[Item]:
        """Return an item for each text. Long texts are read in windows, so none is too long."""
        if option := self.option(values):
            return _span_items(model, values["texts"], option)
        if values.get("nested"):
            raise Refusal(422, "nested goes with labels.", field="nested")
        return [item_of(model, (text,), f"texts[{index}]", empty=True) for index, text in enumerate(values["texts"])]

    def fields(self, model: ServerModel, values: RequestFields, items: Items, results: Results) -> dict[str, Any]:
        """Return the entities of each text, and the numbers of sequences if a text was read in several."""
        reply = model.engine.fine_tuned.reply
        counts = [len(item.examples) for item in items]
        several = {"windows": counts} if max(counts) > 1 else {}
        return {"entities": [reply(prediction)["entities"] for prediction in results], **several}


def _span_items(model: ServerModel, texts: Sequence[str], option: NamedLabels) -> list[Item]:
    """Return the items of texts with types by name. Raises Refusal: 422, or 413 for too many of both together."""
    if model.engine.task is None or model.engine.task.label_scorer() is None:
        raise Refusal(422, f"The model {model.name} looks for its own types alone: send no labels.", field="labels")
    _require_few(texts, option[0])
    predictor = model.label_predictor(*option)
    records = [predictor.fine_tuned.record_of((text,)) for text in texts]
    return [Item(record, tuple(predictor.encode(record))) for record in records]


class AnswerRequest(Request, title="Answer"):
    """A question, and the paragraph in which to find the answer."""

    reads = ("question", "paragraph")
    question: str
    paragraph: str
    n_best: int = Field(default=0, ge=0, le=100, description="Number of candidates to return beside the answer.")


class AnswerSpan(BaseModel, title="Candidate"):
    """A slice of the paragraph, paragraph[start:end]; of the candidates one may be "" at -1, that there is none."""

    __qualname__ = "Candidate"

    text: str
    start: int
    end: int
    probability: float


class AnswerReply(Reply, title="Answered"):
    """What /v1/answer answers; null where the paragraph holds no answer."""

    __qualname__ = "Answered"

    answer: AnswerSpan | None
    n_best: list[AnswerSpan]
    windows: int | None = None


class AnswerCall(Call):
    """Answers one question from one paragraph."""

    what = "answer questions (/v1/answer)"
    request = AnswerRequest
    reply = AnswerReply

    def items(self, model: ServerModel, values: RequestFields) -> list[Item]:
        """Return one item, the question with its paragraph. Raises Refusal (422) if a part of it would not be read."""
        for name in ("question", "paragraph"):
            require_text(model, values[name], name)
        item = item_of(model, (values["question"], values["paragraph"]), "question", empty=True)
        if cut := sum(example.truncated for example in item.examples):
            limit = model.engine.fine_tuned.description.limit(model.engine.packer)
            raise Refusal(422, f"The input is {cut:,} pieces too long: the model reads {limit}.", field="question")
        return [item]

    def fields(self, model: ServerModel, values: RequestFields, items: Items, results: Results) -> dict[str, Any]:
        """Return the answer (None if the model finds none) and the `n_best` likeliest candidates."""
        (item,), (prediction,) = items, results
        reply = model.engine.fine_tuned.reply(prediction)
        return {**reply, "n_best": reply["n_best"][: values["n_best"]], **windows(model, item)}


class RankingItem(BaseModel, title="RankedText"):
    """A text of a ranking: its rank from 1, its index in the request's list from 0, its score and its probability."""

    __qualname__ = "RankedText"

    rank: int
    index: int
    score: float
    probability: float


TYPES: Mapping[FieldType, Any] = {
    "text": str,
    "texts": Texts,
    "flag": bool,
    "integer": int,
    "number": float,
    "numbers": list[float],
    "probabilities": dict[str, float],
    "ranking": list[RankingItem],
}
"""Python types of the field types that a kind can declare."""


class OwnCall(Call):
    """The call of an Edge."""

    def __init__(self, edge: Edge) -> None:
        """Create the schemas of request and answer from the fields that `edge` declares."""
        title = "".join(part.capitalize() for part in edge.call.split("-"))
        request = {field.name: (TYPES[field.type], Field(description=field.about or None)) for field in edge.request}
        answer = {field.name: (TYPES[field.type], Field(description=field.about or None)) for field in edge.answer}
        more = {"windows": (int | None, Field(default=None, description="If a long text was read in several windows."))}
        self.edge = edge
        self.what = f"answer /v1/{edge.call}"
        self.request = create_model(f"{title}Request", __base__=Request, __doc__=edge.about, **request)  # type: ignore[call-overload]
        self.request.reads = tuple(request)
        self.reply = create_model(  # type: ignore[call-overload]
            f"{title}Answer", __base__=Reply, __doc__=f"What /v1/{edge.call} answers.", **answer, **more
        )

    def items(self, model: ServerModel, values: RequestFields) -> list[Item]:
        """Return one item, the record of the request's texts. Raises Refusal (422) if a text is empty."""
        texts: list[str] = []
        for field in self.edge.request:
            value = values[field.name]
            is_single = isinstance(value, str)
            given = [value] if is_single else value
            for index, text in enumerate(given):
                require_text(model, text, field.name if is_single else f"{field.name}[{index}]")
            texts += given
        # With `empty` what is too long is not refused; that no text is empty is known by now.
        return [item_of(model, texts, self.edge.request[0].name, empty=self.edge.cuts)]

    def fields(self, model: ServerModel, values: RequestFields, items: Items, results: Results) -> dict[str, Any]:
        """Return the fields that the kind declares, made by `Task.reply`."""
        (item,), (prediction,) = items, results
        return {**model.engine.fine_tuned.reply(prediction), **windows(model, item)}
