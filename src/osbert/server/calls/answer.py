"""POST /v1/answer: the answer to a question in a paragraph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, Field

from osbert.server.calls.contract import Call, Item, RequestFields, item_of, require_text, windows
from osbert.server.models import ServerModel
from osbert.server.schemas import Refusal, Reply, Request


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
            raise Refusal(422, f"{cut:,} pieces more than are read: the model reads {limit}.", field="question")
        return [item]

    def fields(
        self, model: ServerModel, values: RequestFields, items: Sequence[Item], results: Sequence[Any]
    ) -> dict[str, Any]:
        """Return the answer (None if the model finds none) and the `n_best` likeliest candidates."""
        (item,), (prediction,) = items, results
        reply = model.engine.fine_tuned.reply(prediction)
        return {**reply, "n_best": reply["n_best"][: values["n_best"]], **windows(model, item)}
