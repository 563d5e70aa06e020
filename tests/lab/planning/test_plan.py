"""osbert plan: a table that follows from what was measured, plain words on too small a corpus, a recipe that works."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest

from osbert import recipe
from osbert.models import families
from osbert.models.contract import Sizes
from osbert.runs.pretrain.settings import read_plan, read_settings
from osbert_lab.planning import plan_sizes, sizing
from osbert_lab.planning.benchmark import synthetic_corpus
from osbert_lab.planning.plan_sizes import (
    BYTES,
    SizeLimits,
    SizeSample,
    candidates,
    estimate,
    flops_per_second,
    memory,
    resize,
)
from own_files import beside
from quick_machine import use_quick_machine
from refusals import refused
from terminal import told


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic_corpus(tmp_path_factory.mktemp("texts") / "one", vocabulary=400, tokens=20_000).folder


@pytest.fixture
def plan(tmp_path, corpus, capsys):
    """Run `osbert plan`; return (status, output on one line, error, the recipe's path)."""

    def plan(*arguments: str, minutes: str = "30") -> SimpleNamespace:
        out = tmp_path / "plan.toml"
        where = [] if "--out" in arguments else ["--out", str(out)]
        done = told(capsys, "plan", *arguments, "--corpus", corpus, "--minutes", minutes, *where, recipe=out)
        done.output = " ".join(done.output.split())
        return done

    return plan


@pytest.fixture
def quick(monkeypatch) -> None:
    """A machine of 20 GFLOP/s that need not be measured."""
    use_quick_machine(monkeypatch)


def test_the_recipe_is_one_that_pretrain_takes(plan, quick) -> None:
    done = plan()
    assert done.status == 0, done.error
    assert "What 30 minutes buy" in done.output
    assert "> L" in done.output
    settings = read_settings(str(done.recipe))
    base = read_settings("cpu")
    assert settings.minutes == 30
    assert (settings.data, settings.mlm, settings.nsp) == (base.data, base.mlm, base.nsp)
    assert f"> L{settings.model.layers} H{settings.model.width} " in done.output
    assert settings.model.width % settings.model.heads == 0
    assert "steps" not in recipe.read(done.recipe).get("training", {})


def test_a_small_corpus_is_told_with_how_much_would_do(plan, quick) -> None:
    few, many = plan(minutes="600"), plan(minutes="0.3")
    assert "The corpus is too small: it would be seen" in few.output
    assert "> L2 H128 " in few.output, "more weights would learn the text by heart"
    assert "it would be seen 4 times" in few.output
    assert "too small" not in many.output


def test_settings_reach_the_plan_and_the_recipe(plan, quick) -> None:
    done = plan("cpu", "--mlm.rate", "0.2", "--data.batch", "8")
    settings = read_settings(str(done.recipe))
    assert (settings.mlm.rate, settings.data.batch) == (0.2, 8)


def test_the_recipe_has_the_first_position_of_the_corpus(plan, quick, corpus) -> None:
    done = plan("roberta-small")
    assert recipe.read("roberta-small")["model"]["first_position"] == 2
    assert recipe.read(done.recipe)["model"]["first_position"] == 1
    assert read_plan(str(done.recipe), {}, corpus=corpus).settings.model.first_position == 1
    assert "first_position" not in recipe.read(plan("cpu").recipe)["model"]


def test_its_own_file_is_written_anew_and_no_other(plan, quick, monkeypatch) -> None:
    first = plan()
    assert plan(minutes="20").status == 0
    written = first.recipe.read_text()
    assert recipe.read(first.recipe)["minutes"] == 20
    assert plan(str(first.recipe), minutes="10").status == 0
    assert recipe.read(first.recipe)["minutes"] == 10, "those planned for, not those of the recipe given"
    monkeypatch.setattr(plan_sizes, "measure", lambda *_, **more: pytest.fail("measured before the file was looked at"))
    monkeypatch.setattr(plan_sizes, "candidates", lambda *_: pytest.fail("built before the file was looked at"))
    for mine in ("mine", written + "\n[mlm]\nrate = 0.2\n"):
        first.recipe.write_text(mine)
        again = plan()
        refused(again, "output-exists", first.recipe)
        assert first.recipe.read_text() == mine


def test_missing_folders_are_made(plan, quick, tmp_path) -> None:
    assert plan("--out", str(tmp_path / "new" / "plan.toml")).status == 0
    assert (tmp_path / "new" / "plan.toml").is_file()
    refused(plan("--out", str(tmp_path)), "output-is-folder", tmp_path)


def test_the_device_planned_for_is_in_the_recipe(plan, quick, monkeypatch) -> None:
    assert read_settings(str(plan().recipe)).training.device == "cpu"
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert read_settings(str(plan("--gpu").recipe)).training.device == "cuda"
    done = plan("--gpu", "--training.device", "cpu")
    refused(done, "options-exclude-each-other", "--gpu", "training.device", "cpu")


def test_where_nothing_is_learnt_it_is_said(plan, quick) -> None:
    assert "No size learns more than guessing" in plan(minutes="0.19").output
    assert "No size learns" not in plan(minutes="30").output


def test_a_gpu_that_is_not_here_is_not_measured(plan, quick, monkeypatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(plan_sizes, "measure", lambda *_: pytest.fail("measured"))
    done = plan("--gpu")
    assert done.status == 0, done.error
    assert "nothing of this is measured but the loader" in done.output
    assert "L24 H1024" in done.output


def test_wrong_arguments_are_told(plan, quick) -> None:
    refused(plan(minutes="0"), "invalid-value", "--minutes", 0)
    refused(plan(minutes="0.1"), "too-little-time", "--minutes")
    refused(plan("--layerss", "3"), "unknown-setting", "--layerss")


def test_what_does_not_fit_is_not_chosen(plan, quick, monkeypatch) -> None:
    monkeypatch.setattr(sizing, "available_memory", lambda kind, absent: 1e6)
    refused(plan(), "out-of-memory", "--data.batch", "--micro-tokens")
    monkeypatch.setattr(sizing, "available_memory", lambda kind, absent: 5e8)
    done = plan(minutes="100000")
    assert read_settings(str(done.recipe)).model.width < 768


def test_a_size_keeps_the_rest_of_the_plan(corpus, tmp_path) -> None:
    base = read_plan("cpu", {}, corpus=corpus, out=tmp_path / "run")
    found = resize(base, 4, 512).settings
    assert (found.model.layers, found.model.width, found.model.heads, found.model.feedforward) == (4, 512, 8, 0)
    assert found.optimizer.learning_rate == base.settings.optimizer.learning_rate / 2
    assert resize(base, 2, 128) is base
    assert resize(base, 2, 256).settings.model.heads == 4
    assert replace(found, model=base.settings.model, optimizer=base.settings.optimizer) == base.settings


@dataclass(frozen=True, kw_only=True)
class OwnSizes(Sizes):
    """Settings of a family that has nothing but what the contract says."""

    layers: int = 2
    width: int = 32


def test_the_settings_of_another_family_have_sizes_too(corpus, tmp_path) -> None:
    base = read_plan("cpu", {}, corpus=corpus, out=tmp_path / "run")
    own = replace(base, settings=replace(base.settings, model=OwnSizes()))
    assert resize(own, 4, 128).settings.model == OwnSizes(layers=4, width=128)
    assert OwnSizes().activations(length=128) == 17 * 32


@dataclass(frozen=True, kw_only=True)
class FixedSizes(Sizes):
    """Settings of a family whose models all have as many layers."""

    layers: ClassVar[int] = 2  # type: ignore[misc]
    width: int = 32


def test_what_is_no_setting_of_a_family_is_not_varied(corpus, tmp_path) -> None:
    base = read_plan("cpu", {}, corpus=corpus, out=tmp_path / "run")
    own = replace(base, settings=replace(base.settings, model=FixedSizes()))
    assert resize(own, 4, 32).settings == own.settings
    wider = resize(own, 4, 128).settings
    assert (wider.model, wider.optimizer.learning_rate) == (
        FixedSizes(width=128),
        base.settings.optimizer.learning_rate / 2,
    )


def test_sizes_without_weights_in_blocks_are_not_compared(plan, quick, monkeypatch) -> None:
    beside(monkeypatch, families)
    done = plan("further", "--family", "toy_mean", "--data.length", "24")
    refused(done, "invalid-setting", "toy_mean")


def test_figures_follow_from_the_samples(corpus, tmp_path) -> None:
    """Between two measured sizes on a line of logarithms, and beyond them as the nearest."""
    sizes = candidates(read_plan("cpu", {}, corpus=corpus, out=tmp_path / "run"), "cpu")
    assert [size.flops for size in sizes] == sorted(size.flops for size in sizes)
    small, large = sizes[0], sizes[3]
    samples = [
        SizeSample(size=small, flops_per_second=1e10, memory=BYTES * small.parameters + small.activations),
        SizeSample(size=large, flops_per_second=4e10, memory=BYTES * large.parameters + large.activations),
    ]
    assert flops_per_second(small, samples) == pytest.approx(1e10)
    assert flops_per_second(sizes[-1], samples) == pytest.approx(4e10)
    assert 1e10 < flops_per_second(sizes[1], samples) < 4e10
    assert memory(large, samples) == samples[1].memory
    assert memory(sizes[-1], samples) == pytest.approx(BYTES * sizes[-1].parameters + sizes[-1].activations)
    limits = SizeLimits(seconds=110.0, loader=1e12, process=7.0)
    found = estimate(small, samples, limits)
    assert found.measured
    assert found.tokens == pytest.approx(found.tokens_per_second * (110 * 0.9 - 10))
    assert found.tokens_per_second == pytest.approx(1e10 / small.flops)
    assert found.memory == memory(small, samples) + 7
    capped = estimate(small, samples, replace(limits, loader=5.0))
    assert capped.tokens_per_second == 5.0


def test_the_real_test_of_speed_gives_a_table(plan, monkeypatch) -> None:
    monkeypatch.setattr(plan_sizes, "MEASURED", {"cpu": ((2, 128), (4, 128))})
    done = plan("--seconds", "1", "--data.batch", "2")
    assert done.status == 0, done.error
    assert "~" in done.output
    assert done.recipe.exists()
