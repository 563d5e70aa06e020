"""Common parts of requests and answers: strict schemas, published in /openapi.json.

Title and __qualname__ give a schema its name in /openapi.json. Clients are generated from it, so names never change.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic_core import from_json

from osbert import guarded

FAULTS = 10
"""Most faults in the message of a refusal."""
FIELDS = 256
"""Most fields of a record."""
NAME = 100
"""Most characters of a name from the request in a refusal."""
MESSAGE = 4_000
"""Most characters of a refusal's message, which may list the columns of a record."""
Texts = Annotated[list[str], Field(min_length=1, fail_fast=True)]
"""Validation of a list stops at its first fault: pydantic's objects for faults cost more than the list itself."""
Row = Annotated[dict[str, str | Annotated[list[str], Field(fail_fast=True)]], Field(max_length=FIELDS)]


class RequestBody(BaseModel):
    """A request: strict types, no unknown fields."""

    model_config = ConfigDict(extra="forbid", strict=True)
    reads: ClassVar[tuple[str, ...]] = ("texts",)
    """Names of the fields with texts (strings or lists of strings)."""

    def parts(self) -> Iterator[tuple[str, str]]:
        """Yield (field, text) for every text of the request; a field is written as texts[3]."""
        for name in self.reads:
            yield from _texts(name, getattr(self, name))

    def count(self) -> tuple[str, int]:
        """Return the name and the length of the longest field of texts."""
        values = {name: getattr(self, name) for name in self.reads}
        sizes = {name: 1 if isinstance(value, str) else len(value or ()) for name, value in values.items()}
        longest = max(sizes, key=lambda name: sizes[name])
        return longest, sizes[longest]


class Request(RequestBody):
    """What every request may say."""

    model: str | None = Field(default=None, description="The model's name; the first that can do it when left out.")
    pieces: bool = Field(default=False, description="Also return the pieces that were read.")


class Reply(BaseModel):
    """The fields of every answer: the model and, on request, the pieces of each sequence of each item."""

    model: str
    pieces: list[list[list[str]]] | None = None


class SearchFacts(BaseModel, title="SearchFacts"):
    """What /v1/search searches."""

    systems: list[str] = Field(description="The rankings: the files of vectors, and bm25.")
    columns: int = Field(description="The texts of a query: 2 for pairs.")
    reranks: bool = Field(description="Whether a reranker orders the hits.")


class ModelFacts(BaseModel, title="Model"):
    """A model that is served."""

    __qualname__ = "Model"

    name: str
    kind: str
    labels: list[str] | None = None
    fields: list[str]
    length: int
    explains: bool = Field(default=False, description="Whether /v1/explain answers for it.")
    writes: bool = Field(default=False, description="Whether /v1/generate answers for it.")
    by_name: Literal["classes", "types"] | None = Field(
        default=None, description="What of a text it predicts by names that a request gives."
    )
    search: SearchFacts | None = Field(default=None, description="Of the model for which /v1/search answers.")
    pooling: str | None = Field(default=None, description="How an encoder makes a vector of the states of a text.")
    columns: list[str] | None = Field(default=None, description="What the training data called the fields.")
    range: list[float] | None = Field(default=None, description="The lowest and the highest of the training numbers.")


