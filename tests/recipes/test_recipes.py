"""Every packaged recipe is read strictly, and what it resolves to is stored as text, so that no setting drifts unseen.

After a wanted change: OSBERT_STORE=1 pytest tests/recipes, and look at the difference.
"""

from __future__ import annotations

import ast
import dataclasses
import os
from pathlib import Path

import pytest

from osbert import recipe
from osbert.interop.huggingface.names import ours_alone
from osbert.runs.pretrain.settings import read_settings, schema
from osbert.training.optimizer import OptimizerSettings

STORED = Path(__file__).parent
SOURCE = Path(recipe.__file__).parent
PRETRAINING = sorted(path.stem for path in SOURCE.glob("recipes/*.toml") if "objectives" in recipe.read(path.stem))


@pytest.mark.parametrize("name", PRETRAINING)
def test_resolved_settings_are_as_stored(name) -> None:
    resolved = recipe.dump(recipe.as_table(read_settings(name)))
    path = STORED / f"{name}.txt"
    if os.environ.get("OSBERT_STORE"):
        path.write_text(resolved, encoding="utf-8")
    assert resolved == path.read_text(encoding="utf-8")


def test_nothing_is_stored_of_recipes_that_are_gone() -> None:
    assert sorted(path.stem for path in STORED.glob("*.txt")) == PRETRAINING


SIZES = {
    "bert-base": (12, 768, 12),
    "bert-large": (24, 1024, 16),
    "bert-medium": (8, 512, 8),
    "bert-small": (4, 512, 8),
    "bert-mini": (4, 256, 4),
    "bert-tiny": (2, 128, 2),
}


@pytest.mark.parametrize("name", SIZES)
def test_published_recipes_are_the_published_ones(name) -> None:
    """BERT, sections 3 and A.2: sizes, objectives, and how it was trained."""
    settings = read_settings(name)
    assert (settings.model.layers, settings.model.width, settings.model.heads) == SIZES[name]
    assert settings.objectives == ("mlm", "nsp")
    assert (settings.model.dropout, settings.model.activation, settings.model.positions) == (0.1, "gelu", "learned")
    assert (settings.model.length, settings.model.deviation, settings.model.epsilon) == (512, 0.02, 1e-12)
    assert (settings.mlm.rate, settings.mlm.mask, settings.mlm.random) == (0.15, 0.8, 0.1)
    assert not settings.mlm.unigram_start
    assert (settings.nsp.random, settings.data.short, settings.data.batch) == (0.5, 0.1, 256)
    assert (settings.data.length, settings.data.long_length, settings.data.long_share) == (128, 512, 0.1)
    assert settings.training.steps == 1_000_000
    assert round(settings.optimizer.warmup * settings.training.steps) == 10_000
    assert settings.optimizer == OptimizerSettings(
        learning_rate=1e-4, beta1=0.9, beta2=0.999, epsilon=1e-6, weight_decay=0.01, clip=1.0, schedule="linear"
    )


def test_bert_paper_leaves_nothing_to_defaults() -> None:
    """Whatever a default becomes, the paper stays the paper."""
    table = recipe.read("bert-paper")
    settings = read_settings("bert-paper")
    for part in ("model", "mlm", "nsp", "optimizer"):
        own = {field.name for field in dataclasses.fields(getattr(settings, part))}
        assert own - {"muon_rate", "muon_iterations", "ngrams", "decay"} == set(table[part]), (
            part
        )  # which the chosen method, unit and schedule do not use
    assert {"batch", "length", "short", "long_share", "long_length", "duplicates"} <= set(table["data"])


def test_bert_paper_is_bert_base_but_for_two_settings() -> None:
    paper, base = (recipe.as_table(read_settings(name)) for name in ("bert-paper", "bert-base"))
    base["model"]["feedforward"] = 4 * base["model"]["width"]
    base["data"]["duplicates"] = 10
    base["optimizer"]["bias_correction"] = False
    assert paper == base


