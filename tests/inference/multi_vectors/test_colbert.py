"""Many vectors a text: equal to sentence-transformers' MultiVectorEncoder, for its folders, PyLate's and Stanford's."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import tiny_runs
from osbert.data.multi_vectors import maxsim
from osbert.inference.embedder import remarks
from osbert.inference.engine import Engine, load
from osbert.inference.vectors.settings import EmbeddingOptions
from osbert.interop.conversion import model_of, open_any, write_model_as
from osbert.interop.sentence_files import LENGTHS, MODULES, PROMPTS, read_sentence_model
from osbert.runs.export import write as write_export
from refusals import refusal

WORDS = ("query", "passage", ":", "the", "a", "good", "bad", "film", "actor", "plays", "##s", ".", ",")
PREFIXES = ("[unused0]", "[unused1]")
QUERIES = ["a good film", "bad", "the actor plays films . a good film the bad actor plays the good"]
TEXTS = ["a good film .", "the bad actor plays films , bad", "", "film " * 40, "unknown words"]
WIDTH = 8


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a random model."""
    folder = tmp_path_factory.mktemp("pretrained") / "model"
    return tiny_runs.write_run(folder, None, masks=True, words=(*WORDS, *PREFIXES), length=48)


def write_encoder(folder: Path, pretrained: Path, *, mask: dict[str, Any], **settings: Any) -> Any:
    """Write a random model of sentence-transformers, and return it as it opens it."""
    library = pytest.importorskip("sentence_transformers")
    modules = pytest.importorskip("sentence_transformers.base.modules")
    multi = pytest.importorskip("sentence_transformers.multi_vector_encoder.modules")
    name = "token_embeddings"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        dense = modules.Dense(16, WIDTH, bias=False, activation_function=torch.nn.Identity(), module_input_name=name)
    prompts = settings.pop("prompts", {"query": "query : ", "document": "passage : "})
    parts = [
        modules.Transformer(str(pretrained), **settings),
        dense,
        multi.MultiVectorMask(**mask),
        modules.Normalize(module_input_name=name),
    ]
    model = library.MultiVectorEncoder(modules=parts, device="cpu", prompts=prompts)
    model.save(str(folder), create_model_card=False)
    return library.MultiVectorEncoder(str(folder), device="cpu")


def open_theirs(folder: Path) -> Any:
    """Return a folder as sentence-transformers opens it."""
    return pytest.importorskip("sentence_transformers").MultiVectorEncoder(str(folder), device="cpu")


def require_equal(engine: Engine, model: Any, queries: Sequence[str] = QUERIES) -> None:
    expected = [model.encode_query([*queries]), model.encode_document(TEXTS)]
    actual = [engine.embed([*queries], role="query"), engine.embed(TEXTS, role="document")]
    for ours, theirs in zip(actual, expected, strict=True):
        assert [row.shape for row in ours] == [tuple(row.shape) for row in theirs]
        for row, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(row, other.numpy(), atol=2e-6)
    scores = maxsim(*actual, mean=engine.source.sentences.similarity == "meanmaxsim")  # type: ignore[union-attr]
    np.testing.assert_allclose(scores, model.similarity(*expected).numpy(), atol=1e-5)


