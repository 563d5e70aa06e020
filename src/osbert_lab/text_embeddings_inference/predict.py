"""POST /predict: labels of texts, as clients of TEI and of Hugging Face's Inference API ask for them.

A request with `parameters` is one of the Inference API's, answered in its form: of text-classification, or with
`candidate_labels` of zero-shot-classification, whose classes the model was not trained for. POST
/zero-shot-classification answers the latter as transformers' pipeline does, which huggingface_hub read up to 1.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, computed_field, model_validator
from pydantic_core import PydanticCustomError

from osbert.server.calls.contract import Item, Items, RequestFields, Results
from osbert.server.calls.models import PREDICT, ServerModel
from osbert.server.calls.predict import LABELS, PredictCall, label_parts
from osbert.server.calls.schemas import Refusal, Texts, shorten
from osbert.tasks import Prediction
from osbert_lab.text_embeddings_inference.contract import TEICall, TruncatingRequest

Sequence1or2 = Annotated[list[str], Field(min_length=1, max_length=2)]


def split_labels(labels: Any) -> Any:
    """Return labels as a list; of a text those between its commas.

    >>> split_labels("refund, other,"), split_labels(["a, b"])
    (['refund', 'other'], ['a, b'])
    """
    return [label.strip() for label in labels.split(",") if label.strip()] if isinstance(labels, str) else labels


CandidateLabels = Annotated[
    list[str], Field(min_length=1, max_length=LABELS, fail_fast=True), BeforeValidator(split_labels)
]
Template = Annotated[str, Field(max_length=1_000, pattern=r"\{\}")]


class InferenceParameters(BaseModel):
    """The parameters of the Inference API, for the model's own labels or for classes by name."""

    model_config = ConfigDict(extra="forbid", strict=True)

    candidate_labels: CandidateLabels | None = Field(
        default=None, description="Predict these classes: names, or a text with commas between them."
    )
    multi_label: bool | None = Field(
        default=None, description="With candidate_labels: several may hold, or none. For models of entailment."
    )
    hypothesis_template: Template | None = Field(
        default=None, description="With candidate_labels: the sentence in which a class is asked for, with {} for it."
    )
    top_k: int | None = Field(default=None, ge=1, description="Return only so many labels, the likeliest.")
    function_to_apply: None = Field(default=None, description="The model's own: scores are probabilities.")

    @model_validator(mode="before")
    @classmethod
    def refuse_unknown(cls, content: Any) -> Any:
        """Return the parameters. Raises PydanticCustomError for the first unknown one: a body may have thousands."""
        names = (name for name in content if name not in cls.model_fields) if isinstance(content, dict) else iter(())
        if unknown := next(names, None):
            known = ", ".join(cls.model_fields)
            raise PydanticCustomError("unknown_parameter", f"there is no {shorten(unknown)}; there are {known}")
        return content


class ZeroShotParameters(InferenceParameters):
    """The parameters of the Inference API for classes by name."""

    candidate_labels: CandidateLabels = Field(description="Names, or a text with commas between them.")


def schema_of(model: type[BaseModel]) -> WithJsonSchema:
    """Return the schema of a part of a request as a part of that of the request, which /openapi.json holds whole."""
    return WithJsonSchema(model.model_json_schema())


class InferenceRequest(TruncatingRequest):
    """A request of clients of TEI or of the Inference API."""

    reads: ClassVar[tuple[str, ...]] = ("inputs",)

    inputs: str | Texts | Annotated[list[Sequence1or2], Field(min_length=1)]
    model: str | None = Field(default=None, description="osbert's: the model's name; the first able one without it.")

    def parts(self) -> Iterator[tuple[str, str]]:
        yield from super().parts()
        yield from ((f"parameters.candidate_{field}", text) for field, text in label_parts(self.labels))

    def count(self) -> tuple[str, int]:
        return "inputs", len(self.inputs) if isinstance(self.inputs, list) else 1

    @computed_field  # type: ignore[prop-decorator]
    @property
    def labels(self) -> list[str] | None:
        """Return the classes by name, as a request to /v1/predict has them."""
        parameters: InferenceParameters | None = getattr(self, "parameters", None)
        return parameters.candidate_labels if parameters else None


class TEIPredictRequest(InferenceRequest):
    """A text, a pair of texts, or a list of lists of one text or two, as TEI's clients send them.

    With `parameters`: a text or a list of texts, as clients of the Inference API send them.
    """

    parameters: Annotated[InferenceParameters, schema_of(InferenceParameters)] | None = None
    raw_scores: Literal[False] = Field(default=False, description="Probabilities are returned, not scores.")


