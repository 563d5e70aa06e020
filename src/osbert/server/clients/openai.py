"""POST /v1/embeddings: vectors as OpenAI's clients ask for them, and its form of errors."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from osbert.server.calls.contract import Items, RequestFields, Results
from osbert.server.calls.models import ServerModel
from osbert.server.calls.schemas import Refusal, RequestBody, Texts
from osbert.server.clients.contract import ClientVectors, as_array, as_base64, count_tokens, vector_request

TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
CODES = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}


def refuse_token_ids(value: Any) -> Any:
    """Return an input of texts. Raises PydanticCustomError for ids of tokens, also within a list."""
    if isinstance(value, list) and value and isinstance(value[0], int | list):
        raise PydanticCustomError(
            "token_ids",
            "these are ids of tokens, which mean other words to this model's tokenizer. Send texts (OpenAIEmbeddings "
            "of langchain-openai: check_embedding_ctx_length=False)",
        )
    return value


ClientTexts = Annotated[str | Texts, BeforeValidator(refuse_token_ids)]
"""A text or a list of texts; other APIs take ids of tokens as well."""


class EmbeddingsRequest(RequestBody, title="OpenAIEmbeddingsRequest"):
    """Texts for vectors, as OpenAI's clients send them."""

    reads: ClassVar[tuple[str, ...]] = ("input",)

    input: ClientTexts
    model: str | None = Field(default=None, description="The model's name; an encoder when left out.")
    encoding_format: Literal["float", "base64"] = Field(
        default="float", description="base64: the float32 numbers of a vector, little-endian."
    )
    dimensions: int | None = Field(
        default=None, ge=1, description="The first numbers of each vector, for models that were trained for it."
    )
    user: str | None = Field(default=None, description="Not read.")
    role: str | None = Field(
        default=None, max_length=200, description="osbert's: query, document or the name of a prompt (extra_body)."
    )


class EmbeddingObject(BaseModel, title="OpenAIEmbedding"):
    """The vector of a text."""

    __qualname__ = "OpenAIEmbedding"

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class TokenUsage(BaseModel, title="OpenAIUsage"):
    """The tokens that were read."""

    __qualname__ = "OpenAIUsage"

    prompt_tokens: int
    total_tokens: int


class EmbeddingsAnswer(BaseModel, title="OpenAIEmbeddings"):
    """What /v1/embeddings answers."""

    __qualname__ = "OpenAIEmbeddings"

    object: Literal["list"]
    data: list[EmbeddingObject]
    model: str
    usage: TokenUsage


class OpenAIProblem(BaseModel):
    """What is wrong, and in which field (param)."""

    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIError(BaseModel):
    """An answer to OpenAI's clients that is not 200."""

    error: OpenAIProblem


class EmbeddingsCall(ClientVectors):
    """OpenAI's call for vectors. Texts that are too long are refused, as OpenAI does."""

    what = "embed (/v1/embeddings)"
    request = EmbeddingsRequest
    reply = EmbeddingsAnswer
    error = OpenAIError
    field_names = {"texts": "input"}

    def translate(self, values: RequestFields) -> RequestFields:
        """Return the request to /v1/embed. Without a role, that is the model's default prompt."""
        return vector_request(values["input"], role=values["role"], dimensions=values["dimensions"])

    def answer(self, model: ServerModel, values: RequestFields, items: Items, results: Results) -> dict[str, Any]:
        vectors, tokens = as_array(results), count_tokens(items)
        spelt = as_base64(vectors) if values["encoding_format"] == "base64" else vectors.tolist()
        return {
            "object": "list",
            "data": [{"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(spelt)],
            "model": model.name,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        }

    def refuse(self, refusal: Refusal) -> tuple[int, Any]:
        """Return OpenAI's error. It answers 400 where osbert answers 422."""
        status = 400 if refusal.status == 422 else refusal.status
        kind = TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
        problem = {"message": refusal.message, "type": kind, "param": refusal.field or None, "code": CODES.get(status)}
        return status, {"error": problem}
