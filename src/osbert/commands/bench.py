"""osbert bench: how fast a recipe trains on this machine, and how near that is to what the machine can do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from osbert.commands.opening_options import OpeningOptions
from osbert.errors import UserError
from osbert.interop.opening import CAREFUL
from osbert.terminal import open_console

if TYPE_CHECKING:
    from rich.console import Console

    from osbert.runs.pretrain.settings import PretrainPlan
    from osbert.runs.pretrain.speed_test import SpeedTest

RECIPES = {"cpu": "cpu", "cuda": "bert-base"}
"""What is measured unless a recipe is given, by kind of device."""
VOCABULARY = 30_522
"""Pieces of the made-up corpus, as many as published BERT has."""
LOADING = 0.15
"""Share of the time in which the loader runs by itself."""


def bench(
    *recipe: Annotated[str, Parameter(allow_leading_hyphen=True, negative=())],
    corpus: Path | None = None,
    seconds: float = 20.0,
    json: Path | None = None,
    opening: OpeningOptions = CAREFUL,
) -> None:
    """Measure the speed of pretraining by a recipe.

    Trains for some seconds with the run's own trainer and loader and throws the weights away. Tells tokens a second,
    the share of the processor's peak, the memory, and what the loader gives by itself.

    Parameters
    ----------
    recipe
        A recipe and settings, as for `osbert pretrain`; by default "cpu", and "bert-base" where there is a GPU.
    corpus
        A folder that `osbert corpus build` made; without one, a corpus of made-up words is measured on.
    seconds
        How long to measure, about; a step of a large model can take longer.
    json
        A file to write the figures into as well.
    """
    import tempfile
    from contextlib import nullcontext

    from osbert import recipe as recipes
    from osbert.files import as_json, writing_output
    from osbert.lock import claim
    from osbert.runs.bench_corpus import synthetic_corpus
    from osbert.runs.pretrain.settings import read_plan, read_settings
    from osbert.training.processor import choose

    if seconds <= 0:
        raise UserError(f"--seconds must be above 0, not {seconds:g}.")
    if json is not None and json.is_dir():
        raise UserError(f"{json}: this is a folder, and a file is to be written. Give another --json.")
    with nullcontext() if json is None else claim(json) as place:
        name, settings = recipes.split(recipe, otherwise=RECIPES[choose().device.type])
        vocabulary = read_settings(name, settings, opening=opening).model.vocabulary or VOCABULARY
        with tempfile.TemporaryDirectory(prefix="osbert-bench-") as folder:
            if corpus is None:
                corpus = synthetic_corpus(Path(folder) / "text", vocabulary=vocabulary).folder
            plan = read_plan(name, settings, corpus=corpus, out=Path(folder) / "run", opening=opening)
            figures = measure(plan, Path(folder) / "run", seconds=seconds)
        show(figures, open_console())
        if place is not None:
            with writing_output(place) as path:
                path.write_text(as_json(figures), encoding="utf-8")


def measure(plan: PretrainPlan, scratch: Path, *, seconds: float) -> dict[str, Any]:
    """Return the figures of a plan, measured in about so many seconds; `scratch` is a folder to write into."""
    import torch

    from osbert import __version__
    from osbert.evaluation.speed import FORMULA, peak
    from osbert.runs.pretrain.speed_test import SpeedTest, phases
    from osbert.training.processor import choose

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
        "phases": [_phase(test, phase.length, seconds=each, peak_flops=most.flops) for phase in parts],
    }


def show(figures: dict[str, Any], console: Console) -> None:
    """Print figures as `measure` returns them."""
    from rich import box
    from rich.table import Table

    console.print(
        f"{figures['recipe']}: {figures['parameters']:,} parameters, {' + '.join(figures['objectives'])}, "
        f"{figures['batch']:,} sequences a step, {figures['processor']}, torch {figures['torch']}",
        markup=False,
        highlight=False,
    )
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("sequences of at most")
    for phase in figures["phases"]:
        table.add_column(f"{phase['length']} tokens", justify="right")
    for label, cells in _rows(figures):
        table.add_row(label, *cells)
    console.print(table)
    said = [f"Peak: {figures['peak_flops'] / 1e9:,.3g} GFLOP/s ({figures['peak_source']})."]
    if any(phase["extrapolated"] for phase in figures["phases"]):
        said.append("(*) A whole step was too slow to be taken: its time is a line through two smaller ones.")
    for text in (*said, figures["formula"]):
        console.print(text, markup=False, highlight=False)


def _phase(test: SpeedTest, length: int, *, seconds: float, peak_flops: float) -> dict[str, Any]:
    ceiling = test.loader_tokens_per_second(length, seconds=seconds * LOADING)
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


def _rows(figures: dict[str, Any]) -> list[tuple[str, list[str]]]:
    phases = figures["phases"]

    def row(label: str, form: str, name: str, *, unit: float = 1.0) -> tuple[str, list[str]]:
        return label, [form.format(phase[name] / unit) for phase in phases]

    rows = [
        row("tokens/s", "{:,.0f}", "tokens_per_second"),
        row("a step, median", "{:,.4g} s", "median_step_seconds"),
        row("tokens a step", "{:,.0f}", "step_tokens"),
        row("arithmetic a token", "{:,.4g} MFLOP", "flops_per_token", unit=1e6),
        row("share of peak", "{:.1%}", "share_of_peak"),
        row("peak memory", "{:,.0f} MB", "memory", unit=1e6),
    ]
    if figures["processor"].startswith("cpu"):
        rows.append(("  before the model", [f"{figures['memory_before'] / 1e6:,.0f} MB"] * len(phases)))
    rows += [
        row("the loader alone, tokens/s", "{:,.0f}", "loader_tokens_per_second"),
        row("waiting for the loader", "{:.1%} of the time", "loader_share"),
    ]
    marks = ["*" if phase["extrapolated"] else "" for phase in phases]
    rows[0] = (rows[0][0], [f"{cell}{mark}" for cell, mark in zip(rows[0][1], marks, strict=True)])
    return rows
