"""The sections of a report that compares models, from their figures alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np

from osbert.reports.page import Section, paragraph, table
from osbert.reports.plot import Series, explain_picture, line_plot
from osbert_lab.analysis.comparison import LIKENESS, MEAN, WORDS, of_model
from osbert_lab.analysis.figures import Figure, Floats
from osbert_lab.analysis.kinds.heads import NAMES, STRONG, UNIFORM
from osbert_lab.analysis.plots import heat_map

Item = TypeVar("Item")
LINES, MAPS = 6, 4
"""Limits of a picture: lines of a plot (one for each colour), and the number of maps."""
LAYER = "layer (0: embeddings)"


def comparison_sections(
    figures_by_part: Mapping[str, Sequence[Figure]], names: Sequence[str], reference: str, steps: Mapping[str, int]
) -> list[Section]:
    """Return a section for each list of figures that is not empty.

    `names`: the models in the order of the report. `steps`: the training step of each model by name, if all are of one
    run.
    """
    likeness = [
        *_likeness(figures_by_part["likeness"], [name for name in names if name != reference], reference, steps)
    ]
    geometry = [_cosines(figures_by_part["geometry"], names)] if figures_by_part["geometry"] else []
    heads = [*_heads(figures_by_part["heads"], names, steps)] if figures_by_part["heads"] else []
    headings = ("How alike the layers are", "The geometry of the states", "What the heads look at")
    return [
        Section(heading=heading, parts=parts)
        for heading, parts in zip(headings, (likeness, geometry, heads), strict=True)
        if parts
    ]


def spread(items: Sequence[Item], most: int) -> list[Item]:
    """Return at most `most` items, evenly spaced, with the first and the last.

    >>> spread(range(10), 4)
    [0, 3, 6, 9]
    """
    if len(items) <= most:
        return list(items)
    return [items[round(position)] for position in np.linspace(0, len(items) - 1, most)]


def _likeness(
    figures: Sequence[Figure], names: Sequence[str], reference: str, steps: Mapping[str, int]
) -> Iterator[str]:
    if not figures:
        return
    each = {name: _grid(of_model(figures, LIKENESS, {"model": name})) for name in names}
    grids = {name: values for name, values in each.items() if values.size and np.isfinite(_same_depth(values)).any()}
    if not grids:
        return
    n = figures[0].n
    yield _plot_movement(grids, reference, n)
    if steps:
        yield _over_steps(grids, steps, reference, n)
    for name in spread([*grids], MAPS):
        yield _map(of_model(figures, LIKENESS, {"model": name}), grids[name], name, reference)
    if words := [figure for figure in figures if figure.name == WORDS]:
        yield _word_cosines(words, names, reference)


def _grid(figures: Sequence[Figure]) -> Floats:
    """Return the CKA (layers, layers of the reference); NaN for layers that do not vary."""
    layers = [int(figure.where["layer"]) for figure in figures], [int(figure.where["other"]) for figure in figures]
    values = np.full([max(layer_numbers, default=-1) + 1 for layer_numbers in layers], np.nan)
    # Indexing with two lists sets one cell for each figure.
    values[layers] = [figure.value for figure in figures]
    return values


def _same_depth(values: Floats) -> Floats:
    """Return the CKA of each layer with the layer of the same depth in the reference.

    If the depths differ, it is the highest CKA with any layer. `values`: (layers, layers of the reference).
    """
    if len(values) == values.shape[1]:
        return values.diagonal()
    # Rows without any value stay NaN; nanmax would warn about them.
    highest = np.where(np.isnan(values), -np.inf, values).max(axis=1)
    return np.where(np.isfinite(highest), highest, np.nan)


def _lines(points: Mapping[str, Sequence[tuple[float, float]]]) -> list[Series]:
    return [Series(name=name, points=points[name], color=color) for color, name in enumerate(spread([*points], LINES))]


def _plot_movement(grids: Mapping[str, Floats], reference: str, n: int) -> str:
    each = {name: _same_depth(values) for name, values in grids.items()}
    points = {
        name: [(float(layer), float(value)) for layer, value in enumerate(similarities)]
        for name, similarities in each.items()
    }
    every = (
        (value, name, layer) for name, similarities in each.items() for layer, value in enumerate(similarities.tolist())
    )
    least, name, layer = min(candidate for candidate in every if np.isfinite(candidate[0]))
    depth = all(len(values) == values.shape[1] for values in grids.values())
    same = "the same layer" if depth else "the layer that is most like it"
    return explain_picture(
        line_plot(_lines(points), title=f"CKA of each layer with {same} of {reference}", across=LAYER),
        plain=f"The lower a point, the further that layer is from {same} of {reference}. Furthest is layer {layer} of "
        f"{name}: CKA {least:.2f}; 1 is the same up to a rotation, 0 unrelated.",
        caution=f"n is {n:,} words, one of each text. CKA compares the large directions of the states: a layer that "
        "barely moves by it may still have learnt what a task reads.",
    )


def _over_steps(grids: Mapping[str, Floats], steps: Mapping[str, int], reference: str, n: int) -> str:
    layers = spread(range(min(map(len, grids.values()))), LINES)
    points = {
        f"layer {layer}": [(float(steps[name]), float(_same_depth(grids[name])[layer])) for name in grids]
        for layer in layers
    }
    first = {name: curve[0][1] for name, curve in points.items()}
    settled = max(first, key=lambda name: np.nan_to_num(first[name]))
    return explain_picture(
        line_plot(_lines(points), title=f"CKA of each layer with {reference}, by step"),
        plain=f"A layer that has settled is near 1. At the first of these steps {settled} is nearest to {reference}, "
        f"with {first[settled]:.2f}.",
        caution=f"Only the steps whose models were kept are shown. n is {n:,} words.",
    )


def _map(figures: Sequence[Figure], values: Floats, name: str, reference: str) -> str:
    notes = {}
    for figure in figures:
        layer, other = int(figure.where["layer"]), int(figure.where["other"])
        ends = "" if figure.interval is None else f", 95% interval {figure.interval[0]:.3f} to {figure.interval[1]:.3f}"
        notes[layer, other] = f"layer {layer} and layer {other} of {reference}: {figure.value:.3f}{ends}"
    best = np.where(np.isnan(values), -np.inf, values)
    pairs = [(layer, int(row.argmax())) for layer, row in enumerate(best) if np.isfinite(row.max())]
    best_pairs = ", ".join(f"{layer}: {other}" for layer, other in pairs)
    return explain_picture(
        heat_map(values, notes, title=f"{name} (rows) and {reference} (columns)", ends=(0, 1), columns="layer"),
        plain=f"The layer of {reference} that is most like each layer of {name}: {best_pairs}.",
        caution="Models of one size that learnt the same have a strong diagonal; a block of strong cells is a group of "
        "layers that hardly differ.",
    )


def _word_cosines(figures: Sequence[Figure], names: Sequence[str], reference: str) -> str:
    points = {
        name: [(float(figure.where["layer"]), figure.value) for figure in of_model(figures, WORDS, {"model": name})]
        for name in names
    }
    points = {name: curve for name, curve in points.items() if curve}
    least = min(figures, key=lambda figure: figure.value)
    return explain_picture(
        line_plot(_lines(points), title=f"Cosine of a word's state with that of {reference}", across=LAYER),
        plain=f"1 is the same direction. Furthest from {reference} is layer {least.where['layer']} of "
        f"{least.where['model']}, with {least.value:.2f}.",
        caution="This says something of models that were trained from one another. The states of two that were not "
        "have other axes, and a cosine near 0 then says nothing: look at CKA.",
    )


def _cosines(figures: Sequence[Figure], names: Sequence[str]) -> str:
    points = {
        name: [(float(figure.where["layer"]), figure.value) for figure in of_model(figures, MEAN, {"model": name})]
        for name in names
    }
    highest = max(figures, key=lambda figure: figure.value)
    return explain_picture(
        line_plot(_lines(points), title="Mean cosine of two random words by layer", across=LAYER),
        plain=f"The higher, the narrower the cone that all states lie in. Highest is layer {highest.where['layer']} of "
        f"{highest.where['model']}, with {highest.value:.2f}.",
        caution="Cosines of two models cannot be compared with each other, only each with its own curve.",
    )


def _heads(figures: Sequence[Figure], names: Sequence[str], steps: Mapping[str, int]) -> Iterator[str]:
    names = [name for name in names if of_model(figures, "layer_entropy", {"model": name})]
    yield _entropies(figures, names)
    if steps:
        yield _strongest_by_step(figures, steps)
    rows = []
    for behaviour, what in NAMES.items():
        cells = []
        for name in names:
            model_figures = of_model(figures, behaviour, {"model": name})
            best = max(model_figures, key=lambda figure: figure.value)
            strong = sum(figure.value > STRONG for figure in model_figures)
            cells.append(
                f"{best.where['layer']}-{best.where['head']}: {best.value:.0%}; {strong} of {len(model_figures)}"
            )
        rows.append((f"to {what}", *cells))
    yield paragraph(
        "For each model: the head that looks most at something, with that part of its attention, and how many heads "
        "give it over half."
    )
    yield table(rows, head=("", *names))


def _entropies(figures: Sequence[Figure], names: Sequence[str]) -> str:
    each = {name: of_model(figures, "layer_entropy", {"model": name}) for name in names}
    points = {
        name: [(float(figure.where["layer"]), figure.value) for figure in model_figures]
        for name, model_figures in each.items()
    }
    lowest = min(
        (figure for model_figures in each.values() for figure in model_figures), key=lambda figure: figure.value
    )
    even = lowest.baselines[UNIFORM]
    return explain_picture(
        line_plot(_lines(points), title="Entropy of attention by layer, nats", across="layer"),
        plain=f"Attention is narrowest in layer {lowest.where['layer']} of {lowest.where['model']}: {lowest.value:.2f} "
        f"nats; spread evenly, that model's would be {even:.2f}.",
        caution="Models of different tokenizers cut a text into more or fewer tokens, and entropy grows with their "
        "number: compare each with its own even attention (analysis.json).",
    )


def _strongest_by_step(figures: Sequence[Figure], steps: Mapping[str, int]) -> str:
    points = {}
    for behaviour, what in NAMES.items():
        strongest = {
            name: max(figure.value for figure in of_model(figures, behaviour, {"model": name})) for name in steps
        }
        points[what] = sorted((float(steps[name]), value) for name, value in strongest.items())
    begun = {what: next((step for step, value in curve if value > STRONG), None) for what, curve in points.items()}
    onsets = [f"{what} from step {step:,.0f}" for what, step in begun.items() if step is not None]
    return explain_picture(
        line_plot(_lines(points), title="The head that looks most at something, by step", percent=True),
        plain="A head that gives over half of its attention there is first seen: "
        + (", ".join(onsets) if onsets else "none yet")
        + ".",
        caution="At each step this is the strongest head of that step, which need not be the same one. Only the steps "
        "whose models were kept are shown.",
    )
