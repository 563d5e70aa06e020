"""The section of the report on which heads matter to a loss."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from osbert.reports.charts import IntervalRow, interval_plot
from osbert.reports.page import Section, table
from osbert.reports.plot import explain_picture
from osbert_lab.analysis.figures import Figure, grid, select_figures
from osbert_lab.analysis.plots import heat_map


def importance_section(figures: Sequence[Figure], loss: str) -> Section:
    """Return the map of the heads' importance and the losses without some heads. `loss`: the name of the loss."""
    return Section(heading=f"Which heads matter to {loss}", parts=[_map(figures), *_ablation(figures, loss)])


def _map(figures: Sequence[Figure]) -> str:
    importances = select_figures(figures, "importance")
    values = grid(figures, "importance", "layer", "head")
    notes = {}
    for figure in importances:
        layer, head = int(figure.where["layer"]), int(figure.where["head"])
        low, high = figure.interval or (np.nan, np.nan)
        notes[layer - 1, head - 1] = f"head {layer}-{head}: {figure.value:.3f}, 95% interval {low:.3f} to {high:.3f}"
    first = max(importances, key=lambda figure: figure.value)
    even = first.baselines["all alike"]
    return explain_picture(
        heat_map(values, notes, title="Importance of the heads, by gradient", ends=(0, 1)),
        plain="A head's number says how much the loss would move with what the head puts out, beside the other heads "
        f"of its layer: {even:.2f} where all matter alike. Head {first.where['layer']}-{first.where['head']} stands "
        f"out most: {first.value:.2f}.",
        caution="Numbers of two layers do not compare: each layer is normalised by itself. A gradient speaks of small "
        "changes; what taking a head away does is measured below.",
    )


def _ablation(figures: Sequence[Figure], loss: str) -> list[str]:
    losses = select_figures(figures, "ablation_loss")
    rises = {str(figure.where["without"]): figure for figure in select_figures(figures, "ablation_rise")}
    # Figures keep the order of importance.GROUPS, without its first entry (all heads).
    most, random, least = rises.values()
    count = int(most.where["count"])
    ends = [end for figure in losses for end in (*(figure.interval or ()), figure.value)]
    rows = [
        IntervalRow(name=_name(figure), value=figure.value, interval=figure.interval or (np.nan, np.nan))
        for figure in losses
    ]
    # A margin of 5% on both sides, so that no interval touches the frame.
    room = (max(ends) - min(ends)) * 0.05 or 0.05
    plot = interval_plot(
        rows,
        title=f"Loss of {loss} without some heads, nats, 95% intervals (bootstrap)",
        ends=(max(0.0, min(ends) - room), max(ends) + room),
    )
    those = "head that matters" if count == 1 else f"{count} heads that matter"
    plain = (
        f"Without the {those} most the loss changes by {_format_rise(most)} nats, without as many random ones by "
        f"{_format_rise(random)}, without as many of the least important by {_format_rise(least)}: measured on "
        f"{losses[0].n:,} {losses[0].unit} that the ranking has not seen."
    )
    caution = (
        "The model was never trained without these heads: another one that is trained so may do without them. What it "
        "loses says how much it leans on them together, not one by one."
    )
    accuracy = {str(figure.where["without"]): figure for figure in select_figures(figures, "ablation_accuracy")}
    lines = []
    for figure in losses:
        name = str(figure.where["without"])
        hits = accuracy.get(name)
        rise = rises.get(name)
        lines.append(
            [
                _name(figure),
                str(figure.where["heads"]),
                f"{figure.value:.3f}",
                "" if rise is None else _format_rise(rise),
                "" if hits is None else f"{hits.value:.1%} ({_ends(hits, '.1%')})",
            ]
        )
    head = ("what is left out", "heads", "loss", "rise (95% interval)", "right (95% interval)")
    return [explain_picture(plot, plain=plain, caution=caution), table(lines, head=head)]


def _name(figure: Figure) -> str:
    name = str(figure.where["without"])
    return "nothing" if not figure.where["count"] else name


def _format_rise(figure: Figure) -> str:
    return f"{figure.value:+.3f} ({_ends(figure, '+.3f')})"


def _ends(figure: Figure, form: str) -> str:
    low, high = figure.interval or (np.nan, np.nan)
    return f"{low:{form}} to {high:{form}}"
