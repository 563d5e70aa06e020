"""The contract of a way to ask a model for classes by name: a text becomes sequences, their outputs become scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Example
from osbert.data.pack import Packer
from osbert.inference.label_settings import LabelName, LabelNames, NamingOptions
from osbert.tasks import Record

if TYPE_CHECKING:
    from osbert.inference.model import LoadedModel

Logits = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class CandidateRecord(Record):
    """A text with the classes that are asked for, of which it has one, or with --multi any number.

    `record`: the text as its task reads it.
    """

    candidates: LabelNames = ()
    record: Record | None = None


class LabelScorer(ABC):
    """One way to score the candidates of a text. `packer`: lays out its sequences.

    Sequences of many texts are computed together (`outputs`), whatever their candidates are.
    """

    template: ClassVar[str]
    """The sentence in which a class is asked for where the user gives none."""
    joint: ClassVar[bool] = True
    """Whether scores are of classes of which one holds; otherwise each can hold by itself, too."""
    calibrated: ClassVar[bool] = False
    """Whether probabilities are calibrated where the user does not say."""

    packer: Packer

    def __init__(self, engine: LoadedModel, options: NamingOptions, *, tokens: int) -> None:
        """Use a model. `tokens`: most tokens in a batch. Raises UserError if the template cannot be used."""
        self.engine = engine
        self.tokens = tokens
        self.multi = options.multi
        self.packer = engine.packer
        self.before, self.behind = options.template_or(self.template)

    @property
    @abstractmethod
    def description(self) -> str:
        """What the model does with a text and the name of a class, in a sentence."""

    def reads(self, label: LabelName) -> str:
        """Return what the model reads for a class."""
        return f"{self.before}{label.text}{self.behind}"

    def problems(self, label: LabelName) -> Iterator[str]:
        """Yield why a class cannot be asked for."""
        if not len(self.packer.tokenizer.encode(self.reads(label))):
            yield "the model's tokenizer finds nothing to read in it"

    @abstractmethod
    def sequences(self, text: str, labels: LabelNames) -> list[Example]:
        """Return the sequences of a text; `truncated` of all together counts the pieces that are not read."""

    @abstractmethod
    def outputs(self, examples: Sequence[Example]) -> Sequence[Any]:
        """Return the model's output for each sequence."""

    @abstractmethod
    def logits(self, outputs: Sequence[Any], labels: LabelNames, examples: Sequence[Example]) -> Logits:
        """Return the scores (K,) of the classes from the outputs of a text's sequences: log-odds if several may hold,
        else with a softmax that is the probability of each."""
