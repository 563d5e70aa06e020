"""POST /v1/answer: the answer to a question in a paragraph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel, Field

from osbert.server.calls.contract import Call, Item, Values, windows
from osbert.server.models import ServerModel
from osbert.server.schemas import Refusal, Reply, Request


class AnswerRequest(Request, title="Answer"):
    """A question, and the paragraph in which the answer is looked for."""

    question: str
    paragraph: str
    n_best: int = Field(default=0, ge=0, le=100, description="How many candidates are told beside the answer.")

    def parts(self) -> Iterator[tuple[str, str]]:
        """Yield the two texts."""
        yield "question", self.question
        yield "paragraph", self.paragraph

    def count(self) -> tuple[str, int]:
        """Return that there is one thing to read."""
        return "question", 1


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
    """The answer to one question."""

    what = "answer questions (/v1/answer)"
    request = AnswerRequest
    reply = AnswerReply

    def items(self, model: ServerModel, values: Values) -> list[Item]:
        """Return the one question."""
        for name in ("question", "paragraph"):
            if not len(model.engine.tokenizer.encode(values[name])):
                raise Refusal(422, "There is nothing in it to read.", field=name)
        task = model.engine.fine_tuned
        record = task.record_of((values["question"], values["paragraph"]))
        item = Item(record, tuple(task.encode(record, model.engine.packer)))
        if cut := sum(example.truncated for example in item.examples):
            limit = task.limit(model.engine.packer)
            raise Refusal(422, f"{cut:,} pieces more than are read: the model reads {limit}.", field="question")
        return [item]

    def fields(self, model: ServerModel, values: Values, items: Sequence[Item], said: Sequence[Any]) -> dict[str, Any]:
        """Return the answer, None where the model sees none, and the likeliest candidates."""
        (item,), (prediction,) = items, said
        reply = model.engine.fine_tuned.reply(prediction)
        return {**reply, "n_best": reply["n_best"][: values["n_best"]], **windows(model, item)}
