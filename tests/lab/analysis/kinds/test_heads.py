"""What heads look at: made-up attention with known answers, and a plain computation on transformers' own attention."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from osbert.inference.engine import load
from osbert.interop.hub import minilm
from osbert.models.architecture import Architecture
from osbert.models.contract import Sizes
from osbert_lab.analysis.figures import Figure
from osbert_lab.analysis.kinds.contract import TextPass, TokenMarks
from osbert_lab.analysis.kinds.heads import ALL, Heads, statistics, uniform
from osbert_lab.analysis.passes import PassedModel
from osbert_lab.analysis.sample import punctuation, text_sample

SIZES = Architecture(layers=1, heads=1, width=16, vocabulary=20, length=24)
CAUSAL = Architecture(layers=1, heads=1, width=16, vocabulary=20, length=24, direction="left_to_right")


def marks(length: int, *signs: int) -> TokenMarks:
    index = np.arange(length)
    return TokenMarks(first=index == 0, separator=index == length - 1, punctuation=np.isin(index, signs))


def looking(keys: list[int]) -> Tensor:
    """Return the attention (1, T, T) of a head whose query q looks at keys[q] alone."""
    return torch.eye(len(keys))[torch.tensor(keys)].unsqueeze(0)


def figures(weights: Tensor, *signs: int) -> dict[str, float]:
    return dict(zip(ALL, statistics(weights, marks(weights.shape[-1], *signs))[:, 0].tolist(), strict=True))


def test_a_head_that_looks_at_the_previous_token() -> None:
    found = figures(looking([0, 0, 1, 2, 3]))
    assert found["previous"] == 1 and found["entropy"] == found["next"] == 0
    assert found["itself"] == pytest.approx(1 / 5) and found["distance"] == pytest.approx(4 / 5)
    assert found["first"] == pytest.approx(2 / 5)


def test_a_head_that_looks_at_the_next_token_and_one_that_looks_at_itself() -> None:
    assert figures(looking([1, 2, 3, 3]))["next"] == 1
    itself = figures(looking([0, 1, 2, 3]))
    assert itself["itself"] == 1 and itself["distance"] == 0


def test_heads_that_look_at_special_pieces_and_punctuation() -> None:
    assert figures(looking([0] * 4))["first"] == 1
    assert figures(looking([3] * 4))["separator"] == 1
    assert figures(looking([2] * 4), 2)["punctuation"] == 1


@pytest.mark.parametrize("length", [1, 2, 7])
def test_even_attention_has_the_entropy_ln_n(length: int) -> None:
    found = figures(uniform(length, causal=False))
    assert found["entropy"] == pytest.approx(math.log(length), abs=1e-6)
    assert found["first_entropy"] == pytest.approx(math.log(length), abs=1e-6)


def test_a_left_to_right_model_is_compared_with_what_it_can_see() -> None:
    analysis = Heads(CAUSAL, seed=0)
    for number in range(2):
        analysis.add(TextPass(number=number, marks=marks(3), states=(), attention=[uniform(3, causal=True)]))
    for one in analysis.figures():
        assert one.value == pytest.approx(one.baselines["uniform"])


def test_a_local_layer_is_compared_with_its_window_and_a_global_one_with_all() -> None:
    sizes = SIZES.replace(layers=2, window=1, global_every=2)
    analysis = Heads(sizes, seed=0)
    layers = [uniform(9, causal=False), uniform(9, causal=False, window=1)]
    for number in range(2):
        analysis.add(TextPass(number=number, marks=marks(9), states=(), attention=layers))
    for one in analysis.figures():
        assert one.value == pytest.approx(one.baselines["uniform"]), one
    entropies = {one.where["layer"]: one.value for one in analysis.figures() if one.name == "layer_entropy"}
    assert entropies[2] == pytest.approx((7 * math.log(3) + 2 * math.log(2)) / 9) and entropies[1] == pytest.approx(
        math.log(9)
    )
    assert "narrowest in layer 2" in Heads.section(analysis.figures()).html()


def analysed(texts: list[tuple[Tensor, TokenMarks]], sizes: Sizes = SIZES) -> list[Figure]:
    analysis = Heads(sizes, seed=3)
    for number, (weights, which) in enumerate(texts):
        analysis.add(TextPass(number=number, marks=which, states=(), attention=[weights]))
    return analysis.figures()


def test_each_text_counts_once_and_the_interval_is_that_of_their_mean() -> None:
    texts = [(looking([0, 0, 1, 2, 3, 4, 5, 6]), marks(8)), (looking([0, 1]), marks(2)), (looking([0, 0]), marks(2))]
    [head] = [one for one in analysed(texts) if one.name == "previous"]
    assert head.value == pytest.approx(2 / 3) and head.n == 3 and head.seed == 3
    assert head.where == {"layer": 1, "head": 1}
    error = np.std([1, 0, 1], ddof=1) / 3**0.5
    assert head.interval == pytest.approx((2 / 3 - 1.96 * error, 2 / 3 + 1.96 * error), abs=1e-4)


def test_what_no_text_has_is_no_figure() -> None:
    nowhere = TokenMarks(first=np.zeros(1, bool), separator=np.zeros(1, bool), punctuation=np.zeros(1, bool))
    names = {one.name for one in analysed([(looking([0]), nowhere)] * 2)}
    assert "itself" in names and "previous" not in names and "first_entropy" not in names


def test_the_statistics_are_those_of_others_attention(runs: dict[str, Path]) -> None:
    same_as_theirs(runs["encoder"], ["a good film .", "the plays . a poor actor , the bad film .", "a film"])


def test_the_statistics_of_a_published_model_are_those_of_others_attention(data: Path) -> None:
    lines = (data / "text" / "wikitext2-valid.txt").read_text("utf-8").splitlines()
    same_as_theirs(minilm(), [line for line in lines if len(line) > 400][:4])


def same_as_theirs(folder: Path, texts: list[str]) -> None:
    """Compare each head's figures with a plain computation on the attention that transformers returns."""
    transformers = pytest.importorskip("transformers")
    engine = load(folder, device="cpu")
    packer = replace(engine.packer, length=min(engine.packer.length, 40))
    sample = text_sample(texts, packer, count=9, shortest=1, rng=np.random.default_rng(0))
    signs = punctuation(engine.tokenizer)
    model = PassedModel(backbone=engine.learner.backbone, form=engine.tokenizer.form, signs=signs, seed=0)
    analysis = Heads(engine.backend.architecture, seed=0)
    for texts_passed in model.passes(sample):
        for one in texts_passed:
            analysis.add(one)
    theirs = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    rows = []
    for example in sample.examples:
        with torch.no_grad():
            given = torch.tensor(example.ids.astype(np.int64))[None]
            layers = theirs(input_ids=given, output_attentions=True).attentions
        ids = example.ids.tolist()
        rows.append([[plain(head, ids, signs) for head in layer[0].double().numpy()] for layer in layers])
    expected = np.mean(rows, axis=0)  # (L, H, S)
    found = {(one.where["layer"], one.where.get("head"), one.name): one.value for one in analysis.figures()}
    for layer, head, number in np.ndindex(*expected.shape):
        value = found[layer + 1, head + 1, ALL[number]]
        assert value == pytest.approx(expected[layer, head, number], abs=2e-5), (layer, head, ALL[number])


def plain(head: np.ndarray, ids: list[int], signs: np.ndarray) -> list[float]:
    """Return the statistics of one head (T, T), spelt out."""
    n = len(head)
    entropies = [-sum(a * math.log(a) for a in row if a > 0) for row in head]
    return [
        sum(head[q, q - 1] for q in range(1, n)) / (n - 1),
        sum(head[q, q + 1] for q in range(n - 1)) / (n - 1),
        sum(head[q, q] for q in range(n)) / n,
        sum(head[q, 0] for q in range(n)) / n,
        sum(head[q, n - 1] for q in range(n)) / n,
        sum(head[q, k] for q in range(n) for k in range(1, n - 1) if signs[ids[k]]) / n,
        sum(head[q, k] * abs(q - k) for q in range(n) for k in range(n)) / n,
        sum(entropies) / n,
        entropies[0],
    ]
