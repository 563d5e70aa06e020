"""Roles of sentence models: equal to sentence-transformers' encode, encode_query and encode_document."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import osbert
import three_ways
import tiny_runs
from osbert.inference.embedder import remarks
from osbert.inference.engine import Engine, load
from osbert.inference.vectors.reading import open_vectors
from osbert.inference.vectors.settings import EmbeddingOptions
from osbert.interop.conversion import model_of, open_any, write_model_as
from osbert.interop.files.weight_files import read_file, write_tensors
from osbert.interop.sentence_files import LENGTHS, PROMPTS, Prompts
from osbert.interop.tokenizers import write_tokenizer
from osbert.text.tokenizer import SPECIALS, Tokenizer
from refusals import refusal

pytestmark = pytest.mark.filterwarnings("ignore")

WORDS = (
    *("represent", "this", "sentence", "for", "searching", "relevant", "passages", "query", "passage", "search", "_"),
    *("document", ":", "the", "a", "good", "bad", "film", "actor", "plays", "##s", "."),
)
TEXTS = ["a good film .", "the bad actor plays films", "", "film " * 40, "A Good FILM", "unknown words"]
STYLES: dict[str, dict[str, Any]] = {
    "e5": {"prompts": {"query": "query: ", "document": "passage: "}},
    "bge": {"prompts": {"query": "Represent this sentence for searching relevant passages: "}},
    "nomic": {"prompts": {"query": "search_query: ", "document": "search_document: ", "clustering": "a film: "}},
    "default": {"prompts": {"film": "a film: ", "query": "query: "}, "default_prompt_name": "film"},
    "none": {},
}
WAYS = {None: "encode", "query": "encode_query", "document": "encode_document"}


def library() -> Any:
    """Import sentence-transformers when a test needs it: it takes seconds."""
    return pytest.importorskip("sentence_transformers")


def modules() -> Any:
    return pytest.importorskip("sentence_transformers.sentence_transformer.modules")


def sentence_transformer(folder: Path, *, parts: str = "", pooling: Any = "mean", **settings: Any) -> Any:
    """Return a random model of sentence-transformers, and write it."""
    tiny_runs.write_run(folder / "encoder", None, words=WORDS, length=24)
    transformer = modules().Transformer(str(folder / "encoder"), max_seq_length=16)
    pooled = modules().Pooling(16, pooling, include_prompt=settings.pop("include_prompt", True))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        further = PARTS[parts](modules()) if parts else []
        for vector in [one for part in further for one in part.parameters() if one.ndim == 1]:
            torch.nn.init.normal_(vector)
    model = library().SentenceTransformer(modules=[transformer, pooled, *further], device="cpu", **settings)
    model.save(str(folder / "model"), create_model_card=False)
    return library().SentenceTransformer(str(folder / "model"), device="cpu")


def require_equal(engine: Engine, model: Any, texts: Sequence[str] = TEXTS) -> None:
    """Compare each role, at length 1."""
    for role, way in WAYS.items():
        expected = getattr(model, way)(list(texts))
        actual = engine.embed(texts, role=role)
        assert actual.shape == expected.shape
        scale = np.linalg.norm(expected, axis=1, keepdims=True)
        np.testing.assert_allclose(actual / scale, expected / scale, atol=2e-6, err_msg=str(role))


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("style", STYLES)
def test_roles_are_those_of_sentence_transformers(tmp_path: Path, style: str, pooled: bool) -> None:
    model = sentence_transformer(tmp_path, include_prompt=pooled, **STYLES[style])
    engine = load(tmp_path / "model")
    require_equal(engine, model)
    query, document = engine.embed(TEXTS, role="query"), engine.embed(TEXTS, role="document")
    assert (np.abs(query - document).max() > 1e-4) == (style != "none")


POOLINGS = ["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken", ("max", "cls"), ("cls", "mean")]


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("pooling", POOLINGS)
def test_poolings_are_those_of_sentence_transformers(tmp_path: Path, pooling: Any, pooled: bool) -> None:
    model = sentence_transformer(tmp_path, pooling=pooling, include_prompt=pooled, **STYLES["e5"])
    require_equal(load(tmp_path / "model"), model)


PARTS: dict[str, Callable[[Any], list[Any]]] = {
    "dense": lambda kinds: [kinds.Dense(16, 8)],
    "no bias, normalised": lambda kinds: [
        kinds.Dense(16, 20, bias=False, activation_function=torch.nn.Identity()),
        kinds.Normalize(),
    ],
    "two": lambda kinds: [
        kinds.Dense(16, 20, activation_function=torch.nn.GELU()),
        kinds.Dense(20, 8, activation_function=torch.nn.ReLU()),
    ],
    "norm": lambda kinds: [
        kinds.Dense(16, 8, activation_function=torch.nn.SiLU()),
        kinds.LayerNorm(8),
        kinds.Dropout(0.5),
    ],
    "unit between": lambda kinds: [
        kinds.Normalize(),
        kinds.Dense(16, 16, activation_function=torch.nn.Sigmoid(), use_residual=True),
    ],
    "residual": lambda kinds: [kinds.Dense(16, 8, use_residual=True), kinds.Normalize()],
}


@pytest.mark.parametrize("kind", PARTS)
def test_parts_after_the_pooling_are_those_of_sentence_transformers(tmp_path: Path, kind: str) -> None:
    model = sentence_transformer(tmp_path, parts=kind, **STYLES["nomic"])
    require_equal(load(tmp_path / "model"), model)


def test_texts_are_read_in_lower_case_where_the_model_asks_for_it(tmp_path: Path) -> None:
    sentence_transformer(tmp_path, **STYLES["bge"])
    folder = tmp_path / "model"
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    write_tokenizer(Tokenizer([*SPECIALS, *WORDS], lowercase=False), folder, length=24)
    for is_asked in (False, True):
        (folder / LENGTHS).write_text(json.dumps({"max_seq_length": 16, "do_lower_case": is_asked}))
        engine = load(folder)
        require_equal(engine, library().SentenceTransformer(str(folder), device="cpu"))
        assert (engine.embed(["A FILM"]) == engine.embed(["a film"])).all() == is_asked


@pytest.mark.parametrize("form", ["huggingface", "osbert", "onnx", "int8"])
def test_a_converted_or_exported_folder_keeps_prompts_and_parts(tmp_path: Path, form: Any) -> None:
    model = sentence_transformer(tmp_path, parts="two", include_prompt=False, **STYLES["nomic"])
    target = tmp_path / "target"
    if form in ("onnx", "int8"):
        tiny_runs.write_exported(target, tmp_path / "model", int8=form == "int8")
        actual, expected = load(target).embed(TEXTS, role="query"), load(tmp_path / "model").embed(TEXTS, role="query")
        np.testing.assert_allclose(actual, expected, atol=0.1 if form == "int8" else 2e-6)
    else:
        write_model_as(model_of(open_any(tmp_path / "model")), target, form)
        require_equal(load(target), model)
        require_equal(load(target), library().SentenceTransformer(str(target), device="cpu"))


def test_shell_server_and_library_apply_a_role(tmp_path: Path) -> None:
    sentence_transformer(tmp_path, parts="dense", **STYLES["e5"])
    folder, texts = tmp_path / "model", ["a good film .", "the bad actor"]
    expected = load(folder).embed(texts, role="query")
    options = three_ways.VectorOptions(role="query")
    (tmp_path / "made").mkdir()
    command = three_ways.by_command(folder, texts, tmp_path / "made", options)
    server = three_ways.by_server(three_ways.worker_of(folder), texts, role="query")
    np.testing.assert_allclose(command, expected, atol=1e-6)
    np.testing.assert_allclose(server, expected, atol=1e-6)
    assert np.abs(expected - load(folder).embed(texts)).max() > 1e-2


def test_the_step_of_a_pipeline_applies_a_role(tmp_path: Path) -> None:
    sklearn = pytest.importorskip("osbert.sklearn")
    sentence_transformer(tmp_path, parts="dense", **STYLES["e5"])
    embedder = sklearn.TextEmbedder(tmp_path / "model", role="query")
    np.testing.assert_array_equal(embedder.fit_transform(TEXTS), load(tmp_path / "model").embed(TEXTS, role="query"))
    assert len(embedder.get_feature_names_out()) == 8


def test_two_threads_with_two_roles(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    sentence_transformer(tmp_path, **STYLES["e5"])
    engine, roles = load(tmp_path / "model"), ["query", "document"] * 8
    expected = {role: load(tmp_path / "model").embed(TEXTS, role=role) for role in set(roles)}
    with ThreadPoolExecutor(2) as pool:
        for role, vectors in zip(roles, pool.map(lambda role: engine.embed(TEXTS, role=role), roles), strict=True):
            np.testing.assert_allclose(vectors, expected[role], atol=1e-6)


def test_an_unknown_role_is_refused_with_the_roles(tmp_path: Path) -> None:
    sentence_transformer(tmp_path, **STYLES["nomic"])
    engine = load(tmp_path / "model")
    np.testing.assert_array_equal(engine.embed(TEXTS, role="clustering"), engine.embed([f"a film: {t}" for t in TEXTS]))
    with refusal("invalid-value", "'documnet'", "query", "document", "clustering"):
        engine.embed(TEXTS, role="documnet")


def test_every_window_of_a_long_text_begins_with_the_prompt(tmp_path: Path) -> None:
    sentence_transformer(tmp_path, **STYLES["e5"])
    engine = load(tmp_path / "model")
    options = EmbeddingOptions(role="query", long="window", overlap=2)
    windows = engine.embedder(options).sequences(["good film bad actor plays " * 8], 0)
    assert len(windows) > 2
    for example in windows:
        assert engine.tokenizer.tokens(example.ids)[:3] == ["[CLS]", "query", ":"] and len(example) <= 16
    [cut] = engine.embedder(EmbeddingOptions(role="query", long="head+tail")).sequences(["good " * 20 + "film"], 0)
    assert engine.tokenizer.tokens(cut.ids)[1:4] == ["query", ":", "good"] and cut.truncated == 21 - 12
    with refusal("text-too-long", "a prompt", "leaves no room"):
        (tmp_path / "model" / PROMPTS).write_text(json.dumps({"prompts": {"query": "a prompt " * 20}}))
        load(tmp_path / "model").embed(["a film"], role="query")


def test_the_names_of_a_documents_prompt() -> None:
    assert Prompts(texts={"passage": "p", "corpus": "c"}).of("document") == "p"
    assert Prompts(texts={"corpus": "c", "query": "q"}).of("document") == "c"
    assert Prompts(texts={"document": "", "passage": "p"}).of("document") == ""
    assert Prompts(texts={"passage": "p"}, default="passage").of("query") == ""


def test_prompts_without_a_role_are_named_where_none_is_applied(tmp_path: Path) -> None:
    sentence_transformer(tmp_path, **STYLES["e5"])
    engine = load(tmp_path / "model")
    assert not any("query: " in remark for remark in engine.remarks)
    assert any("query: " in remark and "without a role" in remark for remark in remarks(EmbeddingOptions(), engine))
    assert not any("without a role" in remark for remark in remarks(EmbeddingOptions(role="document"), engine))


@pytest.fixture
def vector_files(tmp_path: Path) -> dict[str | None, Path]:
    """Return a file of vectors for each role of a model."""
    sentence_transformer(tmp_path, parts="dense", **STYLES["nomic"])
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in SEARCHED))
    files = {role: tmp_path / f"{role}.npz" for role in (None, "document", "query", "clustering")}
    for role, path in files.items():
        osbert.embed(tmp_path / "model", tmp_path / "texts.txt", out=path, role=role)
    return files


SEARCHED = ["a good film .", "the bad actor plays films", "this sentence", "relevant passages"]


def test_queries_take_the_role_of_a_query(tmp_path: Path, vector_files: dict[str | None, Path]) -> None:
    engine = load(tmp_path / "model")
    for file_role, role, query_role in [
        (None, None, "query"), ("document", None, "query"), ("document", "clustering", "clustering"),
        ("query", "query", "query"), ("clustering", "clustering", "clustering"),
    ]:  # fmt: skip
        documents, query = engine.embed(SEARCHED, role=file_role), engine.embed(["the film"], role=query_role)[0]
        cosines = documents @ query / np.linalg.norm(documents, axis=1) / np.linalg.norm(query)
        [ranking] = osbert.search(vector_files[file_role], ["the film"], role=role)
        assert [near.texts[0] for near in ranking.nearest] == [SEARCHED[index] for index in np.argsort(-cosines)]
        np.testing.assert_allclose([near.cosine for near in ranking.nearest], sorted(cosines)[::-1], atol=2e-6)


def test_the_file_says_how_its_vectors_were_made(vector_files: dict[str | None, Path]) -> None:
    stored = open_vectors(vector_files["document"]).settings
    assert {"role": "document", "prompt": "search_document: ", "pooling": "mean", "length": 16}.items() <= stored[
        "vectors"
    ].items()
    assert len(stored["weights"]) == len(stored["vectors"]["parts"]) == 64 and not stored["vectors"]["normalize"]


def test_vectors_of_another_role_prompt_part_or_length_are_refused(
    tmp_path: Path, vector_files: dict[str | None, Path]
) -> None:
    with refusal("options-exclude-each-other", "clustering", "--role document"):
        osbert.search(vector_files["clustering"], ["the film"])
    with refusal("options-exclude-each-other", "query", "--role document"):
        osbert.search(vector_files["query"], ["the film"])
    with refusal("invalid-value", "'topic'", "clustering"):
        osbert.search(vector_files["document"], ["the film"], role="topic")
    with refusal("options-exclude-each-other"):
        osbert.search(vector_files["document"], np.ones((1, 8), np.float32), role="query")
    model = tmp_path / "model"
    dense = read_file(model / "2_Dense" / "model.safetensors")
    write_tensors({name: tensor + 1 for name, tensor in dense.items()}, model / "2_Dense" / "model.safetensors")
    with refusal("mismatched-base", "Dense"):
        osbert.search(vector_files["document"], ["the film"])
    write_tensors(dense, model / "2_Dense" / "model.safetensors")
    (model / PROMPTS).write_text(json.dumps({"prompts": {"document": "text: ", "query": "query: "}}))
    with refusal("mismatched-base", "search_document: "):
        osbert.search(vector_files["document"], ["the film"])


def test_files_of_earlier_versions_are_searched_as_they_were_made(tmp_path: Path) -> None:
    sentence_transformer(tmp_path, **STYLES["e5"])
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in SEARCHED))
    path = tmp_path / "vectors.npz"
    osbert.embed(tmp_path / "model", tmp_path / "texts.txt", out=path)
    arrays = dict(np.load(path))
    settings = json.loads(arrays["settings"].item())
    for name in ("role", "prompt", "prompt_pooled", "lower_case", "parts"):
        del settings["vectors"][name]
    np.savez(path, **arrays | {"settings": np.array(json.dumps(settings))})
    [ranking] = osbert.search(path, ["a good film ."])
    assert ranking.nearest[0].cosine == pytest.approx(1, abs=1e-6)
    [ranking] = osbert.search(path, ["a good film ."], role="query")
    assert ranking.nearest[0].cosine < 0.99999
