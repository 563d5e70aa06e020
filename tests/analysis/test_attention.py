"""The attention of one text: against transformers and plain loops, by word, and as few bytes."""

from __future__ import annotations

import base64
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch

from osbert.analysis.attention_packing import SCALES, WeightScale, pack_attention
from osbert.inference.engine import Engine, load
from refusals import refusal
from tiny_runs import WORDS, write_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give an encoder of two layers, whose vectors are large enough for weights that differ."""
    return write_run(tmp_path_factory.mktemp("attention") / "encoder", None, layers=2, deviation=0.5)


@pytest.fixture(scope="module")
def engine(folder: Path) -> Engine:
    return load(folder, device="cpu")


def test_the_weights_and_norms_are_those_of_transformers(folder: Path, engine: Engine) -> None:
    from transformers import BertModel

    theirs = BertModel.from_pretrained(folder, attn_implementation="eager").eval()
    found = engine.attention("the good films", "bad play.")
    example = found.placed.example
    ids, segments = (torch.from_numpy(np.asarray(row, np.int64))[None] for row in (example.ids, example.segments))
    with torch.no_grad():
        out = theirs(ids, token_type_ids=segments, output_attentions=True, output_hidden_states=True)
    np.testing.assert_allclose(found.weights, torch.cat(out.attentions).numpy(), atol=1e-6)
    for layer, block in enumerate(theirs.encoder.layer):
        values = block.attention.self.value(out.hidden_states[layer])[0].detach().numpy()  # (T, D)
        matrix = block.attention.output.dense.weight.detach().numpy()
        for head in range(2):
            part = slice(8 * head, 8 * head + 8)
            norms = np.linalg.norm(values[:, part] @ matrix[:, part].T, axis=1)
            np.testing.assert_allclose(found.norms[layer, head], norms, rtol=1e-4)
            scores = found.queries[layer, head] @ found.keys[layer, head].T / np.sqrt(8)
            plain = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
            np.testing.assert_allclose(found.weights[layer, head], plain, atol=1e-5)
    np.testing.assert_allclose(found.weight_by_norms(), found.weights * found.norms[:, :, None, :])


def test_every_token_has_its_word_and_its_characters(engine: Engine) -> None:
    found = engine.attention("The good  films", "actor.")
    assert found.pieces == ("[CLS]", "the", "good", "film", "##s", "[SEP]", "actor", ".", "[SEP]")
    assert found.words == ("[CLS]", "The", "good", "films", "[SEP]", "actor", ".", "[SEP]")
    assert found.placed.word_of.tolist() == [0, 1, 2, 3, 3, 4, 5, 6, 7]
    assert found.placed.text_of.tolist() == [-1, 0, 0, 0, 0, -1, 1, 1, -1]
    assert found.offsets.tolist() == [[0, 0], [0, 3], [4, 8], [10, 14], [14, 15], [0, 0], [0, 5], [5, 6], [0, 0]]


def test_by_word_is_the_sum_over_keys_and_the_mean_over_queries(engine: Engine) -> None:
    found = engine.attention("good films play")
    words, of = found.by_word(found.weights), found.placed.word_of
    for query in range(len(found.words)):
        for key in range(len(found.words)):
            plain = found.weights[..., of == query, :][..., of == key].sum(axis=-1).mean(axis=-1)
            np.testing.assert_allclose(words[..., query, key], plain, rtol=1e-5)
    np.testing.assert_allclose(words.sum(axis=-1), 1, rtol=1e-5)


def test_rollout_is_the_product_of_the_layers(engine: Engine) -> None:
    found = engine.attention("good film")
    first, second = ((found.weights[layer].mean(axis=0) + np.eye(4)) / 2 for layer in range(2))
    plain = [[sum(second[q, i] * first[i, k] for i in range(4)) for k in range(4)] for q in range(4)]
    np.testing.assert_allclose(found.rollout()[0], first, rtol=1e-5)
    np.testing.assert_allclose(found.rollout()[1], plain, rtol=1e-5)


@pytest.mark.parametrize("one", SCALES)
def test_a_level_is_between_its_edges(one: tuple[int, int]) -> None:
    scale = WeightScale(*one)
    weights = np.concatenate([np.linspace(0, 1, 5001), np.logspace(-7, 0, 5000)]).astype(np.float32)
    edges, levels = np.array(scale.edges()), scale.levels(weights)
    assert np.all(np.diff(edges) > 0) and levels.max() == one[1] - 1
    assert np.all(edges[levels] - 1e-6 <= weights) and np.all(weights <= edges[levels.astype(int) + 1] + 1e-6)
    assert np.diff(edges).max() < 0.0062 * 256 / one[1]


def test_noise_fits_into_the_page_too() -> None:
    """A quarter of 12 layers of 12 heads over 512 tokens, in a quarter of the room; nothing deflates worse."""
    rng = np.random.default_rng(0)
    maps = rng.standard_exponential((3, 13, 512, 512), dtype=np.float32)
    maps /= maps.sum(axis=-1, keepdims=True)
    vectors = np.zeros((3, 12, 512, 8), np.float32)
    found = pack_attention(maps, np.ones((3, 12, 512), np.float32), (vectors, vectors), megabytes=2.5)
    size = sum(map(len, found["maps"])) + sum(len(one["data"]) for one in found["vectors"])
    assert size < 2.5e6
    raw = zlib.decompress(base64.b64decode(found["maps"][1]), wbits=-15)
    levels = np.frombuffer(raw, np.uint8).reshape(13, 512, 512)
    edges = np.array(found["edges"])
    assert np.all(edges[levels] - 1e-6 <= maps[1]) and np.all(maps[1] <= edges[levels.astype(int) + 1] + 1e-6)


def test_what_has_no_attention_is_refused(tmp_path: Path, engine: Engine) -> None:
    with refusal("empty-text"):
        engine.attention("a film", " ")
    with refusal("unknown-output-format", "map.json"):
        engine.attention("a film").save(tmp_path / "map.json")
    with refusal("invalid-value", "0"):
        engine.attention("a film").save(tmp_path / "map.html", megabytes=0)
    with refusal("unsupported-model"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "backend", object())  # as of an export, which onnxruntime computes
        engine.attention("a film")
    with refusal("unsupported-model"), pytest.MonkeyPatch.context() as patch:
        patch.setattr("osbert.models.families.transformer.Transformer.attends", False)
        engine.attention("a film")
    alone = load(write_run(tmp_path / "alone", None, segments=1), device="cpu")
    with refusal("unsupported-model"):
        alone.attention("a film", "a play")


def test_what_does_not_fit_and_what_is_out_of_sight_is_said(tmp_path: Path, engine: Engine) -> None:
    long = engine.attention("film " * 30)
    assert len(long.pieces) == 24 and any("8 pieces" in note for note in long.notes)
    pair = engine.attention("film " * 30, "the play")
    assert pair.placed.text_of.tolist() == [-1, *[0] * 19, -1, 1, 1, -1]
    causal = load(write_run(tmp_path / "causal", None, direction="left_to_right", pooling="none"), device="cpu")
    found = causal.attention("the good film")
    assert np.all(np.triu(found.weights, 1) == 0) and any("before it" in note for note in found.notes)


def test_a_mask_is_one_piece_where_the_model_fills_masks(tmp_path: Path) -> None:
    filler = load(write_run(tmp_path / "filler", None, masks=True, words=WORDS), device="cpu")
    assert filler.attention("a [MASK] film").pieces == ("[CLS]", "a", "[MASK]", "film", "[SEP]")
