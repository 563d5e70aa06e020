"""What a kind of task shows to others, as data: its HTTP call and its display, and the scores that are explained.

server/ and its page read the fields of the call. The scores behind a prediction, which attributions explain, are
weighted sums of the head's outputs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from osbert.errors import UserError, nearest

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
