"""The contract of an analysis: what data it reads, what it adds of one text, its figures, its section of the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from osbert.analysis.figures import Figure
from osbert.data.example import Booleans
from osbert.models.contract import Sizes
from osbert.reading.trees import Tree
from osbert.reports.page import Section


@dataclass(frozen=True, kw_only=True)
class TokenMarks:
    """Which tokens of a text are what, each (T,)."""

    first: Booleans
    """The special pieces before the text: [CLS]."""
    separator: Booleans
    """All other special pieces: [SEP]."""
    punctuation: Booleans
    """Pieces of punctuation alone."""


@dataclass(frozen=True, kw_only=True)
class PlacedTree:
    """A tree with the tokens of its words: `tokens` (W, T), 1 where a token is a piece of a word.

    `part`: whether heads are chosen or scored on it.
    """

    tree: Tree
    tokens: NDArray[np.float32]
    part: Literal["select", "score"]


@dataclass(frozen=True, kw_only=True)
class TextPass:
    """What a model computed of one text of T tokens.

    `number`: the text's place in the sample. `attention`: of each layer (H, T, T), queries in rows; nothing where the
    model has no heads. `states`: of each layer and the embeddings (T, D). `random`: the attention of a model with fresh
    weights, for trees alone.
    """

    number: int
    marks: TokenMarks
    states: Sequence[Tensor]
    attention: Sequence[Tensor] = ()
    random: Sequence[Tensor] = ()
    tree: PlacedTree | None = None


class Analysis:
    """Sums over the passes of all texts, and what follows from them. The one public class of its file.

    It keeps no pass: its memory does not grow with the number of texts.
    """

    reads: ClassVar[str] = "texts"
    """The form of data that it needs: the name of a file of runs/analyse/forms."""
    needs_attention: ClassVar[bool] = True
    """Whether it says nothing of a model without attention."""
    place: ClassVar[int]
    """Its place in the report."""

    def __init__(self, sizes: Sizes, seed: int) -> None:
        """Begin with a model's sizes; `seed` is that of all sampling."""
        self.sizes = sizes
        self.seed = seed

    def add(self, text: TextPass) -> None:
        """Add what one text gives."""
        raise NotImplementedError

    def figures(self) -> list[Figure]:
        """Return what was measured."""
        raise NotImplementedError

    @staticmethod
    def section(figures: Sequence[Figure]) -> Section:
        """Return its section of the report, from its figures alone."""
        raise NotImplementedError
