"""osbert bench: measures how fast a recipe trains on this machine, and compares it with the machine's peak."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from osbert.console.opening_options import OpeningOptions
from osbert.console.output import Result
from osbert.console.printing import say
from osbert.console.recipe_options import RecipeName, RecipeSettings, recipe_and_settings, schemas_shown
from osbert.errors import UserError
from osbert.files import as_json, writing_output
from osbert.interop.opening import CAREFUL
from osbert.lock import claim
from osbert.options import takes_settings
from osbert.terminal import open_console

if TYPE_CHECKING:
    from rich.console import Console


@takes_settings(schemas_shown)
def bench(
    recipe: RecipeName = "",
    /,
    *settings: RecipeSettings,
    corpus: Path | None = None,
    seconds: float = 20.0,
    out: Path | None = None,
    opening: OpeningOptions = CAREFUL,
) -> Result:
    """Measure the speed of pretraining by a recipe.

    Trains for some seconds with the run's own trainer and loader and throws the weights away. Reports tokens a
    second, the fraction of the processor's peak, the memory, and the speed of the loader alone.

    Parameters
    ----------
    recipe
        A recipe, as for `osbert pretrain`; by default "cpu", or "bert-base" with a GPU.
    corpus
        A folder that `osbert corpus build` made; without one, a corpus of made-up words is measured on.
    seconds
        Approximate duration; a step of a large model can take longer.
    out
        A JSON file for the figures.
    """
    from osbert.runs.pretrain.benchmark import measure_speed

    if out is not None and out.is_dir():
        raise UserError(
            f"{out}: this is a folder, and a file is to be written. Give another --out.", code="output-is-folder"
        )
    name, chosen = recipe_and_settings((recipe, *settings), opening=opening)
    with nullcontext() if out is None else claim(out) as place:
        figures = measure_speed(name, chosen, corpus=corpus, seconds=seconds, opening=opening)
        show(figures, open_console())
        if place is not None:
            with writing_output(place) as path:
                path.write_text(as_json(figures), encoding="utf-8")
    return figures


def show(figures: dict[str, Any], console: Console) -> None:
    """Print the figures that `measure_speed` returns."""
    from rich import box
    from rich.table import Table

    say(
        console,
        f"{figures['recipe']}: {figures['parameters']:,} parameters, {' + '.join(figures['objectives'])}, "
        f"{figures['batch']:,} sequences a step, {figures['processor']}, torch {figures['torch']}",
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
        say(console, text)


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
