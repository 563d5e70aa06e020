"""What can be asked of a model: each call turns a request into items to read, and what was read of them into JSON.

What is predicted is what the engine says of the same records; nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from osbert.data.example import Example
from osbert.errors import UserError
from osbert.inference.vectors.settings import EmbeddingOptions
from osbert.reading.table import Row
from osbert.server.models import Kind, Model
from osbert.server.schemas import Refused
from osbert.tasks import Record
from osbert.tasks.kinds.choose import Choose
from osbert.tasks.kinds.choose.columns import ChoiceColumns, choose, record_of
from osbert.tasks.kinds.choose.records import Choices

Asked = Mapping[str, Any]
"""A request's fields."""


class Item(NamedTuple):
    """One thing to read: a Record or an Example as `value`, and the sequences that it is read in."""

    value: Any
    examples: tuple[Example, ...]

    @property
    def tokens(self) -> int:
        """Return its tokens."""
        return sum(map(len, self.examples))


class Call:
    """One of the things that can be asked."""

    kinds: ClassVar[tuple[Kind, ...]]
    what: ClassVar[str]

    def items(self, model: Model, asked: Asked) -> list[Item]:
        """Return what is to be read; raises Refused, 422, when it cannot be, naming the field."""
        raise NotImplementedError

    def option(self, asked: Asked) -> Hashable:
        """Return what must be alike in requests that are read in one pass."""
        return None

    def read(self, model: Model, items: Sequence[Item], option: Any) -> Sequence[Any]:
        """Return what the model says of each item."""
        return model.engine.predict_encoded(items)

    def answer(self, model: Model, asked: Asked, items: Sequence[Item], said: Sequence[Any]) -> dict[str, Any]:
        """Return the answer's fields, "model" aside, and the pieces of each item's sequences if they were asked for."""
        told = self.told(model, asked, items, said)
        if asked.get("pieces"):
            tokens = model.engine.tokenizer.tokens
            told["pieces"] = [[tokens(one.ids) for one in item.examples] for item in items]
        return told

    def told(self, model: Model, asked: Asked, items: Sequence[Item], said: Sequence[Any]) -> dict[str, Any]:
        """Return what was read of the items, as the answer's fields."""
        raise NotImplementedError


class Predict(Call):
    """Labels, numbers and choices."""

    kinds = ("classify", "regress", "choose")
    what = "predict (/v1/predict)"

    def items(self, model: Model, asked: Asked) -> list[Item]:
        """Return a record for each text, pair or row."""
        texts, rows = asked.get("texts"), asked.get("records")
        if (texts is None) == (rows is None):
            raise Refused(422, "Give one of texts and records.", field="texts")
        if rows is not None:
            if model.kind != "choose":
                raise Refused(422, f"The model {model.name} reads texts, not records.", field="records")
            return [choices(model, row, f"records[{place}]") for place, row in enumerate(rows)]
        return [
            record(model, (text,) if isinstance(text, str) else tuple(text), f"texts[{place}]")
            for place, text in enumerate(texts or ())
        ]

    def told(self, model: Model, asked: Asked, items: Sequence[Item], said: Sequence[Any]) -> dict[str, Any]:
        """Return the predictions."""
        predictions = []
        for item, prediction in zip(items, said, strict=True):
            shares = prediction.probabilities
            if model.kind == "regress":
                one: dict[str, Any] = {"value": prediction.value}
            elif model.kind == "choose":
                one = {"choice": list(shares).index(prediction.value), "probabilities": list(shares.values())}
            else:
                one = {"label": prediction.value, "probabilities": dict(shares)}
            predictions.append(one | _windows(item))
        return {"predictions": predictions}


class Embed(Call):
    """Vectors."""

    kinds = ("classify", "regress", "choose", "tag", "span", "pretraining", "encoder")
    what = "embed (/v1/embed)"

    def items(self, model: Model, asked: Asked) -> list[Item]:
        """Return a sequence for each text."""
        embedder = model.embedder(self.option(asked))
        made = [embedder.sequences((text,), 0) for text in asked["texts"]]
        items = [Item(examples, tuple(examples)) for examples in made]
        for place, item in enumerate(items):
            fits(item, f"texts[{place}]", length=embedder.settings.length)
        return items

    def option(self, asked: Asked) -> EmbeddingOptions:
        """Return how the vectors are wanted."""
        return EmbeddingOptions(pooling=asked["pooling"], normalize=asked["normalise"])

    def read(self, model: Model, items: Sequence[Item], option: Any) -> Sequence[Any]:
        """Return the vectors (n, D)."""
        found: Sequence[Any] = model.embedder(option).vectors([item.value for item in items])
        return found

    def told(self, model: Model, asked: Asked, items: Sequence[Item], said: Sequence[Any]) -> dict[str, Any]:
        """Return the vectors."""
        return {"vectors": np.stack(said).tolist()}


