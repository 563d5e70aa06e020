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
from osbert.data.sequences import Sequences
from osbert.text.document import Document
from osbert.text.tokenizer import Form

if TYPE_CHECKING:
    from osbert.models.contract import Backbone, Head, Sizes

Answers = Literal["pieces", "pair", "rare", "others"]
"""The kind of labels: pieces of the vocabulary; a binary label for a pair of texts; a rare positive label for each
token; or something else."""


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
    """Fewest documents that `examples` needs at a time; parts of one source count once. The loader guarantees it, or
    raises an error before the run begins."""
    document_sentences: ClassVar[int] = 0
    """Sentences of a document that it can use, which no line may have lost; it skips others. 0: any number."""
    whole: ClassVar[bool] = False
    """Whether its loss compares all sequences of a step (in-batch negatives). The step is then one pass, and
    data.micro_tokens has no effect."""
    before_noise: ClassVar[bool] = False
    """Whether `corrupt` needs the original text. Such an objective is named before those that change the text."""
    after_noise: ClassVar[bool] = False
    """Whether those that change the text must be named before it, since they would take its noise for text."""

    marked: ClassVar[bool] = False
    """Whether it needs a corpus in which capitalised words are marked (osbert corpus build --capitals)."""
    lookahead: ClassVar[int] = 0
    """How many tokens behind a sequence of a stream its labels are of (data.streams)."""

    component: ClassVar[str] = ""
    """Its name, if its file has several (osbert/components.py); "" for the name of the file."""
    title: ClassVar[str] = ""
    """Its name in the sentences of a report; "" for `name`."""
    answers: ClassVar[Answers] = "others"
    """The kind of its labels, which decides the baseline that a report compares its figures with."""
    companions: ClassVar[Mapping[str, Answers]] = {}
    """The models that its head trains beside the encoder, by the names of their targets, and the kind of their
    labels."""
    alone: ClassVar[bool] = False
    """Whether it must be the only objective that corrupts the text."""

    weight: float = 1.0
    """Factor of its mean loss in the sum over objectives that a step minimises."""

    def losses(self) -> dict[str, Answers]:
        """Return the kind of labels of each loss of its head, by name, those of its companions first."""
        return {**self.companions, self.name: self.answers}

    @property
    def name(self) -> str:
        """The name of the objective's file, which is also the name of its targets and of its head."""
        # Not inherited: a subclass elsewhere has the name of its own file.
        return vars(type(self)).get("component") or type(self).__module__.rpartition(".")[2]

    def __init_subclass__(cls) -> None:
        """Refuse a subclass whose `corrupt` would never run, because the loader calls an inherited `corrupt_all`."""
        if "corrupt" in vars(cls) and "corrupt_all" not in vars(cls) and cls.corrupt_all is not Objective.corrupt_all:
            raise TypeError(
                f"{cls.__name__}: its base class corrupts examples in batches. Implement corrupt_all instead of "
                "corrupt."
            )

    def examples(
        self, documents: Sequence[Document], packer: Packer, rng: np.random.Generator
    ) -> Iterable[Example] | None:
        """Return the examples of some documents, as Sequences or one by one; None if any layout will do."""
        return None

    def room(self, length: int, specials: int) -> int:
        """Return how many tokens of text, `specials` included, fill a sequence of `length`; by default `length`.

        Objectives that shorten the text, such as T5's spans, need more text than the sequence is long.
        """
        return length

    def shortest(self, form: Form) -> int:
        """Return the fewest tokens of a sequence that it can lay out; `form`: the special pieces of sequences."""
        return 0

    def corrupt(self, example: Example, packer: Packer, rng: np.random.Generator) -> Example:
        """Return the example with this objective's noise and labels, sampled anew each epoch."""
        if type(self).corrupt_all is Objective.corrupt_all:
            return example
        return self.corrupt_all(Examples.of([example]), packer, Noise.from_rng(rng, 1))[0]

    def corrupt_all(self, examples: Examples, packer: Packer, noise: Noise) -> Examples:
        """Return many examples with this objective's noise and labels.

        An example depends on its own noise alone, so it is the same in a batch of any size and in any process.
        """
        if type(self).corrupt is Objective.corrupt:
            return examples
        return Examples.of(
            [self.corrupt(example, packer, noise.generator(row)) for row, example in enumerate(examples)]
        )

    def at(self, done: float) -> Objective:
        """Return the objective with the settings that hold after the fraction `done` (0 to 1) of the run's steps."""
        return self

    def course(self) -> str:
        """Describe how its settings change in the course of a run; "" if they do not."""
        return ""

    @classmethod
    def corrupts(cls) -> bool:
        """Return whether it changes or labels examples at all."""
        return cls.corrupt is not Objective.corrupt or cls.corrupt_all is not Objective.corrupt_all

    @classmethod
    def lays_out(cls) -> bool:
        """Return whether it lays out its own sequences. Settings such as data.cross_documents then have no effect."""
        return cls.examples is not Objective.examples

    def inputs(self) -> dict[str, str]:
        """Return fingerprints of what it reads besides the corpus, by setting; a run resumes with the same ones."""
        return {}

    def objections(self, architecture: Sizes) -> Iterator[str]:
        """Yield a message for each reason why a model cannot be trained with this objective, and what to do."""
        yield from ()

    def idle(self, sequences: Sequences) -> str:
        """Return a remark if it can learn little or nothing from such sequences, and what to do; "" if it can."""
        return ""

    def require_fit(self, architecture: Sizes) -> None:
        """Raise ValueError with all objections to a model, for heads that would learn nothing on it or see answers."""
        if objections := list(self.objections(architecture)):
            raise ValueError(" ".join(objections))

    def in_words(self, labels: NDArray[Any]) -> str:
        """Return the labels of one sequence as text, for `osbert corpus show`."""
        return ", ".join(map(str, labels.tolist()))

    def rates(self, examples: Sequence[Example]) -> Iterator[tuple[str, str, str]]:
        """Yield (name, measured rate, rate in the settings) for some corrupted examples."""
        yield from ()

    def head(self, backbone: Backbone) -> Head:
        """Return the head that turns states into this objective's loss."""
        raise NotImplementedError

    def begin(self, head: Head, counts: NDArray[np.integer]) -> None:
        """Initialise a new head from the corpus's unigram counts (V,), such as the bias of a vocabulary head.

        If the head has companions, they are initialised instead.
        """
        return
