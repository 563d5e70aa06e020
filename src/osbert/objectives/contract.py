"""The contract of an objective: documents to examples, their corruption, and the head that has the loss.

An objective is a frozen dataclass whose fields are its settings. It imports no torch on the data side, so that loader
workers stay light; its head, the torch side, is imported inside `head`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Example
from osbert.data.examples import Examples
from osbert.data.noise import Noise
from osbert.data.pack import Packer
from osbert.text.document import Document

if TYPE_CHECKING:
    from osbert.models.contract import Backbone, Head, Sizes

Answers = Literal["pieces", "pair", "rare", "others"]
"""What labels are: pieces of the vocabulary; one of two answers for a pair of texts; whether each token is one of few;
or something else."""


@dataclass(frozen=True, kw_only=True)
class Objective:
    """Documents -> examples -> corrupted examples, and the head that turns states into a loss.

    Several objectives train together: the first one that lays out examples does so for all, and each corrupts or labels
    every example. Noise and labels are written once: for one example (`corrupt`), or for many on arrays
    (`corrupt_all`), which is many times faster. The other method follows from it.
    """

    pairs: ClassVar[bool] = False
    """Whether its examples are pairs of texts."""
    fewest_documents: ClassVar[int] = 1
    """How many documents `examples` needs at a time, parts of one source counting once; the loader sees to it, or says
    before any work that it cannot."""
    whole: ClassVar[bool] = False
    """Whether its loss compares all sequences of a step, which is then one pass whatever data.micro_tokens says."""
    before_noise: ClassVar[bool] = False
    """Whether `corrupt` must see the text as it is: the objective is then named before those that change it."""

    lookahead: ClassVar[int] = 0
    """How many tokens behind a sequence of a stream its labels are of (data/streams.py)."""

    title: ClassVar[str] = ""
    """What the sentences of a report call it; "" for its name."""
    answers: ClassVar[Answers] = "others"
    """What its labels are: by it a report compares its figures with those of a guess."""
    companions: ClassVar[Mapping[str, Answers]] = {}
    """The models that its head trains beside the encoder, which have targets of their own by these names, with what
    their labels are."""
    alone: ClassVar[bool] = False
    """Whether no other objective may give the text noise."""

    weight: float = 1.0
    """Factor of its mean loss in the sum over objectives that a step minimises."""

    def losses(self) -> dict[str, Answers]:
        """Return the names of its head's losses, those of its companions first, with what their labels are."""
        return {**self.companions, self.name: self.answers}

    @property
    def name(self) -> str:
        """The name of the objective's file, under which its targets and its head stand."""
        return type(self).__module__.rpartition(".")[2]

    def __init_subclass__(cls) -> None:
        """Refuse a `corrupt` that the loader, which asks for `corrupt_all`, would pass over."""
        if "corrupt" in vars(cls) and "corrupt_all" not in vars(cls) and cls.corrupt_all is not Objective.corrupt_all:
            raise TypeError(f"{cls.__name__}: the class it builds on corrupts many examples at once; write corrupt_all")

    def examples(
        self, documents: Sequence[Document], packer: Packer, rng: np.random.Generator
    ) -> Iterable[Example] | None:
        """Return the examples of some documents, as Sequences or one by one; None when any layout will do."""
        return None

    def room(self, length: int, specials: int) -> int:
        """Return how many tokens of text, `specials` among them, become a sequence of `length`; usually as many."""
        return length

    def corrupt(self, example: Example, packer: Packer, rng: np.random.Generator) -> Example:
        """Return the example with this objective's noise and labels, drawn anew each epoch."""
        if type(self).corrupt_all is Objective.corrupt_all:
            return example
        return self.corrupt_all(Examples.of([example]), packer, Noise.drawn(rng, 1))[0]

    def corrupt_all(self, examples: Examples, packer: Packer, noise: Noise) -> Examples:
        """Return many examples with this objective's noise and labels; each is a function of its own noise alone."""
        if type(self).corrupt is Objective.corrupt:
            return examples
        return Examples.of(
            [self.corrupt(example, packer, noise.generator(row)) for row, example in enumerate(examples)]
        )

    def at(self, done: float) -> Objective:
        """Return the objective as it is after a share `done` (0 to 1) of the run's steps; usually itself."""
        return self

    def course(self) -> str:
        """Return in words how it changes in the course of a run; "" where it does not."""
        return ""

    @classmethod
    def corrupts(cls) -> bool:
        """Return whether it gives examples noise or labels, one by one or many at a time."""
        return cls.corrupt is not Objective.corrupt or cls.corrupt_all is not Objective.corrupt_all

    @classmethod
    def lays_out(cls) -> bool:
        """Return whether it lays out sequences of its own, for which settings such as data.cross_documents are none."""
        return cls.examples is not Objective.examples

    def objections(self, architecture: Sizes) -> Iterator[str]:
        """Yield what makes an encoder unfit for this objective, each in words that say what to do; usually nothing."""
        yield from ()

    def in_words(self, labels: NDArray[Any]) -> str:
        """Return the labels of one sequence as a reader of the corpus sees them."""
        return ", ".join(map(str, labels.tolist()))

    def rates(self, examples: Sequence[Example]) -> Iterator[tuple[str, str, str]]:
        """Yield a name, the rate over some corrupted examples, and the one that is set; usually nothing."""
        yield from ()

    def head(self, backbone: Backbone) -> Head:
        """Return the head that turns states into this objective's loss."""
        raise NotImplementedError

    def begin(self, head: Head, counts: NDArray[np.integer]) -> None:
        """Set what a new head can know from the corpus's unigram counts (V,) before the first step; else nothing.

        Of a head with companions these are what is new and can know it.
        """
        return


@dataclass(frozen=True, kw_only=True)
class WritingObjective(Objective):
    """An objective whose examples have a source, and labels that a decoder writes from it (data/written.py)."""

    answers: ClassVar[Answers] = "pieces"
    alone: ClassVar[bool] = True

    def objections(self, architecture: Sizes) -> Iterator[str]:
        """Yield that there must be a decoder."""
        if not architecture.has_decoder:
            family = architecture.family
            yield f'{self.name} needs a decoder, which model.family = {family} has not. Set family = "pair".'

    def head(self, backbone: Backbone) -> Head:
        """Return the language-model head on the decoder. Raises ValueError where there is none."""
        from osbert.models.heads.predictions import MaskedLanguageHead

        if objections := list(self.objections(backbone.architecture)):
            raise ValueError(" ".join(objections))
        return MaskedLanguageHead(backbone, target=self.name)
