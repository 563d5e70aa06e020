"""The settings of word2vec and GloVe. This module does not import torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from osbert import recipe
from osbert.errors import UserError, nearest

KEY = "vectors"
"""The setting that marks a recipe for static vectors; its value is the method."""
TABLES = "tables.npy"
"""File of the tables, which all processes of a run map into memory."""


@dataclass(frozen=True, kw_only=True)
class StaticSettings:
    """Settings of both methods."""

    vectors: Literal["word2vec", "glove"] = "word2vec"
    """The method: word2vec or glove."""
    width: int = 100
    """Dimension of the vectors."""
    window: int = 5
    """Most words on each side in the context of a word."""
    epochs: int = 5
    """Passes over the corpus, or for glove over the counts."""
    minutes: float = 0.0
    """Time budget for the whole run in minutes; 0 for none. It replaces epochs: passes are repeated, or the first one
    ends early, until the time is up. glove counts pairs for at most a third of it."""
    learning_rate: float = 0.025
    """Initial learning rate. word2vec lowers it linearly to 1e-4 of it; glove adapts it per number (AdaGrad)."""
    seed: int = 0
    """Seed of the initial vectors; with one process, of the whole result."""
    workers: int = 0
    """Parallel processes; 0 for one per core, at most OMP_NUM_THREADS. Several processes update the same vectors
    without locks, so two runs differ slightly. With one process, and no minutes, the result is reproducible."""

    def __post_init__(self) -> None:
        """Refuse numbers that make no run."""
        for name, least in (("width", 1), ("window", 1), ("epochs", 1), ("seed", 0), ("workers", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)}")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate must be above 0, not {self.learning_rate}")
        if not 0 <= self.minutes < float("inf"):
            raise ValueError(f"minutes must be above 0, or 0 to train for the epochs, not {self.minutes}")


@dataclass(frozen=True, kw_only=True)
class Word2VecSettings(StaticSettings):
    """word2vec (Mikolov et al. 2013), with negative sampling."""

    vectors: Literal["word2vec"] = "word2vec"
    """The method; another one has a recipe of its own."""
    method: Literal["skip-gram", "cbow"] = "skip-gram"
    """skip-gram: each word predicts those around it. cbow: the mean of the words around a word predicts it."""
    negative: int = 5
    """Noise words per prediction."""
    sample: float = 1e-3
    """Subsampling: words above this frequency are dropped at random, frequent ones more often; 0 for none."""

    def __post_init__(self) -> None:
        """Refuse numbers that make no run."""
        super().__post_init__()
        if self.negative < 1:
            raise ValueError(f"negative must be at least 1, not {self.negative}")
        if not 0 <= self.sample <= 1:
            raise ValueError(f"sample must be from 0 to 1, not {self.sample}")


@dataclass(frozen=True, kw_only=True)
class GloveSettings(StaticSettings):
    """GloVe (Pennington et al. 2014), section 4.2."""

    vectors: Literal["glove"] = "glove"
    """The method; another one has a recipe of its own."""
    window: int = 15
    """Most words on each side that a word is counted with."""
    epochs: int = 25
    """Passes over the counts."""
    learning_rate: float = 0.05
    """Learning rate of AdaGrad."""
    largest: float = 100.0
    """x_max: pairs with at least this count have weight 1."""
    exponent: float = 0.75
    """alpha: exponent of the weight of pairs with lower counts."""

    def __post_init__(self) -> None:
        """Refuse numbers that make no run."""
        super().__post_init__()
        for name in ("largest", "exponent"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")


MethodSettings = Word2VecSettings | GloveSettings
KINDS: Mapping[str, type[MethodSettings]] = {"word2vec": Word2VecSettings, "glove": GloveSettings}


def vector_schema(table: Mapping[str, Any]) -> type[MethodSettings] | None:
    """Return the settings class of a recipe for static vectors; None for any other recipe.

    Raises UserError for an unknown method.

    >>> vector_schema({"vectors": "glove"}).__name__, vector_schema({"objectives": ["mlm"]})
    ('GloveSettings', None)
    """
    if KEY not in table:
        return None
    name = table[KEY]
    if name not in KINDS:
        raise UserError(
            f"{KEY} must be one of {', '.join(KINDS)}, not {name!r}.{nearest(str(name), KINDS)}", code="invalid-value"
        )
    return KINDS[name]


def read_vector_settings(name: str, given: Mapping[str, Any]) -> MethodSettings | None:
    """Return the settings of a recipe, overlaid with those `given`; None if it is not for static vectors."""
    table = recipe.read(name) if name else {}
    schema = vector_schema(table)
    if schema is None:
        return None
    return recipe.build(schema, recipe.override(table, given, schema=schema), where=name)