def test_bert_fast_has_the_sizes_of_bert_base_and_opens_elsewhere() -> None:
    fast, base = (read_settings(name, {"model.vocabulary": 30522}).model for name in ("bert-fast", "bert-base"))
    weights = [sum(weight.numel() for weight in model.empty().parameters()) for model in (fast, base)]
    assert weights[1] - weights[0] == 512 * 768  # rotary positions need no table
    assert not ours_alone(fast)


ROBERTA_LARGE = {
    "layers": 24,
    "width": 1024,
    "heads": 16,
    "optimizer.learning_rate": 4e-4,
    "optimizer.warmup": 0.06,
}


@pytest.mark.parametrize(
    ("sizes", "changes", "rate", "warmup"),
    [((12, 768, 12), {}, 6e-4, 24_000), ((24, 1024, 16), ROBERTA_LARGE, 4e-4, 30_000)],
    ids=["base", "large"],
)
def test_roberta_is_trained_as_published(sizes, changes, rate, warmup) -> None:
    """RoBERTa, sections 4.1 to 4.3 and table 9; large is the overrides that the recipe's comment gives."""
    settings = read_settings("roberta-base", changes)
    assert (settings.model.layers, settings.model.width, settings.model.heads) == sizes
    assert settings.objectives == ("mlm",)
    assert (settings.data.cross_documents, settings.data.duplicates, settings.data.short) == (True, 0, 0.0)
    assert (settings.data.batch, settings.data.length, settings.data.long_share) == (8192, 512, 0.0)
    assert (settings.mlm.rate, settings.mlm.mask, settings.mlm.random, settings.mlm.unit) == (0.15, 0.8, 0.1, "pieces")
    assert (settings.model.dropout, settings.model.attention_dropout, settings.model.epsilon) == (0.1, 0.1, 1e-5)
    assert settings.training.steps == 500_000
    assert round(settings.optimizer.warmup * settings.training.steps) == warmup
    assert settings.optimizer.learning_rate == rate
    optimizer = settings.optimizer
    assert (optimizer.beta1, optimizer.beta2, optimizer.epsilon) == (0.9, 0.98, 1e-6)
    assert (optimizer.weight_decay, optimizer.clip, optimizer.schedule) == (0.01, 0.0, "linear")


def test_the_whole_family_of_small_sizes_is_two_overrides_away() -> None:
    for layers in (2, 4, 6, 8, 10, 12):
        for width in (128, 256, 512, 768):
            sizes = {"layers": layers, "width": width, "heads": width // 64}
            model = read_settings("bert-tiny", {**sizes, "model.vocabulary": 100}).model
            assert model.empty().architecture.feedforward == 4 * width


def test_bert_base_has_as_many_parameters_as_published() -> None:
    model = read_settings("bert-base", {"model.vocabulary": 30522}).model.empty()
    assert sum(weight.numel() for weight in model.parameters()) == 109_482_240


@pytest.mark.parametrize(
    ("name", "vocabulary", "published"),
    [
        ("albert-base", 30_000, 11_683_584),
        pytest.param("gpt", 40_478, 116_534_784, marks=pytest.mark.lab),
        pytest.param("gpt2", 50_257, 124_439_808, marks=pytest.mark.lab),
    ],
)
def test_other_families_have_as_many_parameters_as_published(name, vocabulary, published) -> None:
    model = read_settings(name, {"model.vocabulary": vocabulary}).model
    assert sum(weight.numel() for weight in model.empty().parameters()) == published
    assert not ours_alone(model)


@pytest.mark.parametrize("name", ["albert-small", pytest.param("gpt-small", marks=pytest.mark.lab)])
def test_small_recipes_open_elsewhere(name) -> None:
    assert not ours_alone(read_settings(name, {"model.vocabulary": 100}).model)


def test_no_setting_is_dead() -> None:
    """Each setting is read, as an attribute, somewhere in the source; tests of each room show what it changes."""
    read = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                read.add(node.attr)
    names = {name.rpartition(".")[2] for name, _, _ in recipe.fields(schema(("mlm", "nsp")))}
    assert names <= read


def test_every_setting_has_help() -> None:
    for name, _, _, document in recipe.describe_settings(schema(("mlm", "nsp"))):
        assert document, name
