"""Entities, answers and filled masks over HTTP as huggingface_hub's client asks for them, at the bare address."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

import osbert
import tiny_runs
from osbert.tasks.kinds.tag import Tag
from serving import Serving

pytestmark = pytest.mark.lab

TEXT, MASKED = "The good actor plays a film .", "a good [MASK] ."
QUESTION, CONTEXT = "a film", "The good actor plays a bad film ."
TAGGER = Tag(types=("PER", "WORK"), decoder="linear")


@contextmanager
def served(folder: Path) -> Iterator[tuple[Any, Serving]]:
    """Serve a model; yield the hub's client at the bare address, and the server."""
    serving = Serving(f"model={folder}", "--wait", "1")
    try:
        yield huggingface_hub.InferenceClient(serving.url), serving
    finally:
        huggingface_hub.close_session()
        serving.close()


@pytest.fixture(autouse=True)
def online(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)  # it means every host but this one


def refused_field(serving: Serving, **body: Any) -> str:
    answer = serving.client.post("/", json=body)
    assert answer.status_code == 422 and answer.json()["error_type"] == "Validation", answer.text
    return str(answer.json()["error"])


def test_the_hubs_client_finds_entities(tmp_path: Path) -> None:
    folder = tiny_runs.write_run(tmp_path / "tagger", TAGGER)
    (prediction,) = osbert.load(folder).predict([TEXT])
    with served(folder) as (client, serving):
        groups = client.token_classification(TEXT)
        assert [(group.entity_group, group.start, group.end, group.word) for group in groups] == [
            (entity.type, entity.start, entity.end, TEXT[entity.start : entity.end]) for entity in prediction.value
        ]
        assert [group.score for group in groups] == pytest.approx([e.probability for e in prediction.value], abs=1e-6)
        assert groups and client.token_classification(TEXT, aggregation_strategy="first") == groups
        several = serving.client.post("/token-classification", json={"inputs": [TEXT, "film"]}).json()
        assert [group["start"] for group in several[0]] == [group.start for group in groups] and len(several) == 2
        for name, value in (("stride", 2), ("aggregation_strategy", "max"), ("ignore_labels", ["O"])):
            assert name in refused_field(serving, inputs=TEXT, parameters={name: value})
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    pipeline = transformers.pipeline("token-classification", str(folder), aggregation_strategy="first", device="cpu")
    expected = [(group["entity_group"], group["start"], group["end"]) for group in pipeline(TEXT)]
    assert [(group.entity_group, group.start, group.end) for group in groups] == expected


@pytest.mark.parametrize("name", ["reader", "reader-of-all"])
def test_the_hubs_client_gets_answers(tmp_path: Path, name: str) -> None:
    folder = tiny_runs.write_run(tmp_path / "reader", tiny_runs.TASKS[name])
    (prediction,) = osbert.load(folder).predict([(QUESTION, CONTEXT)])
    best = max((span for span in prediction.candidates if span.start >= 0), key=lambda span: span.probability)
    with served(folder) as (client, serving):
        answer = client.question_answering(QUESTION, CONTEXT)
        assert (answer.answer, answer.start, answer.end) == (best.text, best.start, best.end)
        assert answer.score == pytest.approx(best.probability, abs=1e-6) and CONTEXT[answer.start : answer.end]
        several = client.question_answering(QUESTION, CONTEXT, top_k=3)
        assert several[0] == answer and len(several) == 3
        either = client.question_answering(QUESTION, CONTEXT, handle_impossible_answer=True)
        assert either.answer == prediction.value and either.start == max(prediction.chosen.start, 0)
        inputs = {"question": QUESTION, "context": CONTEXT}
        assert "max_answer_len" in refused_field(serving, inputs=inputs, parameters={"max_answer_len": 3})
        assert "`inputs.context`" in refused_field(serving, inputs={**inputs, "context": ""})
        assert "inputs" in refused_field(serving, inputs=CONTEXT)


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_runs.write_run(tmp_path_factory.mktemp("models") / "masks", None, masks=True)


def test_the_hubs_client_fills_masks_and_embeds(masked: Path) -> None:
    [expected] = osbert.load(masked).fill(MASKED, top=5)
    with served(masked) as (client, serving):
        fills = client.fill_mask(MASKED)
        assert [fill.token_str for fill in fills] == [piece for piece, _ in expected]
        assert [fill.score for fill in fills] == pytest.approx([share for _, share in expected], abs=1e-6)
        assert client.fill_mask(MASKED, top_k=2) == fills[:2]
        vector = osbert.load(masked).embed([TEXT], normalize=True)
        assert client.feature_extraction(TEXT) == pytest.approx(vector, abs=1e-6)
        assert client.feature_extraction(MASKED, normalize=True).shape == vector.shape
        for path in ("/", "/embed"):
            parameters = {"normalize": False, "truncate": True, "encoding_format": "float"}
            rows = serving.client.post(path, json={"inputs": [TEXT], "parameters": parameters}).json()
            assert rows == pytest.approx(osbert.load(masked).embed([TEXT], normalize=False), abs=1e-5)
        several = serving.client.post("/fill-mask", json={"inputs": [MASKED, "a [MASK] [MASK]"]}).json()
        assert [fill["token"] for fill in several[0]] == [fill.token for fill in fills]
        assert [len(fill) for fill in several[1]] == [5, 5]
        for name, value in (("targets", ["film"]), ("encoding_format", "base64"), ("truncation_direction", "left")):
            assert name in refused_field(serving, inputs=TEXT, parameters={name: value})
        assert "normalize" in refused_field(serving, inputs=TEXT, normalize=True, parameters={"normalize": False})
        assert "inputs" in refused_field(serving, inputs=TEXT, parameters={"top_k": 3})  # there is no mask in it
        assert "parameters" in refused_field(serving, inputs=TEXT, parameters=[])


@pytest.mark.parametrize("text", [MASKED, "[MASK] good [MASK] actor"])
def test_filled_masks_are_those_of_the_pipeline(masked: Path, text: str) -> None:
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    expected = transformers.pipeline("fill-mask", str(masked), device="cpu")(text)
    with served(masked) as (_, serving):
        answer = serving.client.post("/", json={"inputs": text}).json()

    def flat(fills: Any) -> list[Any]:
        return [fill for row in (fills if isinstance(fills[0], list) else [fills]) for fill in row]

    for name in ("token", "token_str", "sequence"):
        assert [fill[name] for fill in flat(answer)] == [fill[name] for fill in flat(expected)]
    scores = [fill["score"] for fill in flat(expected)]
    assert [fill["score"] for fill in flat(answer)] == pytest.approx(scores, abs=1e-5)
