"""POST /v1/explain: the contribution of each word to a prediction's score."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Annotated, Any

from pydantic import BaseModel, Field

from osbert.analysis.settings import AttributionOptions, Baseline, Method
from osbert.errors import nearest
from osbert.server.calls.contract import Call, Item, Items, RequestFields, Results, item_of
from osbert.server.calls.fill_mask import FillCall
from osbert.server.calls.models import ServerModel
from osbert.server.calls.schemas import NAME, Refusal, Reply, Request

POINTS = 128
"""Most points of the integral (integrated gradients) in a request."""
ROUGH = 1e9
"""Tolerance for the completeness error; so large that points are never doubled, which bounds a request's time."""


class ExplainRequest(Request, title="Explain"):
    """Texts, or lists of the texts that the model reads together, such as a question and its paragraph."""

    texts: Annotated[
        list[str | Annotated[list[str], Field(min_length=1, fail_fast=True)]], Field(min_length=1, fail_fast=True)
    ]
    label: str = Field(default="", description="Explain the score of this label, or piece, not of what is predicted.")
    method: Method = "gradients"
    baseline: Baseline = "auto"
    points: int = Field(default=32, ge=1, le=POINTS)
    check: bool = Field(default=False, description="Compute occlusion, too, and the rank correlation of both.")


class Weight(BaseModel, title="WordWeight"):
    """A word, text[start:end] of text number `text` in characters, and what it adds to the score."""

    __qualname__ = "WordWeight"

    word: str
    start: int
    end: int
    weight: float
    occlusion: float | None = None
    text: int


class WeighedScore(BaseModel, title="Explanation"):
    """The words of one thing that the model says, and how far they sum to its score."""

    __qualname__ = "Explanation"

    label: str
    text: str
    score: float
    baseline_score: float
    words: list[Weight]
    error: float | None = None
    agreement: float | None = None
    points: int
    baseline: str


class ExplainAnswer(Reply, title="Explanations"):
    """The answer of /v1/explain: for each prediction of each text, the weights of its words."""

    __qualname__ = "Explanations"

    explanations: list[list[WeighedScore]]


class ExplainItem(Item):
    """Texts to explain. Each of the points is a pass over the tokens, so an item costs many times its tokens."""

    __slots__ = ()

    @property
    def tokens(self) -> int:
        """An upper bound for the tokens that are read at all points."""
        return POINTS * super().tokens


class ExplainCall(Call):
    """Computes the weights of the words of each text."""

    what = "explain (/v1/explain)"
    request = ExplainRequest
    reply = ExplainAnswer

    def items(self, model: ServerModel, values: RequestFields) -> list[Item]:
        """Return an item for each text or list of texts: a record, or for a masked language model the text."""
        _require_label(model, values["label"])
        if model.masks is not None:
            if not all(isinstance(text, str) for text in values["texts"]):
                raise Refusal(422, f"The model {model.name} reads one text at a time.", field="texts")
            read = [Item(text, item.examples) for text, item in zip(values["texts"], FillCall().items(model, values))]
        else:
            samples = [[text] if isinstance(text, str) else text for text in values["texts"]]
            read = [item_of(model, sample, f"texts[{index}]") for index, sample in enumerate(samples)]
        return [ExplainItem(*item) for item in read]

    def option(self, values: RequestFields) -> Hashable:
        names = ("method", "baseline", "points", "check")
        return values["label"], AttributionOptions(**{name: values[name] for name in names}, tolerance=ROUGH)

    def read(self, model: ServerModel, items: Items, option: Any) -> Results:
        from osbert.inference.explain import explain_masks, explain_records

        label, options = option
        if model.masks is not None:
            return [explain_masks(model.engine, item.value, options, piece=label) for item in items]
        explanations = explain_records(model.engine, [item.value for item in items], options, label=label)
        return [explained for _, explained in explanations]

    def fields(self, model: ServerModel, values: RequestFields, items: Items, results: Results) -> dict[str, Any]:
        return {"explanations": [[explanation.as_dict() for explanation in explained] for explained in results]}


def _require_label(model: ServerModel, label: str) -> None:
    """Raise Refusal (422) unless `label` is "" or one of the model's labels (of a masked LM: its pieces)."""
    task = model.engine.task
    known = model.engine.tokenizer.vocabulary if task is None else task.classes
    if label and label not in known:
        raise Refusal(
            422, f"There is no label '{label[:NAME]}' to explain.{nearest(label[:NAME], known)}", field="label"
        )
