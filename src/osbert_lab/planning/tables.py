"""The tables of `osbert plan` (model sizes) and `osbert bench` (speed)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from osbert.console.output import say

if TYPE_CHECKING:
    from rich.console import Console

    from osbert_lab.planning.sizing import SizeComparison


def print_sizes(comparison: SizeComparison, console: Console) -> None:
    """Print the table of sizes, with the recommended one marked."""
    from rich import box
    from rich.table import Table

    from osbert_lab.planning.sizing import short

    title = f"What {comparison.request.minutes:g} minutes buy"
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    columns = ("", "size", "weights", "tokens/s", "tokens", "epochs", "memory", "disk", "loss")
    table.padding, table.collapse_padding, table.pad_edge = (0, 1), True, False
    for name in columns:
        table.add_column(name, justify="left" if name in ("", "size") else "right", no_wrap=True)
    for row in comparison.estimates:
        cells = (
            ">" if row is comparison.best else "",
            row.size.name,
            short(row.size.parameters),
            f"{'' if row.measured else '~'}{short(row.tokens_per_second)}",
            short(row.tokens),
            f"{row.epochs:,.2g}" if row.epochs < 10 else f"{row.epochs:,.0f}",
            f"{short(row.memory)}B",
            f"{short(row.disk)}B",
            f"{row.loss.low:.1f} to {row.loss.high:.1f}",
        )
        table.add_row(*cells, style="bold" if row is comparison.best else "")
    console.print(table)


def print_speed(figures: dict[str, Any], console: Console) -> None:
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
    remarks = [f"Peak: {figures['peak_flops'] / 1e9:,.3g} GFLOP/s ({figures['peak_source']})."]
    if any(phase["extrapolated"] for phase in figures["phases"]):
        remarks.append("(*) A whole step was too slow to be taken: its time is a line through two smaller ones.")
    for text in (*remarks, figures["formula"]):
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
