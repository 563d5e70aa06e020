"""The benchmark of pretraining: the speed of a recipe on this machine, and its fraction of the peak."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from osbert import __version__
from osbert.errors import UserError
from osbert.evaluation.speed import FORMULA, peak
from osbert.interop.opening import CAREFUL, Opening
from osbert.runs import bench_corpus
from osbert.runs.pretrain.passes import with_passes
from osbert.runs.pretrain.settings import PretrainPlan, read_plan, read_settings, table_of
from osbert.runs.pretrain.speed_test import SpeedTest, loader_ceiling, phases
from osbert.training.processor import choose

RECIPES = {"cpu": "cpu", "cuda": "bert-base"}
"""Default recipe by kind of device."""
VOCABULARY = 30_522
"""Vocabulary size of the synthetic corpus, that of published BERT."""
LOADING = 0.15
"""Fraction of the time in which the loader runs alone."""


def measure_speed(
    recipe: str = "",
    settings: Mapping[str, Any] | None = None,
    *,
    corpus: Path | None = None,
    seconds: float = 20.0,
    opening: Opening = CAREFUL,
) -> dict[str, Any]:
    """Return the measured speed of pretraining by a recipe, after about `seconds` seconds; no files are kept.

    `corpus`: None for a synthetic one. The figures: tokens per second, FLOPs, memory in bytes, and the speed of the
    loader alone, for each phase of the run. Raises UserError as pretraining does.
    """
    if seconds <= 0:
        raise UserError(f"--seconds must be above 0, not {seconds:g}.", code="invalid-value")
    name, settings = recipe or RECIPES[choose().device.type], settings or {}
    chosen = read_settings(name, settings, opening=opening)
    model, objectives = chosen.model, [getattr(chosen, table_of(objective)) for objective in chosen.objectives]
    with tempfile.TemporaryDirectory(prefix="osbert-bench-") as folder:
        if corpus is None:
            corpus = bench_corpus.synthetic_corpus(
                Path(folder) / "text",
                vocabulary=model.vocabulary or VOCABULARY,
                padding=max(0, getattr(model, "first_position", 0) - 1),  # positions begin behind it
                document_sentences=max(objective.document_sentences for objective in objectives),
            ).folder
        plan = read_plan(name, settings, corpus=corpus, out=Path(folder) / "run", opening=opening)
        return _figures(with_passes(plan, Path(folder) / "run"), Path(folder) / "run", seconds=seconds)


def _figures(plan: PretrainPlan, scratch: Path, *, seconds: float) -> dict[str, Any]:
    training = plan.settings.training
    processor = choose(training.device, training.precision)
    most = peak(processor)
    test = SpeedTest(plan, scratch)
    parts = phases(plan)
    each = seconds / len(parts)
    return {
        "osbert": __version__,
        "torch": torch.__version__,
        "recipe": plan.name,
        "objectives": list(plan.objectives),
        "parameters": test.parameters,
        "processor": str(processor),
        "threads": torch.get_num_threads(),
        "peak_flops": most.flops,
        "peak_source": most.source,
        "formula": FORMULA,
        "memory_before": test.memory_before,
        "batch": plan.settings.data.batch,
        "micro_tokens": plan.settings.data.micro_tokens,
        "phases": [_phase(test, phase.length, seconds=each, peak_flops=most.flops) for phase in parts],
    }


def _phase(test: SpeedTest, length: int, *, seconds: float, peak_flops: float) -> dict[str, Any]:
    ceiling = loader_ceiling(test.plan, length, seconds=seconds * LOADING)
    speed = test.speed(length, seconds=seconds * (1 - LOADING))
    flops = test.flops_per_token(length)
    return {
        "length": length,
        "tokens_per_second": speed.tokens_per_second,
        "median_step_seconds": speed.median_seconds,
        "step_tokens": speed.step_tokens,
        "steps": speed.steps,
        "extrapolated": speed.extrapolated,
        "flops_per_token": flops,
        "share_of_peak": flops * speed.tokens_per_second / peak_flops,
        "memory": speed.memory,
        "loader_tokens_per_second": ceiling,
        "loader_share": speed.loader_share,
    }