class ListedModel(BaseModel):
    """A model that is served, as OpenAI's clients list it."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


def models_schema(kinds: Iterable[str]) -> type[BaseModel]:
    """Return the schema of /v1/models, with `kinds` as the possible kinds of models."""
    kind: Any = Literal[tuple(kinds)]
    models: Any = list[create_model("Model", __base__=ModelFacts, __doc__=ModelFacts.__doc__, kind=kind)]  # type: ignore[misc]
    more: Any = {"object": Literal["list"], "data": list[ListedModel]}
    return create_model("Models", __doc__="What /v1/models answers.", models=models, **more)


class ServerState(BaseModel, title="State"):
    """What /health and /ready answer."""

    __qualname__ = "State"

    status: str
    problem: str | None = Field(default=None, description="Why a worker cannot be started again, where one cannot.")


class Problem(BaseModel):
    """What is wrong, and in which field of the request."""

    message: str
    field: str | None = None


class Error(BaseModel):
    """Every answer that is not 200."""

    error: Problem


class Refusal(Exception):
    """An error response: HTTP status, message, and the field of the request at fault ("" for none)."""

    def __init__(self, status: int, message: str, *, field: str = "", retry_after: int = 0) -> None:
        """`retry_after`: seconds after which the same request may succeed; 0 if waiting does not help."""
        super().__init__(message)
        self.status = status
        self.message = message if len(message) <= MESSAGE else f"{message[:MESSAGE]}..."
        self.field = field
        self.retry_after = retry_after

    def content(self) -> dict[str, Any]:
        """Return the JSON object of the response body."""
        return {"error": {"message": self.message, **({"field": self.field} if self.field else {})}}

    @classmethod
    def of_content(cls, status: int, content: Mapping[str, Any]) -> Refusal:
        """Return the refusal with the JSON object `content`, as a worker sent it."""
        return cls(status, content["error"]["message"], field=content["error"].get("field", ""))


def parse(schema: type[RequestBody], body: bytes | bytearray) -> RequestBody:
    """Return the validated request in a body.

    Raises Refusal (422) for invalid JSON, for an object with a key twice, of which a parser keeps the last value, and
    for wrong fields: at most FAULTS faults, the first one of each list. Its field is that of the first fault with a
    field, or "body".
    """
    try:
        content = from_json(body, allow_inf_nan=False)  # JSON has neither, and an answer could not give them back
        json.loads(body, object_pairs_hook=guarded.unique, parse_int=str, parse_float=str)  # for repeated keys alone
    except ValueError as error:
        raise Refusal(422, f"Invalid JSON: {error}", field="body") from None
    try:
        return schema.model_validate(_few(schema, content))
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
    field_messages = list(dict.fromkeys((_field(fault["loc"]), _text(fault, schema)) for fault in faults))[:FAULTS]
    message = "; ".join(f"{field}: {text}" if field else text for field, text in field_messages)
    raise Refusal(422, message, field=next((field for field, _ in field_messages if field), "body"))


def shorten(name: str) -> str:
    """Return a name from the request, cut to NAME characters."""
    return name if len(name) <= NAME else f"{name[:NAME]}..."


def _texts(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield (field, text) for the texts of a field that may be None; list indices are part of the field."""
    if isinstance(value, str):
        yield name, value
    else:
        for index, part in enumerate(value or ()):
            yield from _texts(f"{name}[{index}]", part)


def _few(schema: type[RequestBody], content: Any) -> Any:
    """Return JSON with at most FAULTS unknown fields. Raises Refusal (413) if a record has more than FIELDS."""
    if not isinstance(content, dict):
        return content
    records = content.get("records")
    for index, record in enumerate(records if isinstance(records, list) else ()):
        if isinstance(record, dict) and len(record) > FIELDS:
            what = f"A record has at most {FIELDS:,} fields, not {len(record):,}."
            raise Refusal(413, what, field=f"records[{index}]")
    # pydantic makes an object for every unknown field; a body with thousands would take long.
    surplus = set([name for name in content if name not in schema.model_fields][FAULTS:])
    return {name: value for name, value in content.items() if name not in surplus}


def _text(fault: Mapping[str, Any], schema: type[RequestBody]) -> str:
    """Return pydantic's message for a fault; for an unknown field, the list of known fields."""
    if fault["type"] == "extra_forbidden" and len(fault["loc"]) == 1:
        return f"there is no such field; there are {', '.join(schema.model_fields)}"
    return str(fault["msg"])


def _field(location: tuple[int | str, ...]) -> str:
    """Return the location of a fault as texts[3][0], without pydantic's names of types."""
    name = ""
    for part in location:
        if isinstance(part, int):
            name += f"[{part}]"
        elif part.isidentifier() and part not in ("str", "list"):
            name += f".{shorten(part)}" if name else shorten(part)
    return name
