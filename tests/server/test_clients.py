"""The routes of OpenAI, Jina, Cohere and TEI: their real clients, unchanged, and refusals in the form of each."""

from __future__ import annotations

import base64
import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import osbert
import tiny_runs
from osbert.interop.sentence_files import Prompts, SentenceModel, write_sentence_model
from osbert.server.access import Hosts
from osbert.server.call_table import all_calls
from osbert.server.http import application
from osbert.tasks.kinds.rerank import Rerank
from serving import Serving

KEY = "0123456789abcdef"
TEXTS = ["a good film", "the poor actor plays a bad film .", "fine"]
DOCUMENTS = ["a bad play", "fine actor", "the film"]
LONG = "film " * 40
CUTS = [4, 8]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a model with prompts whose vectors may be cut, a reranker, a classifier and an encoder."""
    folder = tmp_path_factory.mktemp("models")
    prompted = tiny_runs.write_run(folder / "prompted", None)
    prompts = Prompts(texts={"query": "good : ", "passage": "the "}, default="passage")
    write_sentence_model(prompted, SentenceModel(pooling="mean", normalize=True, prompts=prompts), width=16)
    config = json.loads((prompted / "config.json").read_text())
    (prompted / "config.json").write_text(json.dumps({**config, "matryoshka_dimensions": CUTS}))
    sparse = tiny_runs.write_run(folder / "sparse", None, masks=True)
    settings = SentenceModel(pooling="splade", normalize=False, length=12, prompts=prompts, similarity="dot")
    write_sentence_model(sparse, settings, width=16)
    return {
        "prompted": prompted,
        "ranker": tiny_runs.write_run(folder / "ranker", Rerank()),
        "classifier": tiny_runs.write_run(folder / "classifier", tiny_runs.TASKS["classifier"]),
        "pairs": tiny_runs.write_run(folder / "pairs", tiny_runs.TASKS["pairs"]),
        "encoder": tiny_runs.write_run(folder / "encoder", None),
        "sparse": sparse,
    }


@pytest.fixture(scope="module")
def serving(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    keys = tmp_path_factory.mktemp("keys") / "keys.txt"
    keys.write_text(KEY)
    serving = Serving(*(f"{name}={folder}" for name, folder in folders.items()), "--wait", "1", "--keys", str(keys))
    serving.client.headers["authorization"] = f"Bearer {KEY}"
    try:
        yield serving
    finally:
        serving.close()


@pytest.fixture
def openai_client(serving: Serving) -> Any:
    openai = pytest.importorskip("openai", reason="needs the client openai")
    with openai.OpenAI(base_url=f"{serving.url}/v1", api_key=KEY, max_retries=0) as client:
        yield client


def vectors(folder: Path, texts: list[str], **options: Any) -> Any:
    return pytest.approx(osbert.load(folder).embed(texts, **options), abs=1e-6)


def test_openais_client_gets_vectors(openai_client: Any, folders: dict[str, Path]) -> None:
    for options in ({}, {"encoding_format": "float"}, {"encoding_format": "base64"}):
        answer = openai_client.embeddings.create(model="prompted", input=TEXTS, **options)
        rows = [
            np.frombuffer(base64.b64decode(row), "<f4") if isinstance(row := item.embedding, str) else row
            for item in answer.data
        ]
        assert np.array(rows) == vectors(folders["prompted"], TEXTS)  # with the default prompt
        assert [item.index for item in answer.data] == [0, 1, 2] and answer.model == "prompted"
    texts = [f"the {text}" for text in TEXTS]
    pieces = [len(osbert.load(folders["prompted"]).tokenizer.encode(text)) + 2 for text in texts]
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == sum(pieces)
    (one,) = openai_client.embeddings.create(model="encoder", input=TEXTS[0], encoding_format="float").data
    assert [one.embedding] == vectors(folders["encoder"], TEXTS[:1])
    asked = openai_client.embeddings.create(model="prompted", input=TEXTS, extra_body={"role": "query"})
    assert np.array([item.embedding for item in asked.data]) == vectors(folders["prompted"], TEXTS, role="query")
    assert {model.id for model in openai_client.models.list()} == set(folders)
    assert openai_client.models.retrieve("prompted").id == "prompted"


def test_vectors_are_cut_where_the_model_was_trained_for_it(openai_client: Any, folders: dict[str, Path]) -> None:
    import openai

    whole = osbert.load(folders["prompted"]).embed(TEXTS)
    for size in (*CUTS, 16):
        answer = openai_client.embeddings.create(model="prompted", input=TEXTS, dimensions=size)
        cut = np.array([item.embedding for item in answer.data])
        assert cut == pytest.approx(whole[:, :size] / np.linalg.norm(whole[:, :size], axis=1, keepdims=True), abs=1e-6)
        assert cut == vectors(folders["prompted"], TEXTS, dimensions=size)
    for model, size in (("prompted", 5), ("prompted", 32), ("encoder", 8), ("encoder", 17), ("prompted", 0)):
        with pytest.raises(openai.BadRequestError) as refused:
            openai_client.embeddings.create(model=model, input=TEXTS, dimensions=size)
        assert refused.value.param == "dimensions"


def test_openais_client_knows_refusals(openai_client: Any, serving: Serving) -> None:
    import openai

    create = openai_client.embeddings.create
    with pytest.raises(openai.NotFoundError) as unknown:
        create(model="text-embedding-3-small", input="film")
    assert unknown.value.code == "model_not_found" and unknown.value.param == "model"
    for texts, field in (
        ([], "input"),
        ("", "input"),
        (["a", LONG], "input[1]"),
        ([[1, 2]], "input"),
        ([3, 4], "input"),
    ):
        with pytest.raises(openai.BadRequestError) as refused:
            create(model="encoder", input=texts)
        assert refused.value.param == field and refused.value.type == "invalid_request_error"
    with pytest.raises(openai.APIStatusError) as large:
        create(model="encoder", input=["film"] * 10_000)
    assert large.value.status_code == 413 and large.value.param == "input"
    with pytest.raises(openai.AuthenticationError) as stranger:
        openai_client.with_options(api_key="another key, wrong").embeddings.create(model="encoder", input="film")
    assert stranger.value.code == "invalid_api_key"
    assert serving.metric('osbert_requests_total{path="/v1/embeddings",status="400"}') >= 5


def test_langchains_embeddings(serving: Serving, folders: dict[str, Path]) -> None:
    langchain = pytest.importorskip("langchain_openai", reason="needs langchain-openai")
    options = {"model": "encoder", "base_url": f"{serving.url}/v1", "api_key": KEY}
    embeddings = langchain.OpenAIEmbeddings(**options, check_embedding_ctx_length=False, chunk_size=2)
    assert np.array(embeddings.embed_documents(TEXTS)) == vectors(folders["encoder"], TEXTS)
    assert np.array([embeddings.embed_query("fine")]) == vectors(folders["encoder"], ["fine"])
    embeddings.client._client.close()


def ranking(folder: Path) -> list[dict[str, Any]]:
    """Return the ranking of DOCUMENTS for the query "good film"."""
    (prediction,) = osbert.load(folder).predict([("good film", *DOCUMENTS)])
    return [candidate.item() for candidate in prediction.ranked]  # type: ignore[attr-defined]


def test_coheres_clients_rank(serving: Serving, folders: dict[str, Path]) -> None:
    cohere = pytest.importorskip("cohere", reason="needs the client cohere")
    expected = ranking(folders["ranker"])
    with httpx.Client() as http:
        first, second = (
            kind(api_key=KEY, base_url=serving.url, httpx_client=http) for kind in (cohere.Client, cohere.ClientV2)
        )
        for client in (first, second):
            for top in (None, 2):
                options = {"top_n": top} if top else {}
                answer = client.rerank(model="ranker", query="good film", documents=DOCUMENTS, **options)
                assert [item.index for item in answer.results] == [item["index"] for item in expected][:top]
                scores = [item["probability"] for item in expected][:top]
                assert [item.relevance_score for item in answer.results] == pytest.approx(scores, abs=1e-6)
        for error, options in (
            (cohere.NotFoundError, {"model": "rerank-v4.0", "documents": ["a"]}),
            (cohere.UnprocessableEntityError, {"model": "ranker", "documents": []}),
            (cohere.UnprocessableEntityError, {"model": "classifier", "documents": ["a"]}),
            (cohere.UnprocessableEntityError, {"model": "ranker", "documents": ["a"], "max_tokens_per_doc": 5}),
        ):
            with pytest.raises(error) as refused:
                second.rerank(query="film", **options)
            assert set(refused.value.body) == {"message"}


def test_jinas_route_is_osberts_with_further_fields(serving: Serving, folders: dict[str, Path]) -> None:
    documents = [DOCUMENTS[0], *({"text": text} for text in DOCUMENTS[1:])]
    answer = serving.post("rerank", model="ranker", query="good film", documents=documents, top_n=2).json()
    expected = ranking(folders["ranker"])
    assert [item["index"] for item in answer["ranking"]] == [item["index"] for item in expected]
    for item, ranked in zip(answer["results"], expected[:2], strict=True):
        assert item["index"] == ranked["index"] and item["document"] == {"text": DOCUMENTS[item["index"]]}
    assert answer["usage"]["total_tokens"] > 10
    answer = serving.post("rerank", query="good film", documents=DOCUMENTS, return_documents=False).json()
    assert [set(item) for item in answer["results"]] == [{"index", "relevance_score"}] * 3
    refused = serving.post("rerank", query="film", documents=["a", {"txt": "b"}])
    assert refused.status_code == 422 and refused.json()["detail"] == refused.json()["error"]["message"]


@pytest.mark.lab
def test_teis_routes(serving: Serving, folders: dict[str, Path]) -> None:
    def post(path: str, **asked: Any) -> Any:
        answer = serving.client.post(path, json=asked)
        assert answer.status_code == 200, answer.text
        return answer.json()

    assert np.array(post("/embed", inputs=TEXTS)) == vectors(folders["prompted"], TEXTS)
    asked = {"inputs": [LONG], "truncate": True, "prompt_name": "query", "normalize": False, "dimensions": 4}
    options = {"role": "query", "normalize": False, "dimensions": 4}
    assert np.array(post("/embed", **asked)) == vectors(folders["prompted"], [LONG], **options)
    expected = ranking(folders["ranker"])
    ranks = post("/rerank", query="good film", texts=DOCUMENTS, raw_scores=True, return_text=True)
    assert [rank["score"] for rank in ranks] == pytest.approx([item["score"] for item in expected], abs=1e-5)
    assert [rank["text"] for rank in ranks] == [DOCUMENTS[item["index"]] for item in expected]
    (said,) = osbert.load(folders["classifier"]).predict(["a good film"])
    one, batch = post("/predict", inputs="a good film"), post("/predict", inputs=[["a good film"], ["fine"]])
    assert {item["label"]: item["score"] for item in one} == pytest.approx(dict(said.probabilities), abs=1e-6)
    assert one[0]["score"] >= one[1]["score"] and len(batch) == 2
    assert batch[0] == [{"label": item["label"], "score": pytest.approx(item["score"], abs=1e-6)} for item in one]
    told = serving.client.get("/info").json()
    assert told["model_id"] == "prompted" and told["model_type"] == {"embedding": {"pooling": "mean"}}
    assert told["max_client_batch_size"] == 128 and httpx.get(f"{serving.url}/info").status_code == 401


@pytest.mark.lab
def test_texts_are_compared_by_teis_route(serving: Serving, folders: dict[str, Path]) -> None:
    inputs = {"source_sentence": TEXTS[0], "sentences": TEXTS}
    for parameters, role in (({}, None), ({"prompt_name": "query", "truncate": True}, "query")):
        answer = serving.client.post("/similarity", json={"inputs": inputs, "parameters": parameters})
        embedded = osbert.load(folders["prompted"]).embed(TEXTS, role=role)
        assert answer.json() == pytest.approx((embedded @ embedded[0]).tolist(), abs=1e-5)
    for faulty, field in (
        ({"source_sentence": LONG, "sentences": TEXTS}, "inputs.source_sentence"),
        ({"source_sentence": "fine", "sentences": ["fine", LONG]}, "inputs.sentences[1]"),
        ({"source_sentence": "fine", "sentences": ["fine", "film " * 20_000]}, "inputs.sentences[1]"),
        ({"source_sentence": "fine", "sentences": ["fine"] * 128}, "inputs.sentences"),
        ({"source_sentence": "fine", "sentences": []}, "inputs.sentences"),
    ):
        answer = serving.client.post("/similarity", json={"inputs": faulty})
        assert answer.status_code in (413, 422) and f"`{field}`" in answer.json()["error"]


@pytest.mark.lab
def test_teis_route_of_sparse_vectors(serving: Serving, folders: dict[str, Path]) -> None:
    answer = serving.client.post("/embed_sparse", json={"inputs": TEXTS, "prompt_name": "query", "truncate": True})
    assert answer.status_code == 200, answer.text
    expected = osbert.load(folders["sparse"]).embed(TEXTS, role="query").toarray()
    for weights, row in zip(answer.json(), expected, strict=True):
        assert {item["index"]: item["value"] for item in weights} == pytest.approx(
            {index: row[index] for index in np.flatnonzero(row).tolist()}, abs=1e-5
        )


@pytest.mark.lab
def test_the_hubs_client_embeds_by_teis_route(
    serving: Serving, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)  # it means every host but this one
    for address in ("/embed", ""):  # the first model, an encoder, answers at the bare address
        client = huggingface_hub.InferenceClient(serving.url + address, token=KEY)
        rows = client.feature_extraction("a good film", normalize=True, prompt_name="query", truncate=True)
        assert rows == vectors(folders["prompted"], ["a good film"], role="query")
    client = huggingface_hub.InferenceClient(f"{serving.url}/similarity", token=KEY)
    assert len(client.sentence_similarity("a good film", other_sentences=TEXTS)) == len(TEXTS)
    huggingface_hub.close_session()


@pytest.mark.lab
@pytest.mark.parametrize(
    ("path", "asked", "status", "kind"),
    [
        ("/embed", {"inputs": LONG}, 422, "Validation"),
        ("/embed", {"inputs": []}, 422, "Validation"),
        ("/embed", {"inputs": [[1, 2]]}, 422, "Validation"),
        ("/embed", {"inputs": ["film"] * 10_000}, 413, "Validation"),
        ("/embed", {"inputs": "film", "prompt_name": "question"}, 422, "Validation"),
        ("/embed", {"inputs": "film", "truncation_direction": "left"}, 422, "Validation"),
        ("/embed_sparse", {"inputs": LONG}, 422, "Validation"),
        ("/embed_sparse", {"inputs": "film", "prompt_name": "question"}, 422, "Validation"),
        ("/rerank", {"query": "film", "texts": ["a", LONG]}, 422, "Validation"),
        ("/rerank", {"query": "film", "texts": ["a"] * 200}, 413, "Validation"),
        ("/predict", {"inputs": ["a", "b", "c"]}, 422, "Validation"),
        ("/predict", {"inputs": [["a"], ["b", "c"]]}, 422, "Validation"),
        ("/predict", {"inputs": LONG}, 422, "Validation"),
    ],
)  # fmt: skip
def test_teis_refusals(serving: Serving, path: str, asked: dict[str, Any], status: int, kind: str) -> None:
    refused = serving.client.post(path, json=asked)
    assert (refused.status_code, refused.json()["error_type"]) == (status, kind) and refused.json()["error"]


FORMS = {"/v1/embeddings": "error", "/v1/rerank": "detail", "/v2/rerank": "message"}
if importlib.util.find_spec("osbert_lab"):
    paths = ("/embed", "/embed_sparse", "/rerank", "/predict", "/zero-shot-classification", "/token-classification")
    paths += ("/question-answering", "/fill-mask", "/inference")
    FORMS |= dict.fromkeys(paths, "error_type")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("a film"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["text", "a"]), inner, max_size=2),
    max_leaves=5,
)
NAMES = (
    "input",
    "inputs",
    "query",
    "documents",
    "texts",
    "model",
    "dimensions",
    "encoding_format",
    "top_n",
    "truncate",
    "parameters",
)


@given(path=st.sampled_from(sorted(FORMS)), asked=st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=4))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_body_is_a_fault_of_the_server(serving: Serving, path: str, asked: dict[str, Any]) -> None:
    # httpx refuses to send NaN and infinities, which others write as Python does.
    headers = {"content-type": "application/json"}
    answer = serving.client.post(path, content=json.dumps(asked), headers=headers)
    assert answer.status_code == 200 or (400 <= answer.status_code < 500 and FORMS[path] in answer.json())


@pytest.mark.parametrize("path", sorted(FORMS))
def test_what_is_no_request_is_refused_in_the_form_of_the_client(serving: Serving, path: str) -> None:
    headers = {"content-type": "application/json"}
    for body in (b'{"input": "\xff"}', b"[]", b"{", b'{"input": "a", "input": "b"}', b"x" * 1_100_000):
        answer = serving.client.post(path, content=body, headers=headers)
        assert answer.status_code in (400, 413, 422) and FORMS[path] in answer.json()
    for headers, status in (({"host": "example.org"}, 421), ({"authorization": "Bearer wrong"}, 401)):
        answer = serving.client.post(path, json={}, headers=headers)
        assert answer.status_code == status and FORMS[path] in answer.json()
    assert FORMS[path] in serving.client.get(path).json()


def test_coheres_refusals_say_which_document(serving: Serving) -> None:
    for document in (" ", 1):
        answer = serving.client.post("/v2/rerank", json={"query": "film", "documents": ["fine", document]})
        assert answer.status_code == 422 and answer.json()["message"].count("documents[1]: ") == 1


@pytest.mark.lab
def test_coheres_client_gets_vectors(serving: Serving, folders: dict[str, Path]) -> None:
    cohere = pytest.importorskip("cohere", reason="needs the client cohere")
    client = cohere.ClientV2(base_url=serving.url, api_key=KEY, httpx_client=serving.client)
    for kind, role in (("search_query", "query"), ("search_document", "document"), ("clustering", None)):
        for size in (None, CUTS[0]):
            options = {} if size is None else {"output_dimension": size}
            types = ["float", "base64"]
            answer = client.embed(model="prompted", texts=TEXTS, input_type=kind, embedding_types=types, **options)
            expected = vectors(folders["prompted"], TEXTS, role=role, dimensions=size or 0)
            assert np.array(answer.embeddings.float_) == expected and answer.meta.warnings is None
            assert (
                np.array([np.frombuffer(base64.b64decode(row), "<f4") for row in answer.embeddings.base64]) == expected
            )
    cut = client.embed(model="encoder", texts=["fine", LONG], input_type="clustering")
    assert (
        np.array(cut.embeddings.float_) == vectors(folders["encoder"], ["fine", LONG]) and len(cut.meta.warnings) == 1
    )
    for options, status in (
        ({"truncate": "NONE", "texts": [LONG]}, 422),
        ({"output_dimension": 5}, 422),
        ({"embedding_types": ["int8"]}, 422),
        ({"model": "encoder", "texts": [""]}, 422),
        ({"model": "embed-v4.0"}, 404),
    ):
        with pytest.raises(cohere.core.api_error.ApiError) as refused:
            client.embed(**{"model": "prompted", "texts": TEXTS, "input_type": "search_query", **options})
        assert refused.value.status_code == status and refused.value.body["message"]


def test_no_refusal_names_the_folder_of_a_model(serving: Serving) -> None:
    answer = serving.post("embed", texts=TEXTS, dimensions=999)
    assert answer.status_code == 422 and "/" not in answer.json()["error"]["message"]


@pytest.mark.parametrize("text", ["", "  ", "\u200b"])
def test_a_text_without_pieces_is_refused_with_a_prompt_as_without(serving: Serving, text: str) -> None:
    for fields in ({"model": "prompted"}, {"model": "prompted", "role": "query"}, {"model": "encoder"}):
        answer = serving.post("embed", texts=["film", text], **fields)
        assert answer.status_code == 422 and answer.json()["error"]["field"] == "texts[1]"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"dimensions": 999}, "dimensions"),
        ({"dimensions": 999, "role": "query"}, "dimensions"),
        ({"dimensions": 4, "role": "question"}, "role"),
        ({"dimensions": 999, "role": "question"}, "role"),
        ({"role": "query", "pooling": "pooler"}, "pooling"),
        ({"dimensions": 4, "role": "query", "pooling": "pooler"}, "pooling"),
    ],
)
def test_refusals_of_vectors_name_the_field_at_fault(serving: Serving, fields: dict[str, Any], field: str) -> None:
    answer = serving.post("embed", texts=TEXTS, model="prompted", **fields)
    assert answer.status_code == 422 and answer.json()["error"]["field"] == field, answer.text


def test_without_a_reranker_its_routes_are_absent() -> None:
    assert not {"/v2/rerank", "/rerank", "rerank"} & set(all_calls([]))


def test_without_the_lab_teis_routes_are_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("osbert.server.call_table.extensions", lambda group: {})
    monkeypatch.setattr("osbert.server.http.extensions", lambda group: {})
    service: Any = SimpleNamespace(pool=SimpleNamespace(edges=[]), calls=all_calls([Rerank.edge]), refusal=None)
    paths = {getattr(route, "path", "") for route in application(service, hosts=Hosts(names=(), origins=())).routes}
    assert {"/v1/embeddings", "/v2/rerank", "/health"} <= paths
    assert not {"/embed", "/embed_sparse", "/rerank", "/predict", "/zero-shot-classification", "/info"} & paths