class ZeroShotRequest(InferenceRequest):
    """A text or a list of texts, and classes by name, as transformers' pipeline reads them."""

    parameters: Annotated[ZeroShotParameters, schema_of(ZeroShotParameters)]


class TEIPrediction(BaseModel):
    """A label and its probability."""

    score: float
    label: str


class ZeroShotPrediction(BaseModel):
    """The classes of a text and their probabilities, the likeliest first."""

    sequence: str
    labels: list[str]
    scores: list[float]


class TEIPredictCall(TEICall):
    """TEI's call for a classifier: the probability of each label, the highest first."""

    what = "predict (/predict)"
    needs = PREDICT
    call = PredictCall()
    request: type[InferenceRequest] = TEIPredictRequest
    reply: Any = list[TEIPrediction] | list[list[TEIPrediction]]
    field_names = {
        "texts": "inputs",
        "labels": "parameters.candidate_labels",
        "multi": "parameters.multi_label",
        "template": "parameters.hypothesis_template",
    }

    def translate(self, values: RequestFields) -> RequestFields:
        """Return the request to /v1/predict. One class by name may hold or not, as in transformers' pipeline."""
        parameters, labels = values["parameters"] or {}, values["labels"]
        inputs = list_inputs(values["inputs"], apart=values["parameters"] is not None)
        return {
            "texts": [given[0] if len(given) == 1 else given for given in inputs],
            "labels": labels,
            "multi": bool(parameters.get("multi_label") or (labels and len(labels) == 1)),
            "template": parameters.get("hypothesis_template") or "",
        }

    def items(self, model: ServerModel, values: RequestFields) -> list[Item]:
        """Return an item for each input. Raises Refusal (422) for a model without labels, and for `truncate`."""
        inputs = values["inputs"]
        if values["truncate"]:
            raise Refusal(422, "osbert does not cut the texts of predictions: leave truncate out.", field="truncate")
        if values["parameters"] is None and isinstance(inputs, list) and len(inputs) > 2 and isinstance(inputs[0], str):
            several = "A list is a pair of texts. Send several texts as a list of lists, or with parameters: {}."
            raise Refusal(422, several, field="inputs")
        if not (values["labels"] or model.facts().get("labels")):
            raise Refusal(422, f"The model {model.name} ({model.edge.kind}) predicts no labels.", field="inputs")
        return super().items(model, values)

    def answer(self, model: ServerModel, values: RequestFields, items: Items, results: Results) -> Any:
        inputs, parameters = values["inputs"], values["parameters"]
        predictions = [
            [{"score": probability, "label": label} for label, probability in rank_labels(prediction, parameters)]
            for prediction in results
        ]
        if parameters is None:
            is_list = isinstance(inputs, list) and isinstance(inputs[0], list)
        else:  # a client of text-classification takes the first prediction of the list
            is_list = isinstance(inputs, list) or not values["labels"]
        return predictions if is_list else predictions[0]


class ZeroShotCall(TEIPredictCall):
    """The call for classes by name that answers as transformers' pipeline does."""

    what = "predict (/zero-shot-classification)"
    request = ZeroShotRequest
    reply = ZeroShotPrediction | list[ZeroShotPrediction]

    def answer(self, model: ServerModel, values: RequestFields, items: Items, results: Results) -> Any:
        predictions = []
        for text, prediction in zip(self.translate(values)["texts"], results, strict=True):
            labels, scores = zip(*rank_labels(prediction, values["parameters"]), strict=True)
            predictions.append({"sequence": text, "labels": labels, "scores": scores})
        return predictions if isinstance(values["inputs"], list) else predictions[0]


def rank_labels(prediction: Prediction, parameters: RequestFields | None) -> list[tuple[str, float]]:
    """Return the labels of a prediction and their probabilities, the likeliest first: `top_k` of them if given."""
    assert prediction.probabilities is not None
    ranked = sorted(prediction.probabilities.items(), key=lambda pair: -pair[1])
    return ranked[: (parameters or {}).get("top_k")]


def list_inputs(inputs: str | list[str] | list[list[str]], *, apart: bool) -> list[list[str]]:
    """Return the inputs of a request, each as a list of its texts. `apart`: a list of texts is no pair.

    >>> list_inputs("a", apart=False), list_inputs(["a", "b"], apart=False), list_inputs(["a", "b"], apart=True)
    ([['a']], [['a', 'b']], [['a'], ['b']])
    >>> list_inputs([["a"], ["b", "c"]], apart=False)
    [['a'], ['b', 'c']]
    """
    texts = [inputs] if isinstance(inputs, str) else inputs
    if not apart and all(isinstance(text, str) for text in texts):
        return [[*texts]]
    return [[text] if isinstance(text, str) else text for text in texts]
