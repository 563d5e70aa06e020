"""The interfaces of a kind of task, as data: the form of its outputs, its HTTP call, its display, and explained scores.

interop/ chooses classes of other libraries and ONNX outputs by the form; server/ and its page read the fields. The
scores behind a prediction, which attributions explain, are weighted sums of the head's outputs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Example
from osbert.errors import UserError, nearest
from osbert.models.forms import PER_TOKEN, Form, Values
from osbert.models.generation.settings import GenerationOptions

if TYPE_CHECKING:
    from osbert.tasks.record import Prediction, Record

Weights = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class ExplainedScore:
    """A score behind a prediction: the sum of `weights` times the head's outputs.

    `label`: name of the score, such as a class or a type of entities. `text`: the answer, choice or entity with this
    score, "" if the label is enough. `weights`: one array for each of the record's sequences, of the shape of its
    outputs, (K,) or (n, K).
    """

    label: str
    weights: Sequence[Weights]
    text: str = ""

    def of(self, outputs: Sequence[NDArray[np.floating]]) -> float:
        """Return the score for the outputs of the record's sequences."""
        return float(sum((weights * output).sum() for weights, output in zip(self.weights, outputs, strict=True)))


def contrast(chosen: int, count: int) -> Weights:
    """Return the weights (K,) of one output minus the mean of the others.

    >>> contrast(1, 3).tolist()
    [-0.5, 1.0, -0.5]
    """
    weights = np.full(count, -1 / max(count - 1, 1))
    weights[chosen] = 1.0
    return weights


def require_label(label: str, labels: Sequence[str]) -> str:
    """Return `label`. Raises UserError, with the nearest label, if it is not one of `labels`."""
    if label in labels:
        return label
    first_labels = ", ".join(labels[:20])
    raise UserError(
        f"There is no label '{label}' that could be explained: there are {first_labels}.{nearest(label, labels)}",
        code="unknown-label",
    )


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
    """The HTTP interface of a kind.

    `kind`: the kind of its models in /v1/models, and the module of server/page/kinds/ that shows them. `call`: its path
    below /v1/, "" if its models only embed texts.

    A kind with a call of its own declares the call's fields. `request`: of the types text and texts, in the order in
    which `Task.record_of` reads them. `answer`: attributes of its Prediction, unless `Task.reply` makes them. `about`:
    one sentence for /openapi.json. `action`: the label of the page's button; the page shows the fields of the answer.
    `cuts`: whether texts that are too long are truncated, which the answer must report, instead of rejected.
    """

    kind: str
    call: str = ""
    about: str = ""
    action: str = "Predict"
    request: tuple[Field, ...] = ()
    answer: tuple[Field, ...] = ()
    cuts: bool = False

    def __post_init__(self) -> None:
        """Raise ValueError for an invalid path, and for a call that is declared only in part."""
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
    """The declarations of a kind of task for other libraries' files, ONNX, the server and its page."""

    form: ClassVar[Form] = "sequence"
    """The form of its head's outputs."""
    values: ClassVar[Values] = "classes"
    """The meaning of its head's outputs, for the form sequence."""
    edge: ClassVar[Edge | None] = None
    """Its HTTP interface; None for a kind that cannot be served."""
    published_outputs: ClassVar[int | None] = None
    """Number of outputs of other libraries' models that it can use: 0 for any number, with labels (`of_labels`); None
    if it cannot use any."""
    reads_rows: ClassVar[bool] = False
    """Whether a request may have rows by column, which `row` reads."""

    @property
    def per_token(self) -> bool:
        """Return whether the head's outputs are per token (N, K) instead of per sequence (B, K)."""
        return self.form in PER_TOKEN

    @property
    def writing(self) -> GenerationOptions:
        """Return the options of generation, for a kind of the form text."""
        raise NotImplementedError

    def writing_by(self, options: GenerationOptions) -> Self:
        """Return the task with other options of generation except those of sampling, for a kind of the form text."""
        raise NotImplementedError

    @property
    def request_fields(self) -> tuple[str, ...]:
        """Return the names of a request's texts, in the order in which `Task.record_of` reads them."""
        return tuple(field.name for field in self.edge.request) if self.edge and self.edge.is_own else ("text",)

    @property
    def request_columns(self) -> tuple[str, ...]:
        """Return the columns of the training data behind the `request_fields`, () if they are unknown."""
        return ()

    @property
    def number_range(self) -> tuple[float, ...]:
        """Return the lowest and the highest number of the training rows, () if it predicts none or if unknown."""
        return ()

    @property
    def explains(self) -> bool:
        """Return whether it declares scores that can be explained (`explain`)."""
        return type(self).explain is not Edges.explain

    def row(self, values: Mapping[str, Any], *, where: str) -> Record:
        """Return the record of a row of a request, by column, if the task `reads_rows`; `where` is for messages.

        Raises UserError or ValueError when a column is missing.
        """
        raise NotImplementedError

    def reply(self, prediction: Prediction) -> dict[str, Any]:
        """Return a prediction as the fields of an HTTP answer: by default the attributes that `edge` names."""
        return {field.name: getattr(prediction, field.name) for field in (self.edge.answer if self.edge else ())}

    def explain(
        self, prediction: Prediction, record: Record, examples: Sequence[Example], label: str = ""
    ) -> list[ExplainedScore]:
        """Return the scores behind a prediction for a record's `examples`, for attributions.

        `label`: explain the score of this label instead of the predicted one. Raises UserError if there is no such
        label, or the kind declares no scores.
        """
        raise UserError(
            "This run cannot be explained: its predictions are not scores of a sequence. Explain a run of classify, "
            "multilabel, regress, tag, span or choose.",
            code="unsupported-model",
        )

    @classmethod
    def of_labels(cls, labels: Sequence[str]) -> tuple[Self, tuple[int, ...]]:
        """Return the task for another library's model with these outputs, and their new order, () for unchanged.

        Raises ValueError with the reason if the kind has no such task.
        """
        raise NotImplementedError
