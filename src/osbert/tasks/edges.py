"""The edges of a kind of task, as data: the form of its outputs, and how it is served over HTTP and shown.

interop/ chooses others' classes and ONNX outputs by the form; server/ and its page read the fields.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from osbert.data.example import Example
from osbert.errors import UserError
from osbert.models.forms import PER_TOKEN, Form, Values
from osbert.models.generation.settings import GenerationOptions
from osbert.tasks.explained import ExplainedScore

if TYPE_CHECKING:
    from osbert.tasks.record import Prediction, Record

FieldType = Literal["text", "texts", "flag", "integer", "number", "numbers", "probabilities", "ranking"]
"""text: a string; texts: a list of strings; flag: true or false; numbers: a list; probabilities: numbers by name.
ranking: the texts of a request's list, the best first, each with its index there, score and probability."""


@dataclass(frozen=True, kw_only=True)
class Field:
    """A field of a request or an answer; `about` describes it in /openapi.json and on the page."""

    name: str
    type: FieldType = "text"
    about: str = ""


@dataclass(frozen=True, kw_only=True)
class Edge:
    """How a kind is served.

    `kind`: what /v1/models calls its models, and the module of server/page/kinds/ that shows them. `call`: the path
    behind /v1/ that answers for it, "" if its models only embed texts.

    A kind with a call of its own declares the call's fields. `request`: of the types text and texts, in the order in
    which `Task.record_of` reads them. `answer`: attributes of its Prediction, unless `Task.reply` makes them. `about`:
    one sentence for /openapi.json. `action`: what the button of the page says; the page shows the fields of the answer.
    `cuts`: whether what does not fit of a request's texts is left out, which the answer must say, instead of refused.
    """

    kind: str
    call: str = ""
    about: str = ""
    action: str = "Predict"
    request: tuple[Field, ...] = ()
    answer: tuple[Field, ...] = ()
    cuts: bool = False

    def __post_init__(self) -> None:
        """Refuse a path that is none, and a call that is declared in part."""
        if not re.fullmatch(r"[a-z0-9-]*", self.call):
            raise ValueError(f"call must be lower-case letters, digits and hyphens, not {self.call!r}")
        if bool(self.request) != bool(self.answer) or (self.request and not self.call):
            raise ValueError(f"the kind {self.kind} must declare call, request and answer, or only a call of osbert's")
        if others := [field.name for field in self.request if field.type not in ("text", "texts")]:
            raise ValueError(f"a request holds texts: {others[0]} must be of the type text or texts")

    @property
    def is_own(self) -> bool:
        """Return whether the kind declares a call of its own."""
        return bool(self.request)


class Edges:
    """What a kind of task declares for others: files in their forms, ONNX, the server and its page."""

    form: ClassVar[Form] = "sequence"
    """The form of its head's outputs."""
    values: ClassVar[Values] = "classes"
    """What its head's outputs are, of the form sequence."""
    edge: ClassVar[Edge | None] = None
    """How it is served; None for a kind that cannot be served."""
    published_outputs: ClassVar[int | None] = None
    """How many outputs others' models of its form and values have, of which it can be the task: 0 for any number, with
    labels (`of_labels`); None where it cannot be."""
    reads_rows: ClassVar[bool] = False
    """Whether a request may give it rows by column, which `row` reads."""

    @property
    def per_token(self) -> bool:
        """Return whether the head's outputs are per token (N, K) instead of per sequence (B, K)."""
        return self.form in PER_TOKEN

    @property
    def writing(self) -> GenerationOptions:
        """Return how texts are written, for a kind of the form text."""
        raise NotImplementedError

    def writing_by(self, options: GenerationOptions) -> Self:
        """Return the task with other options of writing, those of drawing aside, for a kind of the form text."""
        raise NotImplementedError

    @property
    def request_fields(self) -> tuple[str, ...]:
        """Return the names of the texts that a request gives, in the order that `Task.record_of` reads them."""
        return tuple(field.name for field in self.edge.request) if self.edge and self.edge.is_own else ("text",)

    @property
    def request_columns(self) -> tuple[str, ...]:
        """Return the columns of the training data behind the `request_fields`, () if they are unknown."""
        return ()

    @property
    def number_range(self) -> tuple[float, ...]:
        """Return the lowest and the highest number that it was trained on, () where it says none or that is unknown."""
        return ()

    @property
    def explains(self) -> bool:
        """Return whether its predictions rest on scores that can be explained (`explained`)."""
        return type(self).explained is not Edges.explained

    def row(self, values: Mapping[str, Any], *, where: str) -> Record:
        """Return the record of a row of a request, by column, if the task `reads_rows`; `where` is for messages.

        Raises UserError or ValueError when a column is missing.
        """
        raise NotImplementedError

    def reply(self, prediction: Prediction) -> dict[str, Any]:
        """Return a prediction as the fields of an answer over HTTP: by default the attributes that `edge` names."""
        return {field.name: getattr(prediction, field.name) for field in (self.edge.answer if self.edge else ())}

    def explained(
        self, prediction: Prediction, record: Record, examples: Sequence[Example], label: str = ""
    ) -> list[ExplainedScore]:
        """Return the scores that a prediction for a record's `examples` rests on, which attributions then explain.

        `label`: explain its score, instead of what was predicted. Raises UserError if there is none of that name, or
        the kind declares no scores.
        """
        raise UserError(
            "This run cannot be explained: its predictions are not scores of a sequence. Explain a run of classify, "
            "multilabel, regress, tag, span or choose.",
            code="unsupported-model",
        )

    @classmethod
    def of_labels(cls, labels: Sequence[str]) -> tuple[Self, tuple[int, ...]]:
        """Return the task for others' model whose outputs have these names, and their order, () for as they are.

        Raises ValueError, saying why, when the kind has no such task.
        """
        raise NotImplementedError
