"""POST /v1/generate: generates text, in one answer or as a stream of server-sent events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, Field

from osbert.errors import UserError
from osbert.server.calls.contract import AnswerStep, Call, Item, RequestFields
from osbert.server.calls.models import ServerModel
from osbert.server.calls.schemas import Refusal, Reply, Request
from osbert_lab.writing.settings import GivenOptions

if TYPE_CHECKING:
    from osbert_lab.writing.text_writer import TextWriter

OPTIONS = tuple(field.name for field in fields(GivenOptions) if field.name != "precision")  # which is none of a request


class GenerateRequest(Request, title="Generate"):
    """Texts to go on with, or to write a text for, and how; what is left out is as the model says."""

    texts: Annotated[
        list[str | Annotated[list[str], Field(min_length=1, fail_fast=True)]], Field(min_length=1, fail_fast=True)
    ]
    stream: bool = Field(default=False, description="Send parts while they are written, as server-sent events.")
    most: int = Field(default=0, description="Most pieces that are written for a text; 0 for the model's own number.")
    least: int | None = None
    beams: int | None = None
    length_penalty: float | None = None
    no_repeat: int | None = None
    sample: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0


class WrittenAnswer(BaseModel, title="Generation"):
    """What was written for a text."""

    __qualname__ = "Generation"

    text: str
    pieces: int
    log_probability: float
    ended: Literal["end", "most"]
    truncated: int


class GenerateAnswer(Reply, title="Generations"):
    """What /v1/generate answers; of a stream the event "done" holds it, after events with an index and a part."""

    __qualname__ = "Generations"

    generations: list[WrittenAnswer]


class GenerateCall(Call):
    """Generates a text for each given text."""

    what = "write (/v1/generate)"
    request = GenerateRequest
    reply = GenerateAnswer

    def too_late(self) -> Refusal:
        """Return the refusal (504) of a request whose time is up, with the field that makes it shorter."""
        message = "The deadline passed before the text was finished. Ask for fewer pieces (most), texts or beams."
        return Refusal(504, message, field="most")

    def items(self, model: ServerModel, values: RequestFields) -> list[Item]:
        """Return an item for the prompt of each text.

        Raises Refusal: 422 if a prompt is too long or empty, 413 if the memory does not suffice for it.
        """
        writer = self._writer(model, values)
        items = []
        for index, given in enumerate(values["texts"]):
            field = f"texts[{index}]"
            try:
                prompt = writer.prompt([given] if isinstance(given, str) else given)
            except UserError as error:
                raise Refusal(422, str(error), field="most" if error.code == "invalid-value" else field) from error
            if prompt.truncated:
                what = f"{prompt.truncated:,} pieces more than fit beside the {writer.writer.options.most:,} to write."
                raise Refusal(422, what, field=field)
            if lack := writer.lack(prompt):
                raise Refusal(422, lack, field=field)
            items.append(Item(prompt, (prompt.source or prompt,)))
        try:
            writer.writer.require_memory([item.value for item in items])
        except UserError as error:
            raise Refusal(413, str(error), field=writer.writer.options.costliest) from error
        return items

    def steps(self, model: ServerModel, values: RequestFields, items: Sequence[Item]) -> Iterator[AnswerStep]:
        """Yield a step for each generated part, and last a step with the results."""
        writer = self._writer(model, values).writer
        results: list[Any] = [None] * len(items)
        for index, part in writer.parts([item.value for item in items]):
            if not isinstance(part, str):
                results[index] = part
            yield AnswerStep(
                {"index": index, "text": part} if isinstance(part, str) and part and values["stream"] else None
            )
        yield AnswerStep(results=results)

    def fields(
        self, model: ServerModel, values: RequestFields, items: Sequence[Item], results: Sequence[Any]
    ) -> dict[str, Any]:
        """Return the generations as objects."""
        return {"generations": [generation.as_dict() for generation in results]}

    def _writer(self, model: ServerModel, values: RequestFields) -> TextWriter:
        """Return the writer. Raises Refusal, with the field: 422 for invalid options, 413 above the server's limits."""
        from osbert_lab.writing.text_writer import TextWriter, options_of  # torch: in workers alone

        given = GivenOptions(**{name: values[name] for name in OPTIONS})
        for field, fault in options_of(model.engine, given).faults():
            raise Refusal(422, f"{fault}.", field=field)
        try:
            writer = TextWriter.of(model.engine, given)
        except UserError as error:
            raise Refusal(422, str(error), field="most") from error
        chosen, limits = writer.writer.options, model.writing
        for field, value, most in (("most", chosen.most, limits.pieces), ("beams", chosen.beams, limits.beams)):
            if value > most:
                raise Refusal(413, f"{field} must be at most {most:,} on this server, not {value:,}.", field=field)
        return writer
