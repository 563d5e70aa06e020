"""What requests and answers look like: read strictly, and told to others by /openapi.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from osbert.models.pooling import Pooling

FAULTS = 10
"""Most faults that a refusal names."""
FIELDS = 256
"""Most fields of a record."""
NAME = 100
"""Most characters that a refusal shows of a name out of a request."""
MESSAGE = 4_000
"""Most characters of a refusal, which may name the columns of a record."""
Texts = Annotated[list[str], Field(min_length=1, fail_fast=True)]
"""Lists fail at their first fault: pydantic makes an object of every fault, which costs more than the list itself."""
Record = Annotated[dict[str, str | Annotated[list[str], Field(fail_fast=True)]], Field(max_length=FIELDS)]


class Request(BaseModel):
    """What every request may say."""

    model_config = ConfigDict(extra="forbid", strict=True)

    model: str | None = Field(default=None, description="The model's name; the first that can do it when left out.")
    pieces: bool = Field(default=False, description="Also return the pieces that were read.")

    def parts(self) -> Iterator[tuple[str, str]]:
        """Yield every text in it with its field, such as texts[3]."""
        for place, text in enumerate(getattr(self, "texts", None) or ()):
            if isinstance(text, str):
                yield f"texts[{place}]", text
            else:
                yield from ((f"texts[{place}][{side}]", part) for side, part in enumerate(text))

    def count(self) -> tuple[str, int]:
        """Return the field that holds a list of things to read, and how many there are."""
        return "texts", len(getattr(self, "texts", None) or ())


class Predict(Request):
    """Texts, or pairs of texts, or records for a model that chooses."""

    texts: (
        Annotated[
            list[str | Annotated[list[str], Field(min_length=2, max_length=2)]], Field(min_length=1, fail_fast=True)
        ]
        | None
    ) = Field(default=None, description="Texts, or pairs [first, second] where the model reads pairs.")
    records: Annotated[list[Record], Field(min_length=1, fail_fast=True)] | None = Field(
        default=None, description="For a model that chooses: rows by column, or {context, choices: [...]}."
    )

    def parts(self) -> Iterator[tuple[str, str]]:
        """Yield every text in it with its field."""
        yield from super().parts()
        for place, record in enumerate(self.records or ()):
            for name, value in record.items():
                for text in (value,) if isinstance(value, str) else value:
                    yield f"records[{place}].{shortened(name)}", text

    def count(self) -> tuple[str, int]:
        """Return the field in use, and how many items it has."""
        if self.records is None:
            return super().count()
        lists = [value for record in self.records for value in record.values() if isinstance(value, list)]
        return "records", max([len(self.records), *map(len, lists)])


class Embed(Request):
    """Texts to embed."""

    texts: Texts
    pooling: Pooling | None = Field(
        default=None, description="The model's own if it was trained for sentence vectors, else mean, when left out."
    )
    normalise: bool | None = Field(
        default=None, description="Scale every vector to length 1; where the model was trained for that when left out."
    )


class FillMask(Request):
    """Texts with [MASK] in them."""

    texts: Texts
    top: int = Field(default=5, ge=1, le=100, description="How many pieces are told for each mask.")


class Answer(Request):
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


class Tag(Request):
    """Texts in which entities are looked for."""

    texts: Texts


class Prediction(BaseModel):
    """Of a text or a record: a label, or a number (value), or a choice."""

    label: str | None = None
    value: float | None = None
    choice: int | None = None
    probabilities: dict[str, float] | list[float] | None = None
    windows: int | None = Field(default=None, description="Told where a long text was read in several windows.")


class Reply(BaseModel):
    """What every answer says: whose it is; of each thing that was read, of each sequence, the pieces, if asked for."""

    model: str
    pieces: list[list[list[str]]] | None = None


class Predictions(Reply):
    """What /v1/predict answers."""

    predictions: list[Prediction]


class Vectors(Reply):
    """What /v1/embed answers."""

    vectors: list[list[float]]


class Fill(BaseModel):
    """A piece that may stand in a mask's place."""

    piece: str
    probability: float


class Fills(Reply):
    """What /v1/fill-mask answers: of each text, of each mask in it, the likeliest pieces."""

    fills: list[list[list[Fill]]]


