"""The contract of a call: a request becomes items to read, and what the model says of them becomes the answer.

What is predicted is what the engine says of the same records; nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from osbert.data.example import Example
from osbert.errors import UserError
from osbert.server.models import ServerModel
from osbert.server.schemas import Refusal, Reply, Request
from osbert.tasks import Record

RequestFields = Mapping[str, Any]
"""A request's fields, by name."""
NOTHING = "There is nothing in it to read."


class Item(NamedTuple):
    """One thing to read: a Record or an Example as `value`, and the sequences that it is read in."""

    value: Any
    examples: tuple[Example, ...]

    @property
    def tokens(self) -> int:
        """Return its tokens."""
        return sum(map(len, self.examples))


class AnswerStep(NamedTuple):
    """A step of an answer that is written: a part for a client that is sent parts, if there is one, or the results."""

    part: Mapping[str, Any] | None = None
    results: Sequence[Any] | None = None


class Call:
    """A path behind /v1/. `what`: what it does, in words, to follow "cannot"."""

    what: str
    request: type[Request]
    reply: type[Reply]

    def items(self, model: ServerModel, values: RequestFields) -> list[Item]:
        """Return what is to be read; raises Refusal, 422, when it cannot be, naming the field."""
        raise NotImplementedError

    def option(self, values: RequestFields) -> Hashable:
        """Return what must be alike in requests that are read in one pass."""
        return None

    def read(self, model: ServerModel, items: Sequence[Item], option: Any) -> Sequence[Any]:
        """Return what the model says of each item."""
        return model.engine.predict_encoded(items)

    def steps(self, model: ServerModel, values: RequestFields, items: Sequence[Item]) -> Iterator[AnswerStep] | None:
        """Return the steps in which an answer is written, the last with its results; None where passes read the items.

        Between two steps the worker looks whether the client is gone, the time is over or others wait.
        """
        return None

    def fields(
        self, model: ServerModel, values: RequestFields, items: Sequence[Item], said: Sequence[Any]
    ) -> dict[str, Any]:
        """Return the model's results for the items (`said`) as the fields of the answer."""
        raise NotImplementedError

    def answer(
        self, model: ServerModel, values: RequestFields, items: Sequence[Item], said: Sequence[Any]
    ) -> dict[str, Any]:
        """Return the answer, "model" aside, with the pieces of each item's sequences if the request wants them."""
        made = self.fields(model, values, items, said)
        if values.get("pieces"):
            tokens = model.engine.tokenizer.tokens
            made["pieces"] = [[tokens(one.ids) for one in item.examples] for item in items]
        return made


def item_of(model: ServerModel, texts: Sequence[str], field: str, *, empty: bool = False) -> Item:
    """Return texts that are read together as an item; raises Refusal when they do not suit the model.

    `empty`: whether it may hold nothing.
    """
    try:
        record = model.engine.fine_tuned.record_of(texts)
    except UserError as error:
        raise Refusal(422, str(error), field=field) from error
    return laid_out(model, record, field, empty=empty)


def laid_out(model: ServerModel, record: Record, field: str, *, empty: bool = False) -> Item:
    """Return a record with its sequences; raises Refusal when they do not fit, or hold nothing unless `empty`."""
    item = Item(record, tuple(model.engine.fine_tuned.encode(record, model.engine.packer)))
    return item if empty else require_fit(item, field, length=model.length)


def require_fit(item: Item, field: str, *, length: int) -> Item:
    """Return an item; raises Refusal when a sequence has more than `length` tokens, or there is nothing to read."""
    if cut := sum(example.truncated + max(0, len(example) - length) for example in item.examples):
        raise Refusal(422, f"{cut:,} pieces more than fit: the model reads {length} tokens.", field=field)
    if all(example.special.all() for example in item.examples):
        raise Refusal(422, NOTHING, field=field)
    return item


def require_text(model: ServerModel, text: str, field: str) -> None:
    """Raise Refusal when there is nothing to read in a text."""
    if not len(model.engine.tokenizer.encode(text)):
        raise Refusal(422, NOTHING, field=field)


def windows(model: ServerModel, item: Item) -> dict[str, int]:
    """Return how many windows a long text was read in, if several: sequences that are compared are no windows."""
    several = len(item.examples) > 1 and model.engine.fine_tuned.batching == "sequences"
    return {"windows": len(item.examples)} if several else {}
