"""POST /similarity: cosines of a text with others, as clients of TEI and of the Inference API ask for them."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel, ConfigDict, Field

from osbert.server.calls.contract import Item, Items, RequestFields, Results
from osbert.server.calls.embed import EmbedCall
from osbert.server.calls.models import EMBED, ServerModel
from osbert.server.calls.schemas import Refusal, RequestBody, Texts
from osbert.server.clients.contract import as_array, vector_request
from osbert_lab.text_embeddings_inference.contract import TEICall, TruncatingRequest

SOURCE = "inputs.source_sentence"
"""The field of the text that is compared with the others."""


class SimilarityInputs(BaseModel):
    """A text, and those with which it is compared."""

    model_config = ConfigDict(extra="forbid", strict=True)

    source_sentence: str
    sentences: Texts


class SimilarityParameters(TruncatingRequest):
    """How the texts are read."""

    prompt_name: str | None = Field(
        default=None, max_length=200, description="The name of a prompt of the model, or the role query or document."
    )


class TEISimilarityRequest(RequestBody):
    """A text and others, as clients of TEI and of sentence-similarity send them."""

    inputs: SimilarityInputs
    parameters: SimilarityParameters | None = None

    def parts(self) -> Iterator[tuple[str, str]]:
        yield SOURCE, self.inputs.source_sentence
        yield from ((f"inputs.sentences[{index}]", text) for index, text in enumerate(self.inputs.sentences))

    def count(self) -> tuple[str, int]:
        return "inputs.sentences", len(self.inputs.sentences) + 1


class TEISimilarityCall(TEICall):
    """TEI's call for cosines."""

    what = "compare texts (/similarity)"
    needs = EMBED
    call = EmbedCall()
    request = TEISimilarityRequest
    reply = list[float]

    def translate(self, values: RequestFields) -> RequestFields:
        inputs, parameters = values["inputs"], values["parameters"] or {}
        return vector_request(
            [inputs["source_sentence"], *inputs["sentences"]],
            role=parameters.get("prompt_name"),
            normalise=True,
            long="truncate" if parameters.get("truncate") else "error",
        )

    def items(self, model: ServerModel, values: RequestFields) -> list[Item]:
        """Return an item for each text. Raises Refusal (422) with the field that holds the text."""
        try:
            return self.call.items(model, self.translate(values))
        except Refusal as refusal:
            raise Refusal(refusal.status, refusal.message, field=_field_of(refusal.field)) from None

    def answer(self, model: ServerModel, values: RequestFields, items: Items, results: Results) -> list[float]:
        source, *others = as_array(results)
        return [float(source @ vector) for vector in others]


def _field_of(field: str) -> str:
    """Return the field of a request for the field of the list of its texts.

    >>> [_field_of(field) for field in ("texts[0]", "texts[3]", "role", "model")]
    ['inputs.source_sentence', 'inputs.sentences[2]', 'parameters.prompt_name', 'model']
    """
    name, _, index = field.rstrip("]").partition("[")
    if name != "texts":
        return "parameters.prompt_name" if name == "role" else field
    return f"inputs.sentences[{int(index) - 1}]" if int(index) else SOURCE
