"""Classes by name over HTTP as Hugging Face's clients ask for them: their Inference API, and transformers' pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

import osbert
import tiny_runs
from osbert.tasks.kinds.classify import Classify
from serving import Serving

pytestmark = pytest.mark.lab

TEXT, LABELS, TEMPLATE = "a good film", ["good", "bad", "play"], "a {}"
TEXTS = [TEXT, "the bad play", "fine"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a classifier, which is served first and predicts its own labels alone, and a model of entailment."""
    folder = tmp_path_factory.mktemp("models")
    entailment = Classify(labels=("contradiction", "neutral", "entailment"), text="one", pair="two")
    return {
        "classifier": tiny_runs.write_run(folder / "classifier", tiny_runs.TASKS["classifier"]),
        "nli": tiny_runs.write_run(folder / "nli", entailment),
    }


@pytest.fixture(scope="module")
def serving(folders: dict[str, Path]) -> Iterator[Serving]:
    serving = Serving(*(f"{name}={folder}" for name, folder in folders.items()), "--wait", "1")
    try:
        yield serving
    finally:
        serving.close()


@pytest.fixture
def client(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)  # it means every host but this one
    yield huggingface_hub.InferenceClient(f"{serving.url}/predict")
    huggingface_hub.close_session()


def scores(folder: Path, text: str, **options: Any) -> Any:
    (prediction,) = osbert.load(folder).predict([text], **options)
    return pytest.approx(dict(prediction.probabilities), abs=1e-6)


@pytest.mark.usefixtures("client")
def test_the_first_model_answers_at_the_bare_address(serving: Serving, folders: dict[str, Path]) -> None:
    elements = huggingface_hub.InferenceClient(serving.url).text_classification(TEXT)
    assert {element.label: element.score for element in elements} == scores(folders["classifier"], TEXT)


@pytest.mark.parametrize("multi", [False, True])
def test_the_hubs_client_predicts_classes_by_name(client: Any, folders: dict[str, Path], multi: bool) -> None:
    options = {"multi_label": multi, "hypothesis_template": TEMPLATE}
    answer = client.zero_shot_classification(TEXT, LABELS, **options)
    expected = scores(folders["nli"], TEXT, labels=LABELS, multi=multi, template=TEMPLATE)
    assert {element.label: element.score for element in answer} == expected
    assert [element.score for element in answer] == sorted((element.score for element in answer), reverse=True)


def test_the_hubs_client_predicts_labels(client: Any, folders: dict[str, Path]) -> None:
    answer = client.text_classification(TEXT)
    assert {element.label: element.score for element in answer} == scores(folders["classifier"], TEXT)
    assert client.text_classification(TEXT, top_k=1) == answer[:1]
    with pytest.raises(huggingface_hub.errors.HfHubHTTPError) as refused:
        client.text_classification(TEXT, function_to_apply="none")
    assert refused.value.response.status_code == 422


def test_one_class_holds_or_not(client: Any, folders: dict[str, Path]) -> None:
    (element,) = client.zero_shot_classification(TEXT, LABELS[:1])
    assert {element.label: element.score} == scores(folders["nli"], TEXT, labels=LABELS[:1], multi=True)


def test_several_texts_and_labels_in_a_text(serving: Serving, folders: dict[str, Path]) -> None:
    parameters = {"candidate_labels": "good, bad,play", "hypothesis_template": TEMPLATE}
    asked = {"inputs": TEXTS, "parameters": parameters}
    rows = serving.client.post("/predict", json=asked).json()
    dictionaries = serving.client.post("/zero-shot-classification", json=asked).json()
    for text, row, dictionary in zip(TEXTS, rows, dictionaries, strict=True):
        expected = scores(folders["nli"], text, labels=LABELS, template=TEMPLATE)
        assert {item["label"]: item["score"] for item in row} == expected
        assert dict(zip(dictionary["labels"], dictionary["scores"], strict=True)) == expected
        assert dictionary["sequence"] == text and dictionary["labels"] == [item["label"] for item in row]
    own = serving.client.post("/predict", json={"inputs": TEXTS, "parameters": {}}).json()
    assert [{item["label"]: item["score"] for item in row} for row in own] == [
        scores(folders["classifier"], text) for text in TEXTS
    ]


def test_the_pipelines_form_is_the_pipelines(serving: Serving, folders: dict[str, Path]) -> None:
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    pipeline = transformers.pipeline("zero-shot-classification", model=str(folders["nli"]), device="cpu")
    for multi in (False, True):
        options = {"candidate_labels": LABELS, "multi_label": multi, "hypothesis_template": TEMPLATE}
        answer = serving.client.post("/zero-shot-classification", json={"inputs": TEXT, "parameters": options}).json()
        expected = pipeline(TEXT, **options)
        assert (answer["sequence"], answer["labels"]) == (expected["sequence"], expected["labels"])
        assert answer["scores"] == pytest.approx(expected["scores"], abs=1e-5)


def test_labels_at_osberts_own_call_find_the_model_that_predicts_them(
    serving: Serving, folders: dict[str, Path]
) -> None:
    answer = serving.post("predict", texts=[TEXT], labels=LABELS, template=TEMPLATE).json()
    assert answer["model"] == "nli"
    expected = scores(folders["nli"], TEXT, labels=LABELS, template=TEMPLATE)
    assert answer["predictions"][0]["probabilities"] == expected
    assert serving.post("predict", texts=[TEXT]).json()["model"] == "classifier"


@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        ({"candidate_labels": []}, "parameters.candidate_labels"),
        ({"candidate_labels": " , "}, "parameters.candidate_labels"),
        ({"candidate_labels": ["good", "good"]}, "parameters.candidate_labels"),
        ({"candidate_labels": ["good", 3]}, "parameters.candidate_labels[1]"),
        ({"candidate_labels": LABELS, "hypothesis_template": "about"}, "parameters.hypothesis_template"),
        ({"candidate_labels": LABELS, "hypothesis_template": "{} or {}"}, "parameters.hypothesis_template"),
        ({"candidate_labels": LABELS, "multi_label": "yes"}, "parameters.multi_label"),
        ({"candidate_labels": LABELS, "labels": LABELS}, "parameters"),
        ({"multi_label": True}, "parameters.multi_label"),
        ([], "parameters"),
    ],
)
def test_what_cannot_be_predicted_is_refused(serving: Serving, parameters: Any, field: str) -> None:
    refused = serving.client.post("/predict", json={"inputs": TEXT, "parameters": parameters})
    assert refused.status_code == 422 and refused.json()["error"].startswith(f"`{field}`"), refused.text
    assert refused.json()["error_type"] == "Validation"


def test_the_model_may_be_named_and_too_much_is_refused(serving: Serving) -> None:
    asked: dict[str, Any] = {"inputs": TEXT, "parameters": {"candidate_labels": LABELS}}
    for model, status in (("nli", 200), ("classifier", 422), ("another", 404)):
        assert serving.client.post("/predict", json={**asked, "model": model}).status_code == status
    asked["parameters"]["candidate_labels"] = [f"a{index}" for index in range(2_001)]
    assert serving.client.post("/predict", json=asked).status_code == 422
    asked = {"inputs": [TEXT] * 20, "parameters": {"candidate_labels": [f"a{index}" for index in range(1_500)]}}
    assert serving.client.post("/predict", json=asked).status_code == 413
    assert serving.client.post("/zero-shot-classification", json={"inputs": TEXT}).status_code == 422
    assert serving.client.post("/zero-shot-classification", json={"inputs": TEXT, "parameters": {}}).status_code == 422