EXPANSION = {"strategy": "fixed", "length": 12}
CASES: dict[str, dict[str, Any]] = {
    "plain": {"mask": {}},
    "skipped": {"mask": {"skiplist_words": [".", ",", "?"]}, "document_length": 20, "query_length": 9},
    "skipped in both": {"mask": {"skiplist_words": ["a", "film"], "skiplist_tasks": ["query", "document"]}},
    "filled up": {"mask": {"skiplist_words": ["."]}, "document_length": 20, "query_expansion": EXPANSION},
    "attended": {"mask": {}, "query_expansion": EXPANSION | {"attend": True}},
    "filled up at least": {"mask": {}, "query_expansion": EXPANSION | {"strategy": "min"}},
    "filled up at least, cut": {
        "mask": {}, "query_expansion": EXPANSION | {"strategy": "min", "token": "the"}, "query_length": 14,
    },
    "no prompts": {"mask": {}, "query_expansion": EXPANSION, "prompts": {}},
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_vectors_are_those_of_sentence_transformers_and_what_is_written_opens_there(
    tmp_path: Path, pretrained: Path, case: dict[str, Any]
) -> None:
    model = write_encoder(tmp_path / "theirs", pretrained, **case)
    engine = load(tmp_path / "theirs")
    require_equal(engine, model)
    for form in ("osbert", "huggingface"):
        write_model_as(model_of(open_any(tmp_path / "theirs")), tmp_path / form, form)
        assert read_sentence_model(tmp_path / form) == engine.source.sentences
        require_equal(engine, open_theirs(tmp_path / form))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "more", [{}, {"attend_to_expansion_tokens": True, "skiplist_words": ["a"]}, {"do_query_expansion": False}]
)
def test_folders_of_pylate_are_opened(tmp_path: Path, pretrained: Path, more: dict[str, Any]) -> None:
    write_encoder(tmp_path / "pylate", pretrained, mask={})
    modules = json.loads((tmp_path / "pylate" / MODULES).read_text())[:2]
    modules[0]["type"], modules[1]["type"] = "sentence_transformers.models.Transformer", "pylate.models.Dense.Dense"
    (tmp_path / "pylate" / MODULES).write_text(json.dumps(modules))
    settings = {"query_prefix": "[unused0]", "document_prefix": "[unused1]", "query_length": 12, "document_length": 20}
    settings |= {"model_type": "ColBERT", "similarity_fn_name": "MaxSim", "prompts": {"query": "", "document": "a "}}
    (tmp_path / "pylate" / PROMPTS).write_text(json.dumps(settings | more))
    (tmp_path / "pylate" / LENGTHS).write_text(json.dumps({"max_seq_length": 11, "do_lower_case": False}))
    dense = tmp_path / "pylate" / "1_Dense" / "config.json"
    content = {name: value for name, value in json.loads(dense.read_text()).items() if not name.startswith("module_")}
    dense.write_text(json.dumps(content | {"use_residual": False}))
    engine = load(tmp_path / "pylate")
    require_equal(engine, open_theirs(tmp_path / "pylate"))
    write_model_as(model_of(open_any(tmp_path / "pylate")), tmp_path / "written", "huggingface")
    require_equal(load(tmp_path / "written"), open_theirs(tmp_path / "written"))


@pytest.mark.filterwarnings("ignore")
def test_folders_of_stanford_are_opened(tmp_path: Path, pretrained: Path) -> None:
    folder = tmp_path / "stanford"
    write_model_as(model_of(open_any(pretrained)), folder, "huggingface")
    config = json.loads((folder / "config.json").read_text()) | {"architectures": ["HF_ColBERT"]}
    (folder / "config.json").write_text(json.dumps(config))
    projection = torch.randn(WIDTH, 16, generator=torch.Generator().manual_seed(3))
    weights = load_file(folder / "model.safetensors")
    weights = {name: tensor for name, tensor in weights.items() if name.startswith("bert.")}
    save_file(weights | {"linear.weight": projection}, folder / "model.safetensors", {"format": "pt"})
    facts = {"query_maxlen": 12, "doc_maxlen": 20, "mask_punctuation": True, "attend_to_mask_tokens": False}
    (folder / "artifact.metadata").write_text(
        json.dumps(facts | {"query_token_id": "[unused0]", "doc_token_id": "[unused1]"})
    )
    require_equal(load(folder), open_theirs(folder))