class FillMask(Call):
    """The pieces that may stand where [MASK] is."""

    kinds = ("pretraining",)
    what = "fill masks (/v1/fill-mask)"

    def items(self, model: Model, asked: Asked) -> list[Item]:
        """Return a sequence for each text; each must have a mask."""
        from osbert.inference.fill import MASK, masked

        items = []
        for place, text in enumerate(asked["texts"]):
            if MASK not in text:
                raise Refused(422, f"There is no {MASK} in the text.", field=f"texts[{place}]")
            example = masked(model.engine, text)
            items.append(fits(Item(example, (example,)), f"texts[{place}]", length=model.length))
        return items

    def option(self, asked: Asked) -> Hashable:
        """Return how many pieces are wanted."""
        return asked["top"]

    def read(self, model: Model, items: Sequence[Item], option: Any) -> Sequence[Any]:
        """Return the pieces for each mask."""
        from osbert.inference.fill import fill

        assert model.masks is not None
        return fill(model.engine, model.masks, [item.value for item in items], top=option)

    def told(self, model: Model, asked: Asked, items: Sequence[Item], said: Sequence[Any]) -> dict[str, Any]:
        """Return the pieces of each mask of each text."""
        return {"fills": [[[one._asdict() for one in mask] for mask in masks] for masks in said]}


class Answer(Call):
    """Answers to questions on paragraphs."""

    kinds = ("span",)
    what = "answer questions (/v1/answer)"

    def items(self, model: Model, asked: Asked) -> list[Item]:
        """Return the one question."""
        for name in ("question", "paragraph"):
            if not len(model.engine.tokenizer.encode(asked[name])):
                raise Refused(422, "There is nothing in it to read.", field=name)
        task = model.engine.fine_tuned
        asking = task.asked((asked["question"], asked["paragraph"]))
        item = Item(asking, tuple(task.encode(asking, model.engine.packer)))
        if cut := sum(example.truncated for example in item.examples):
            limit = task.limit(model.engine.packer)
            raise Refused(422, f"{cut:,} pieces more than are read: the model reads {limit}.", field="question")
        return [item]

    def told(self, model: Model, asked: Asked, items: Sequence[Item], said: Sequence[Any]) -> dict[str, Any]:
        """Return the answer, None where the model sees none, and the likeliest candidates."""
        (prediction,) = said
        listed = [_candidate(one) for one in prediction.candidates[: asked["n_best"]]]
        chosen = _candidate(prediction.chosen) if prediction.chosen.start >= 0 else None
        return {"answer": chosen, "n_best": listed, **_windows(items[0])}


class Tag(Call):
    """Entities."""

    kinds = ("tag",)
    what = "tag (/v1/tag)"

    def items(self, model: Model, asked: Asked) -> list[Item]:
        """Return a passage for each text."""
        return [record(model, (text,), f"texts[{place}]", empty=True) for place, text in enumerate(asked["texts"])]

    def told(self, model: Model, asked: Asked, items: Sequence[Item], said: Sequence[Any]) -> dict[str, Any]:
        """Return the entities of each text."""
        counts = [len(item.examples) for item in items]
        windows = {"windows": counts} if max(counts) > 1 else {}
        return {"entities": [list(prediction.found) for prediction in said], **windows}


CALLS: Mapping[str, Call] = {
    "predict": Predict(),
    "embed": Embed(),
    "fill-mask": FillMask(),
    "answer": Answer(),
    "tag": Tag(),
}
"""What can be asked, by its path behind /v1/."""


def record(model: Model, texts: tuple[str, ...], field: str, *, empty: bool = False) -> Item:
    """Return texts that are read together as an item; raises Refused when they do not suit the model.

    `empty`: whether it may hold nothing.
    """
    task = model.engine.fine_tuned
    try:
        asked = task.asked(texts)
    except UserError as error:
        raise Refused(422, str(error), field=field) from error
    return _laid(model, asked, field, empty=empty)


def choices(model: Model, row: Mapping[str, Any], field: str) -> Item:
    """Return a row of a table as a context with its choices; raises Refused when a column is missing."""
    task = model.engine.fine_tuned
    assert isinstance(task, Choose)
    context, offered = row.get("context"), row.get("choices")
    try:
        if isinstance(context, str) and isinstance(offered, list) and len(row) == 2:
            return _laid(model, task.asked((context, *offered)), field)
        values = {name: value for name, value in row.items() if isinstance(value, str)}
        lists = {name: "" for name, value in row.items() if not isinstance(value, str)}
        columns = ChoiceColumns(context=task.context, choices=task.choices, prefix=task.prefix)
        if not (columns.context and columns.choices):
            columns = replace(choose(tuple(row), asked=columns, path=field, labelled=False), label="")
        made = record_of(Row(line=0, values=values | lists, source=dict(row)), columns, counting=task.first, path="")
    except (UserError, ValueError) as error:
        raise Refused(422, str(error), field=field) from error
    return _laid(model, made, field)


def fits(item: Item, field: str, *, length: int) -> Item:
    """Return an item; raises Refused when a sequence has more than `length` tokens, or there is nothing to read."""
    if cut := sum(example.truncated + max(0, len(example) - length) for example in item.examples):
        raise Refused(422, f"{cut:,} pieces more than fit: the model reads {length} tokens.", field=field)
    if all(example.special.all() for example in item.examples):
        raise Refused(422, "There is nothing in it to read.", field=field)
    return item


def _laid(model: Model, asked: Record, field: str, *, empty: bool = False) -> Item:
    item = Item(asked, tuple(model.engine.fine_tuned.encode(asked, model.engine.packer)))
    return item if empty else fits(item, field, length=model.length)


def _windows(item: Item) -> dict[str, int]:
    """Return how many windows a long text was read in, if several: the sequences of choices are no windows."""
    several = len(item.examples) > 1 and not isinstance(item.value, Choices)
    return {"windows": len(item.examples)} if several else {}


def _candidate(candidate: Any) -> dict[str, Any]:
    return {name: getattr(candidate, name) for name in ("text", "start", "end", "probability")}
