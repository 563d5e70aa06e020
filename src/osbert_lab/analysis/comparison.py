"""Several models on the same texts: similarity of their layers, how far they moved, and their heads side by side.

Layers are compared on one word of each text, the mean of its pieces, so that the tokenizers may differ. All models are
compared with one of them, the reference. If the models are steps of one training, the cosine of a word's state in both
says more than CKA; otherwise their coordinates are unrelated and the cosine means nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from osbert_lab.analysis.figures import Figure, Floats, RunningMeans
from osbert_lab.analysis.likeness import (
    LEAST,
    interval_without,
    jackknife,
    likeness,
    mean_cosine,
    normalise,
    standardise,
)

LIKENESS, WORDS, MEAN = "cka", "word_cosine", "mean_cosine"


@dataclass(frozen=True, kw_only=True)
class ComparedModel:
    """The measurements of one model: `states` (n, L + 1, D) of the sampled words, and the figures of its `heads`."""

    name: str
    states: Floats
    heads: Sequence[Figure] = ()


def reference_figures(model: ComparedModel, reference: ComparedModel, seed: int) -> list[Figure]:
    """Return the CKA of each layer with each layer of the reference; if shapes agree, also the words' cosines."""
    if len(model.states) < LEAST:
        return []
    common = Figure(
        name="", value=0, n=len(model.states), unit="words", data="texts", seed=seed,
        where={"model": model.name, "reference": reference.name}, baselines={"independent": 0.0},
    )  # fmt: skip
    layers = by_layer(model), by_layer(reference)
    figures = []
    for name, change in ((LIKENESS, np.asarray), (f"{LIKENESS}_standardised", standardise)):
        # One call for the layers of both models: the block [model, reference] of the (1 + GROUPS, S, S) result.
        alike = likeness([change(rows) for model_layers in layers for rows in model_layers])[
            :, : len(layers[0]), len(layers[0]) :
        ]
        for layer, other in np.ndindex(*alike.shape[1:]):
            value = float(alike[0, layer, other])
            if np.isfinite(value):
                where = {**common.where, "layer": layer, "other": other}
                interval = interval_without(value, alike[1:, layer, other])
                figures.append(replace(common, name=name, where=where, value=value, interval=interval))
    if model.states.shape == reference.states.shape:
        figures += _word_cosines(layers, common)
    return figures


def _word_cosines(layers: tuple[Sequence[Floats], Sequence[Floats]], common: Figure) -> list[Figure]:
    means = RunningMeans()
    cosines = np.array(
        [
            (normalise(states) * normalise(reference_states)).sum(axis=1)
            for states, reference_states in zip(*layers, strict=True)
        ]
    )  # (L + 1, n)
    # One array per word (L + 1,), so that the interval of each layer is over words.
    for word in cosines.T:
        means.add(word)
    return [
        replace(
            common,
            name=WORDS,
            where={**common.where, "layer": layer},
            value=float(means.mean[layer]),
            interval=means.interval(layer),
        )
        for layer in range(len(cosines))
    ]


def own_figures(model: ComparedModel, seed: int) -> list[Figure]:
    """Return the mean cosine of two random words in each layer: 0 if isotropic, 1 if all states are parallel."""
    figures = []
    for layer, rows in enumerate(by_layer(model)):
        if (n := len(rows)) < LEAST:
            break

        # `rows` is a default argument: a closure would see the rows of the last layer.
        def cosine(index: np.ndarray, rows: Floats = rows) -> float:
            return mean_cosine(rows[index])

        value, interval = jackknife(cosine, n)
        where: dict[str, int | str] = {"model": model.name, "layer": layer}
        figures.append(
            Figure(
                name=MEAN,
                where=where,
                value=value,
                interval=interval,
                n=n,
                unit="words",
                baselines={"independent": 0.0},
                data="texts",
                seed=seed,
            )
        )
    return figures


def head_figures(model: ComparedModel) -> list[Figure]:
    """Return the figures of a model's heads, each with the model's name in `where`."""
    return [replace(figure, where={"model": model.name, **figure.where}) for figure in model.heads]


def by_layer(model: ComparedModel) -> Sequence[Floats]:
    """Return the states (n, D) of each layer, the embeddings first."""
    return list(model.states.astype(np.float64).transpose(1, 0, 2))


def of_model(figures: Sequence[Figure], name: str, where: Mapping[str, int | str]) -> list[Figure]:
    """Return the figures called `name` whose `where` contains these values."""
    return [figure for figure in figures if figure.name == name and where.items() <= figure.where.items()]
