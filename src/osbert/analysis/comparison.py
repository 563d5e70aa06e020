"""Several models on the same texts: how alike their layers are, how far they moved, and their heads side by side.

Layers are compared on one word of each text, the mean of its pieces, so that models of different tokenizers can be.
All models are compared with one of them, the reference. The cosine of a word's state in both says more than CKA where
models are steps of one training; elsewhere their numbers have nothing to do with each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from osbert.analysis.figures import Figure, Floats, RunningMeans
from osbert.analysis.likeness import (
    LEAST,
    interval_without,
    jackknife,
    likeness,
    mean_cosine,
    normed,
    standardised,
)

LIKENESS, WORDS, MEAN = "cka", "word_cosine", "mean_cosine"


@dataclass(frozen=True, kw_only=True)
class ComparedModel:
    """What was measured of one model: `states` (n, L + 1, D) of the drawn words, and the figures of its `heads`."""

    name: str
    states: Floats
    heads: Sequence[Figure] = ()


def reference_figures(model: ComparedModel, reference: ComparedModel, seed: int) -> list[Figure]:
    """Return the CKA of each layer of a model with each of the reference, and of equal widths the words' cosines."""
    if len(model.states) < LEAST:
        return []
    common = Figure(
        name="", value=0, n=len(model.states), unit="words", data="texts", seed=seed,
        where={"model": model.name, "reference": reference.name}, baselines={"independent": 0.0},
    )  # fmt: skip
    layers = by_layer(model), by_layer(reference)
    found = []
    for name, change in ((LIKENESS, np.asarray), (f"{LIKENESS}_standardised", standardised)):
        alike = likeness([change(rows) for own in layers for rows in own])[:, : len(layers[0]), len(layers[0]) :]
        for layer, other in np.ndindex(*alike.shape[1:]):
            value = float(alike[0, layer, other])
            if np.isfinite(value):
                where = {**common.where, "layer": layer, "other": other}
                interval = interval_without(value, alike[1:, layer, other])
                found.append(replace(common, name=name, where=where, value=value, interval=interval))
    if model.states.shape == reference.states.shape:
        found += _word_cosines(layers, common)
    return found


def _word_cosines(layers: tuple[Sequence[Floats], Sequence[Floats]], common: Figure) -> list[Figure]:
    means = RunningMeans()
    cosines = np.array(
        [(normed(one) * normed(two)).sum(axis=1) for one, two in zip(*layers, strict=True)]
    )  # (L + 1, n)
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
    """Return the mean cosine of two random words in each layer of a model."""
    found = []
    for layer, rows in enumerate(by_layer(model)):
        if (n := len(rows)) < LEAST:
            break

        def cosine(index: np.ndarray, rows: Floats = rows) -> float:
            return mean_cosine(rows[index])

        value, interval = jackknife(cosine, n)
        where: dict[str, int | str] = {"model": model.name, "layer": layer}
        found.append(
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
    return found


def head_figures(model: ComparedModel) -> list[Figure]:
    """Return the figures of a model's heads with its name."""
    return [replace(one, where={"model": model.name, **one.where}) for one in model.heads]


def by_layer(model: ComparedModel) -> Sequence[Floats]:
    """Return the states (n, D) of each layer, the embeddings first."""
    return list(model.states.astype(np.float64).transpose(1, 0, 2))


def of_model(figures: Sequence[Figure], name: str, where: Mapping[str, int | str]) -> list[Figure]:
    """Return the figures of a name whose `where` has these values."""
    return [one for one in figures if one.name == name and where.items() <= one.where.items()]