class Candidate(BaseModel):
    """A slice of the paragraph, paragraph[start:end]; of the candidates one may be "" at -1, that there is none."""

    text: str
    start: int
    end: int
    probability: float


class Answered(Reply):
    """What /v1/answer answers; null where the paragraph holds no answer."""

    answer: Candidate | None
    n_best: list[Candidate]
    windows: int | None = None


class Entity(BaseModel):
    """An entity: text[start:end], in characters."""

    type: str
    start: int
    end: int
    text: str
    probability: float | None = None


class Entities(Reply):
    """What /v1/tag answers: the entities of each text."""

    entities: list[list[Entity]]
    windows: list[int] | None = None


class Model(BaseModel):
    """A model that is served."""

    name: str
    kind: Literal["classify", "regress", "tag", "span", "choose", "pretraining", "encoder"]
    labels: list[str] | None = None
    fields: list[str]
    length: int


class Models(BaseModel):
    """What /v1/models answers."""

    models: list[Model]


class State(BaseModel):
    """What /health and /ready answer."""

    status: str
    problem: str | None = Field(default=None, description="Why a worker cannot be started again, where one cannot.")


class Problem(BaseModel):
    """What is wrong, and in which field of the request."""

    message: str
    field: str | None = None


class Error(BaseModel):
    """Every answer that is not 200."""

    error: Problem


class Refused(Exception):
    """A request that is not answered: the HTTP status, what is wrong, and where."""

    def __init__(self, status: int, message: str, *, field: str = "", retry_after: int = 0) -> None:
        """`retry_after`: seconds after which the same request may do; 0 where that is not the point."""
        super().__init__(message)
        self.status = status
        self.message = message if len(message) <= MESSAGE else f"{message[:MESSAGE]}..."
        self.field = field
        self.retry_after = retry_after

    def content(self) -> dict[str, Any]:
        """Return the body of the answer."""
        return {"error": {"message": self.message, **({"field": self.field} if self.field else {})}}


def parse(schema: type[Request], body: bytes | bytearray) -> Request:
    """Return a request's body as its schema has it.

    Raises Refused, 422, with up to FAULTS faults, of a list the first, and the field of the first that has one, or
    "body".
    """
    try:
        content = from_json(body)
    except ValueError as error:
        raise Refused(422, f"Invalid JSON: {error}", field="body") from None
    try:
        return schema.model_validate(_few(schema, content))
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
    told = list(dict.fromkeys((_field(fault["loc"]), _text(fault, schema)) for fault in faults))[:FAULTS]
    message = "; ".join(f"{field}: {text}" if field else text for field, text in told)
    raise Refused(422, message, field=next((field for field, _ in told if field), "body"))


def shortened(name: str) -> str:
    """Return a name out of a request as a refusal shows it."""
    return name if len(name) <= NAME else f"{name[:NAME]}..."


def _few(schema: type[Request], content: Any) -> Any:
    """Return JSON with at most FAULTS unknown fields. Raises Refused, 413, where a record has more than FIELDS."""
    if not isinstance(content, dict):
        return content
    records = content.get("records")
    for place, record in enumerate(records if isinstance(records, list) else ()):
        if isinstance(record, dict) and len(record) > FIELDS:
            what = f"A record has at most {FIELDS:,} fields, not {len(record):,}."
            raise Refused(413, what, field=f"records[{place}]")
    surplus = set([name for name in content if name not in schema.model_fields][FAULTS:])
    return {name: value for name, value in content.items() if name not in surplus}


def _text(fault: Mapping[str, Any], schema: type[Request]) -> str:
    """Return pydantic's words for a fault; of a field that is not known, which there are."""
    if fault["type"] == "extra_forbidden" and len(fault["loc"]) == 1:
        return f"there is no such field; there are {', '.join(schema.model_fields)}"
    return str(fault["msg"])


def _field(places: tuple[int | str, ...]) -> str:
    """Return pydantic's place of a fault as one writes it: texts[3][0]; what it tells of types is left out."""
    name = ""
    for place in places:
        if isinstance(place, int):
            name += f"[{place}]"
        elif place.isidentifier() and place not in ("str", "list"):
            name += f".{shortened(place)}" if name else shortened(place)
    return name
