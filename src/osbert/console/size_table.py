"""The model sizes of `osbert plan` as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from osbert.runs.pretrain.sizing import SizeComparison


def print_sizes(comparison: SizeComparison, console: Console) -> None:
    """Print the table of sizes, with the recommended one marked."""
    from rich import box
    from rich.table import Table

    from osbert.runs.pretrain.sizing import short

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
