"""The contract of a call: a request becomes items, the model computes their results, and these become the answer.

Predictions are those of the engine for the same records; a call decides nothing itself.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from osbert.data.example import Example
from osbert.errors import UserError
from osbert.server.calls.models import ServerModel
from osbert.server.calls.schemas import Error, Refusal, RequestBody
from osbert.tasks import Record

RequestFields = Mapping[str, Any]
"""A request's fields, by name."""
Results = Sequence[Any]
"""The model's results for the items of a request."""
NOTHING = "There is nothing in it to read."


class Item(NamedTuple):
    """One input of the model: `value`, such as a Record or an Example, and the sequences it is encoded as."""

    value: Any
    examples: tuple[Example, ...]

    @property
    def tokens(self) -> int:
        """The cost of the item in tokens, by which batches are filled."""
        return sum(map(len, self.examples))


Items = Sequence[Item]


class AnswerStep(NamedTuple):
    """A step of a generated answer: a part for a streaming client, if there is one, or at the end the results."""

    part: Mapping[str, Any] | None = None
    results: Results | None = None


class Call:
    """A path of the server. `what`: a verb phrase for messages, to follow "cannot".

    `needs`: the call of osbert that a model has to answer, "" for this one itself. `reply`, `error`: what it answers.
    """

    what: str
    request: type[RequestBody]
    reply: Any
    error: Any = Error
    needs: str = ""

    def refuse(self, refusal: Refusal) -> tuple[int, Any]:
        """Return the status and the JSON by which clients of this path know a refusal."""
        return refusal.status, refusal.content()

    def items(self, model: ServerModel, values: RequestFields) -> list[Item]:
        """Return the items of a request. Raises Refusal (422, with the field) if one cannot be read."""
        raise NotImplementedError

    def too_late(self) -> Refusal:
        """Return the refusal (504) of a request whose time is up."""
        return Refusal(504, "The request was not answered within its deadline.")

    def option(self, values: RequestFields) -> Hashable:
        """Return the options that requests must share to be read in one pass."""
        return None

    def read(self, model: ServerModel, items: Items, option: Any) -> Results:
        """Return the model's result for each item. Runs in the worker, for items of several requests at once."""
        return model.engine.predict_encoded(items)

    def steps(self, model: ServerModel, values: RequestFields, items: Items) -> Iterator[AnswerStep] | None:
        """Return an iterator over the steps of a generated answer, the last with its results; None if `read` answers.

        Between two steps the worker handles cancellations, deadlines and other requests.
        """
        return None

    def fields(self, model: ServerModel, values: RequestFields, items: Items, results: Results) -> dict[str, Any]:
        """Return the model's results for the items (`results`) as the fields of the answer."""
        raise NotImplementedError

    def answer(self, model: ServerModel, values: RequestFields, items: Items, results: Results) -> Any:
        """Return the answer; with the pieces of each item's sequences if the request has `pieces`."""
        fields = {"model": model.name, **self.fields(model, values, items, results)}
        if values.get("pieces"):
            tokens = model.engine.tokenizer.tokens
            fields["pieces"] = [[tokens(example.ids) for example in item.examples] for item in items]
        return fields


def item_of(model: ServerModel, texts: Sequence[str], field: str, *, empty: bool = False) -> Item:
    """Return the item of texts that are read together, such as a pair. Raises Refusal (422) if they do not fit.

    `empty`: whether texts without pieces, or too long ones, are allowed.
    """
    try:
        return encode_record(model, model.engine.fine_tuned.record_of(texts), field, empty=empty)
    except UserError as error:
        raise Refusal(422, str(error), field=field) from error


def encode_record(model: ServerModel, record: Record, field: str, *, empty: bool = False) -> Item:
    """Return the item of a record. Raises Refusal (422) if it is too long or has no pieces, unless `empty`."""
    item = Item(record, tuple(model.engine.fine_tuned.encode(record, model.engine.packer)))
    return item if empty else require_fit(item, field, length=model.length)


def require_fit(item: Item, field: str, *, length: int) -> Item:
    """Return the item. Raises Refusal (422) if a sequence exceeds `length` tokens, or all are without pieces."""
    if cut := sum(example.truncated + max(0, len(example) - length) for example in item.examples):
        raise Refusal(422, f"The text is {cut:,} pieces too long: the model reads {length} tokens.", field=field)
    require_pieces(item, field)
    return item


def require_pieces(item: Item, field: str) -> None:
    """Raise Refusal (422) if all sequences of an item are without pieces."""
    if all(example.special.all() for example in item.examples):
        raise Refusal(422, NOTHING, field=field)


def require_text(model: ServerModel, text: str, field: str) -> None:
    """Raise Refusal (422) if the tokenizer finds no piece in a text."""
    if not len(model.engine.tokenizer.encode(text)):
        raise Refusal(422, NOTHING, field=field)


def windows(model: ServerModel, item: Item) -> dict[str, int]:
    """Return the number of windows of a long text, {} for one. Sequences that are compared (choices) do not count."""
    several = len(item.examples) > 1 and model.engine.fine_tuned.batching == "sequences"
    return {"windows": len(item.examples)} if several else {}
