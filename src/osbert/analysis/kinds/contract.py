"""The contract of what is measured: on which data, by reading passes or by running the model, and how it is reported.

The one public class of a file of this folder is an Analysis, which reads the passes that all share, or an Experiment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from osbert.analysis.figures import Figure
from osbert.analysis.model import AnalysedModel
from osbert.data.example import Booleans
from osbert.models.contract import Sizes
from osbert.reading.trees import Tree
from osbert.reports.page import Section

LARGEST = 2.0**15
"""The largest number of a word's state; half precision holds little more."""

Advance = Callable[[int], None]
"""Is called with a number of tokens that were read."""


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
class PlacedWords:
    """The words of a sentence with their labels (W,), and the tokens of each as a tree has them. `part`: as there."""

    words: Sequence[str]
    labels: Sequence[str]
    tokens: NDArray[np.float32]
    part: Literal["select", "score"]


@dataclass(frozen=True, kw_only=True)
class TextPass:
    """What a model computed of one text of T tokens.

    `number`: the text's place in the sample. `attention`: of each layer (H, T, T), queries in rows; nothing where the
    model has no heads. `states`: of each layer and the embeddings (T, D). `random`: the attention of a model with fresh
    weights, `random_states` (T, D): those of the layer in its middle, for trees and labelled words alone.
    """

    number: int
    marks: TokenMarks
    states: Sequence[Tensor]
    attention: Sequence[Tensor] = ()
    random: Sequence[Tensor] = ()
    random_states: Tensor | None = None
    tree: PlacedTree | None = None
    labelled: PlacedWords | None = None

    @cached_property
    def word_states(self) -> NDArray[np.float16]:
        """Return the states (L + 2, W, D) of the words of the tree or of the labelled words, the random encoder's last.

        A word's state is the mean of its pieces'.
        """
        placed = self.tree or self.labelled
        assert placed is not None and self.random_states is not None
        means = placed.tokens / placed.tokens.sum(-1, keepdims=True)  # (W, T)
        layers = (state.float().cpu().numpy() for state in (*self.states, self.random_states))
        return np.stack([np.clip(means @ state, -LARGEST, LARGEST).astype(np.float16) for state in layers])


class Investigation:
    """What a file of this folder measures: of which data, of which models, and its section of the report."""

    reads: ClassVar[str] = "texts"
    """The form of data that it needs: the name of a file of runs/analyse/forms."""
    needs_attention: ClassVar[bool] = True
    """Whether it says nothing of a model without attention."""
    least: ClassVar[str] = ""
    """What the data must hold for any figure, in words; "" where there is always one."""
    place: ClassVar[int]
    """Its place in the report."""

    @classmethod
    def obstacle(cls, model: AnalysedModel) -> str:
        """Return why it says nothing of a model, "" where it applies."""
        return "the model has no attention" if cls.needs_attention and not model.backbone.attends else ""

    @staticmethod
    def section(figures: Sequence[Figure]) -> Section:
        """Return its section of the report, from its figures alone."""
        raise NotImplementedError


class Analysis(Investigation):
    """Sums over the passes of all texts, and what follows from them.

    It keeps no pass: its memory does not grow with the number of texts.
    """

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


class Experiment(Investigation):
    """A measurement that runs the model itself: with gradients, with interventions (hooks.py), or on texts of its own.

    It changes nothing of the model that outlasts `measure`.
    """

    def work(self, sample: Any) -> int:
        """Return how many tokens `measure` reads of a sample, each as often as it is read; an estimate will do."""
        return int(sample.tokens)

    def measure(self, model: AnalysedModel, sample: Any, advance: Advance) -> list[Figure]:
        """Return what was measured on a sample, which is that of the form of data that it `reads`.

        `advance` is called with the number of tokens that were read since it was last called.
        """
        raise NotImplementedError


class LanguageExperiment(Experiment):
    """A measurement of what a model predicts: it needs a language head, and no attention."""

    needs_attention = False

    @classmethod
    def obstacle(cls, model: AnalysedModel) -> str:
        """Return why it says nothing of a model: no pieces are predicted."""
        return model.mute