@pytest.mark.filterwarnings("ignore")
def test_texts_without_a_role_are_documents(tmp_path: Path, pretrained: Path) -> None:
    write_encoder(tmp_path / "theirs", pretrained, mask={"skiplist_words": ["."]}, query_expansion=EXPANSION)
    engine = load(tmp_path / "theirs")
    for ours, theirs in zip(engine.embed(TEXTS), engine.embed(iter(TEXTS), role="document"), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert any("multi" in remark for remark in remarks(EmbeddingOptions(), engine))
    assert engine.embed([]).shape == (0,)
    assert engine.embed(TEXTS, pooling="mean").shape == (len(TEXTS), 16)


@pytest.mark.filterwarnings("ignore")
def test_vectors_do_not_depend_on_batches_and_those_of_all_windows_count(tmp_path: Path, pretrained: Path) -> None:
    write_encoder(tmp_path / "theirs", pretrained, mask={"skiplist_words": ["."]}, query_expansion=EXPANSION)
    engine, text = load(tmp_path / "theirs"), "the good film . a bad actor plays " * 5
    for role in ("query", "document"):
        whole, single = engine.embed(TEXTS[:2], role=role), engine.embed(TEXTS[:2], role=role, tokens=1)
        for row, other in zip(whole, single, strict=True):
            np.testing.assert_allclose(row, other, atol=1e-6)
    options = EmbeddingOptions(role="document", long="window", length=12, overlap=0)
    embedder = engine.embedder(options)
    windows = embedder.sequences((text,), 0)
    assert len(windows) > 2
    (vectors,) = embedder.vectors([windows])
    parts = embedder.vectors([[window] for window in windows])
    np.testing.assert_allclose(vectors, np.concatenate([*parts]), atol=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_what_is_not_supported_is_refused_by_name(tmp_path: Path, pretrained: Path) -> None:
    write_encoder(tmp_path / "theirs", pretrained, mask={"skiplist_words": ["."]}, query_expansion=EXPANSION)
    modules = json.loads((tmp_path / "theirs" / MODULES).read_text())
    pooled = [
        *modules[:3],
        {**modules[2], "type": "multi_vector_encoder.modules.token_pooling.HierarchicalTokenPooling"},
    ]
    pooled[3]["type"] = f"sentence_transformers.{pooled[3]['type']}"
    mask = "2_MultiVectorMask/config.json"
    changes: list[tuple[str, Any, str, str]] = [
        (MODULES, pooled, "unsupported-model", "HierarchicalTokenPooling"),
        (mask, {"keep_only_token_ids": [5]}, "unsupported-model", "keep_only_token_ids"),
        (mask, {"skiplist_words": "."}, "wrong-format", "skiplist_words"),
        (LENGTHS, {"query_expansion": {"strategy": "most"}}, "unsupported-model", "most"),
        (LENGTHS, {"document_length": "long"}, "wrong-format", "document_length"),
        (LENGTHS, {"query_expansion": EXPANSION | {"token": "[FILL]"}}, "mismatched-tokenizer", "[FILL]"),
        (PROMPTS, {"similarity_fn_name": "xtr", "model_type": "MultiVectorEncoder"}, "unsupported-model", "xtr"),
        ("1_Dense/config.json", {"module_input_name": "sentence_embedding"}, "unsupported-model", "sentence_embedding"),
    ]
    for number, (name, content, code, named) in enumerate(changes):
        folder = tmp_path / str(number)
        shutil.copytree(tmp_path / "theirs", folder)
        (folder / name).write_text(json.dumps(content))
        with refusal(code, named):
            load(folder).embed(TEXTS)
        assert load(folder).embed(TEXTS, pooling="mean").shape == (len(TEXTS), 16)
    engine = load(tmp_path / "theirs")
    for option in ({"layers": 0}, {"dimensions": 2}):
        with refusal("invalid-value", *option):
            engine.embed(TEXTS, **option)  # type: ignore[arg-type]
    with refusal("unsupported-model", "colbert"):
        load(pretrained).embed(TEXTS, pooling="colbert")
    with refusal("unsupported-model"):
        engine.predict(["a film"], labels=["good", "bad"])
    with refusal("not-exportable"):
        write_export(engine, tmp_path / "theirs", tmp_path / "onnx", int8=False)


@pytest.mark.filterwarnings("ignore")
def test_a_text_of_skipped_tokens_alone_is_an_error(tmp_path: Path, pretrained: Path) -> None:
    skipped = ["[CLS]", "[SEP]", "."]
    model = write_encoder(tmp_path / "theirs", pretrained, mask={"skiplist_words": skipped}, prompts={})
    assert len(model.encode_document(["."])[0]) == 0
    with refusal("empty-text", "..."):
        load(tmp_path / "theirs").embed(["a film", "..."], role="document")
