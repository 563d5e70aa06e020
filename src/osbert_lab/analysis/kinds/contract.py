"""The contract of a measurement: its data, whether it reads passes or runs the model, and its section of the report.

Each file of this folder has one public class: an Analysis, which reads the passes that all share, or an Experiment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from osbert.data.example import Booleans
from osbert.models.contract import Sizes
from osbert.reports.page import Section
from osbert_lab.analysis.advance import SILENT, Advance
from osbert_lab.analysis.figures import Figure
from osbert_lab.analysis.model import AnalysedModel
from osbert_lab.analysis.tree_files import Tree

LARGEST = 2.0**15
"""States are clipped to this range, since float16 overflows at 65504."""


@dataclass(frozen=True, kw_only=True)
class TokenMarks:
    """The kinds of the tokens of a text, each (T,)."""

    first: Booleans
    """The special pieces before the text: [CLS]."""
    separator: Booleans
    """All other special pieces: [SEP]."""
    punctuation: Booleans
    """Pieces of punctuation alone."""


@dataclass(frozen=True, kw_only=True)
class PlacedTree:
    """A tree with the tokens of its words: `tokens` (W, T), 1 where a token is a piece of the word.

    `part`: whether heads are chosen ("select") or scored ("score") on it.
    """

    tree: Tree
    tokens: NDArray[np.float32]
    part: Literal["select", "score"]


@dataclass(frozen=True, kw_only=True)
class PlacedWords:
    """The labelled words (W,) of a sentence; `tokens` and `part` as in PlacedTree."""

    words: Sequence[str]
    labels: Sequence[str]
    tokens: NDArray[np.float32]
    part: Literal["select", "score"]


@dataclass(frozen=True, kw_only=True)
class TextPass:
    """The states and the attention of a model for one text of T tokens.

    `number`: index of the text in the sample. `attention`: (H, T, T) for each layer, rows are queries; empty for a
    model without heads. `states`: (T, D) for the embeddings and each layer. `random`: the attention of a model with
    random weights, and `random_states` (T, D): the states of its middle layer; both only for trees and labelled words.
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
        """Return the states (L + 2, W, D) of the words of the tree or of the labelled words, the random encoder last.

        The state of a word is the mean over its pieces.
        """
        placed = self.tree or self.labelled
        assert placed is not None and self.random_states is not None
        # Each row averages the pieces of a word: means @ states is (W, D).
        means = placed.tokens / placed.tokens.sum(-1, keepdims=True)  # (W, T)
        layers = (state.float().cpu().numpy() for state in (*self.states, self.random_states))
        return np.stack([np.clip(means @ state, -LARGEST, LARGEST).astype(np.float16) for state in layers])


class Investigation:
    """A measurement: the data and the models that it needs, and its section of the report."""

    reads: ClassVar[str] = "texts"
    """The form of data that it reads: the name of a file of analysis/forms."""
    needs_attention: ClassVar[bool] = True
    """Whether it needs a model with attention."""
    least: ClassVar[str] = ""
    """The least data for any figure, as a phrase; "" if any data is enough."""
    position: ClassVar[int]
    """Its position in the report; sections are sorted by it."""

    @classmethod
    def obstacle(cls, model: AnalysedModel) -> str:
        """Return why it does not apply to a model; "" if it does."""
        return "the model has no attention" if cls.needs_attention and not model.backbone.attends else ""

    @staticmethod
    def section(figures: Sequence[Figure]) -> Section:
        """Return its section of the report, from its figures alone."""
        raise NotImplementedError


class Analysis(Investigation):
    """A measurement from running sums over the passes of all texts.

    It keeps no pass, so its memory does not grow with the number of texts.
    """

    def __init__(self, sizes: Sizes, seed: int) -> None:
        """Start with the sizes of a model. `seed`: that of all sampling."""
        self.sizes = sizes
        self.seed = seed

    def add(self, text: TextPass) -> None:
        """Add one text to the running sums or samples."""
        raise NotImplementedError

    def figures(self) -> list[Figure]:
        """Return the figures of all texts that were added."""
        raise NotImplementedError


class TrainedAnalysis(Analysis):
    """An analysis that trains probes on a sample of what was added."""

    @property
    def training(self) -> int:
        """Return how many items `figures` trains on, those of every probe counted; 0 if there are too few."""
        raise NotImplementedError

    def figures(self, advance: Advance = SILENT) -> list[Figure]:
        """Return the figures; call `advance` with the items trained on since the last call."""
        raise NotImplementedError


class Experiment(Investigation):
    """A measurement that runs the model itself: with gradients, interventions (hooks.py) or its own texts.

    `measure` leaves the model as it was.
    """

    def work(self, model: AnalysedModel, sample: Any) -> int:
        """Return the number of tokens that `measure` reads of a sample, repeats included; an estimate is enough."""
        return int(sample.tokens)

    def measure(self, model: AnalysedModel, sample: Any, advance: Advance) -> list[Figure]:
        """Return the figures of a sample of the form of data that it `reads`.

        It calls `advance` with the number of tokens read since the last call; what it trains is another part of it.
        """
        raise NotImplementedError


class LanguageExperiment(Experiment):
    """A measurement of predictions: it needs a language head, but no attention."""

    needs_attention = False

    @classmethod
    def obstacle(cls, model: AnalysedModel) -> str:
        """Return why the model predicts no pieces; "" if it does."""
        return model.mute
