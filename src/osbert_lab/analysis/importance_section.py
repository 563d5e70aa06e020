"""The section of the report on which heads matter to a loss."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from osbert.reports.bars import IntervalRow, interval_plot
from osbert.reports.explained import explained
from osbert.reports.page import Section, table
from osbert_lab.analysis.figures import Figure, grid, named
from osbert_lab.analysis.heat import heat_map


def importance_section(figures: Sequence[Figure], loss: str) -> Section:
    """Return the map of the heads' importance and the losses without some heads. `loss`: the name of the loss."""
    return Section(heading=f"Which heads matter to {loss}", parts=[_map(figures), *_ablation(figures, loss)])


def _map(figures: Sequence[Figure]) -> str:
    found = named(figures, "importance")
    values = grid(figures, "importance", "layer", "head")
    notes = {}
    for one in found:
        layer, head = int(one.where["layer"]), int(one.where["head"])
        low, high = one.interval or (np.nan, np.nan)
        notes[layer - 1, head - 1] = f"head {layer}-{head}: {one.value:.3f}, 95% interval {low:.3f} to {high:.3f}"
    first = max(found, key=lambda one: one.value)
    even = first.baselines["all alike"]
    return explained(
        heat_map(values, notes, title="Importance of the heads, by gradient", ends=(0, 1)),
        plain="A head's number says how much the loss would move with what the head puts out, beside the other heads "
        f"of its layer: {even:.2f} where all matter alike. Head {first.where['layer']}-{first.where['head']} stands "
        f"out most: {first.value:.2f}.",
        caution="Numbers of two layers do not compare: each layer is normalised by itself. A gradient speaks of small "
        "changes; what taking a head away does is measured below.",
    )


def _ablation(figures: Sequence[Figure], loss: str) -> list[str]:
    found = named(figures, "ablation_loss")
    rises = {str(one.where["without"]): one for one in named(figures, "ablation_rise")}
    # Figures keep the order of importance.GROUPS, without its first entry (all heads).
    most, random, least = rises.values()
    count = int(most.where["count"])
    ends = [end for one in found for end in (*(one.interval or ()), one.value)]
    rows = [IntervalRow(name=_name(one), value=one.value, interval=one.interval or (np.nan, np.nan)) for one in found]
    # A margin of 5% on both sides, so that no interval touches the frame.
    room = (max(ends) - min(ends)) * 0.05 or 0.05
    plot = interval_plot(
        rows,
        title=f"Loss of {loss} without some heads, nats, 95% intervals (bootstrap)",
        ends=(max(0.0, min(ends) - room), max(ends) + room),
    )
    those = "head that matters" if count == 1 else f"{count} heads that matter"
    plain = (
        f"Without the {those} most the loss changes by {_said(most)} nats, without as many random ones by "
        f"{_said(random)}, without as many of the least important by {_said(least)}: measured on {found[0].n:,} "
        f"{found[0].unit} that the ranking has not seen."
    )
    caution = (
        "The model was never trained without these heads: another one that is trained so may do without them. What it "
        "loses says how much it leans on them together, not one by one."
    )
    accuracy = {str(one.where["without"]): one for one in named(figures, "ablation_accuracy")}
    lines = []
    for one in found:
        name = str(one.where["without"])
        hits = accuracy.get(name)
        rise = rises.get(name)
        lines.append(
            [
                _name(one),
                str(one.where["heads"]),
                f"{one.value:.3f}",
                "" if rise is None else _said(rise),
                "" if hits is None else f"{hits.value:.1%} ({_ends(hits, '.1%')})",
            ]
        )
    head = ("what is left out", "heads", "loss", "rise (95% interval)", "right (95% interval)")
    return [explained(plot, plain=plain, caution=caution), table(lines, head=head)]


def _name(figure: Figure) -> str:
    name = str(figure.where["without"])
    return "nothing" if not figure.where["count"] else name


def _said(figure: Figure) -> str:
    return f"{figure.value:+.3f} ({_ends(figure, '+.3f')})"


def _ends(figure: Figure, form: str) -> str:
    low, high = figure.interval or (np.nan, np.nan)
    return f"{low:{form}} to {high:{form}}"
