"""Engine: vectors equal to transformers' on a real checkpoint, in the order given; what it cannot do, said plainly."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import osbert
from osbert.errors import UserError
from osbert.inference.engine import Engine, load
from osbert.inference.vectors.settings import EmbeddingOptions
from osbert.interop.hub import minilm
from osbert.interop.tokenizers import read_tokenizer, write_tokenizer
from osbert.text.tokenizer import Tokenizer
from refusals import refusal

TEXTS = [
    "A charming and often affecting journey.",
    "Bad.",
    "Das Café öffnet um 9 Uhr; 咖啡馆九点开门。",
    "word " * 700,
    "",
    "An engine that embeds texts in the order in which they were given, whatever their lengths are.",
]


RAW: dict[str, Any] = {"normalize": False, "length": 512}
"""The model's own would be length 1, and 256 tokens."""


@pytest.fixture(scope="module")
def folder() -> Path:
    return minilm()


@pytest.fixture(scope="module")
def engine(folder: Path) -> Engine:
    return load(folder)


@pytest.fixture(scope="module")
def reference(folder: Path) -> list[dict[str, np.ndarray]]:
    """Return transformers' states of each text by itself: layers (L + 1, n, D) and the pooler's output (D,)."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    found = []
    with torch.no_grad():
        for text in TEXTS:
            inputs = tokenizer(text, truncation=True, max_length=512, return_tensors="pt")
            states = model(**inputs, output_hidden_states=True)
            layers = torch.stack(states.hidden_states)[:, 0].numpy()
            found.append({"layers": layers, "pooler": states.pooler_output[0].numpy()})
    return found


def test_pooled_vectors_are_those_of_transformers(engine: Engine, reference: list[dict[str, np.ndarray]]) -> None:
    last = [states["layers"][-1] for states in reference]
    for pooling, expected in (
        ("cls", [state[0] for state in last]),
        ("mean", [state.mean(axis=0) for state in last]),
        ("max", [state.max(axis=0) for state in last]),
        ("pooler", [states["pooler"] for states in reference]),
    ):
        found = engine.embed(TEXTS, pooling=pooling, tokens=600, **RAW)
        assert found.shape == (6, 384) and found.dtype == np.float32
        np.testing.assert_allclose(found, np.stack(expected), atol=2e-5)


def test_every_layer_and_token(engine: Engine, reference: list[dict[str, np.ndarray]]) -> None:
    for found, states in zip(engine.embed(TEXTS[:3], pooling="tokens", layers=range(7)), reference):
        np.testing.assert_allclose(found, states["layers"].swapaxes(0, 1), atol=2e-5)
    two = engine.embed(TEXTS[:2], pooling="cls", layers=[-1, 0], **RAW)
    assert two.shape == (2, 2, 384)
    np.testing.assert_allclose(two[1, 1], reference[1]["layers"][0, 0], atol=2e-5)
    assert (engine.embed(TEXTS[:2], pooling="cls", layers=6) == engine.embed(TEXTS[:2], pooling="cls")).all()


def test_pairs_and_nothing(engine: Engine) -> None:
    pair, other = engine.embed([("A text.", "Its pair."), ("Its pair.", "A text.")], pooling="cls")
    assert np.abs(pair - other).max() > 1e-3
    assert engine.embed([]).shape == (0, 384)
    (sequence,) = engine.embedder(EmbeddingOptions(length=512)).sequences(TEXTS[3:4], 0)
    assert sequence.truncated == 190


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_is_used_where_there_is_one(folder: Path) -> None:
    engine = load(folder)
    assert next(engine.learner.parameters()).device.type == "cuda"
    np.testing.assert_allclose(engine.embed(TEXTS), load(folder, device="cpu").embed(TEXTS), atol=1e-3)


def test_what_cannot_be_is_said_plainly(engine: Engine, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="a list of texts"):
        engine.embed("one text")
    with pytest.raises(TypeError, match="a list of texts"):
        engine.predict("one text")
    # What they hold besides is no text, and a set has no order.
    names = ({"text": ["good"]}, SimpleNamespace(columns=["text"]), b"good", {"good"})
    for texts in names:
        for call in (engine.embed, engine.predict):
            with pytest.raises(TypeError, match="a list of texts"):
                call(texts)
    with refusal("invalid-value", "texts[1]", "texts[2]", "texts[3]", "texts[4]", "texts[5]"):
        engine.embed(["good", None, float("nan"), {"text": "good"}, ("good", None), ()])
    with refusal("not-a-model"):
        engine.predict(["one text"])
    with refusal("invalid-value", "7", "0"):
        engine.embed(["one text"], layers=7)
    with refusal("options-exclude-each-other"):
        engine.embed(["one text"], layers=2, pooling="pooler")
    with refusal("wrong-number-of-texts", "3"):
        engine.embed([("a", "b", "c")])
    with refusal("unavailable-device", "abacus"):
        load(folder, device="abacus")
    with refusal("not-a-model", "config.json"):
        osbert.load(tmp_path)
    (tmp_path / "bert_model.ckpt.index").touch()
    with refusal("not-a-model", tmp_path):
        osbert.load(tmp_path)
    shutil.copy(folder / "config.json", tmp_path)
    with pytest.raises(UserError):
        osbert.load(tmp_path)


@pytest.mark.parametrize(("pieces", "said"), [(13, True), (14, False), (16, False)])
def test_a_vocabulary_smaller_than_the_table_is_said(
    runs: dict[str, Path], tmp_path: Path, pieces: int, said: bool
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(runs["encoder"], folder)  # its table has 16 rows, a round number
    write_tokenizer(Tokenizer(read_tokenizer(folder).vocabulary[:pieces]), folder)
    remark = "the last 3 rows belong to no piece: the vocabulary has 13. Is it the one that the model was trained with?"
    assert load(folder).remarks == ((f"embeddings.word_embeddings.weight (16, 16): {remark}",) if said else ())


def test_a_model_leaves_the_random_numbers_of_the_program(runs: dict[str, Path]) -> None:
    before = torch.get_rng_state()
    for name in ("classifier", "pretrained"):
        load(runs[name]).embed(["a film"])
    assert torch.equal(torch.get_rng_state(), before)


def test_columns_of_arrow_are_lists_of_texts(runs: dict[str, Path]) -> None:
    arrow = pytest.importorskip("pyarrow")
    model, texts = load(runs["classifier"]), ["a good film", "a bad film"]
    table = arrow.table({"text": texts})
    assert model.predict(table["text"]) == model.predict(arrow.array(texts)) == model.predict(texts)
    with refusal("invalid-value", "texts[1]"):
        model.predict(arrow.array(["a", None]))


def test_names_of_classes_may_be_an_array(runs: dict[str, Path]) -> None:
    model = load(runs["pretrained"])
    names: Any = np.array(["good", "bad"])
    assert model.predict(["the film"], labels=names) == model.predict(["the film"], labels=["good", "bad"])


def test_a_model_is_named_in_notebooks(runs: dict[str, Path]) -> None:
    assert repr(load(runs["classifier"])) == f"Engine('{runs['classifier']}', task='classify')"
    assert repr(load(runs["pretrained"])).endswith(", task=None)")
