"""The settings of an analysis: how much of the data is read, and the seed."""

from __future__ import annotations

from dataclasses import dataclass, field

from osbert.corpus.task_options import TaskOptions
from osbert.errors import Problems
from osbert.interop.opening import CAREFUL, Opening
from osbert.reading.documents import DocumentOptions


@dataclass(frozen=True, kw_only=True)
class SampleOptions:
    """How much of the texts is read, and the seed."""

    texts: int = 1000
    """Most texts that are read; more are sampled down to this number."""
    length: int = 128
    """Most tokens of a text, or the model's limit if that is lower. Of a longer text a random part is read. Trees are
    read whole."""
    shortest: int = 8
    """Fewest tokens of a text; shorter ones are left out and counted."""
    seed: int = 0
    """The seed of all sampling: texts, trees, tokens, and the weights of the random encoder."""
    only: str = ""
    """The analyses to run, names with commas between, such as heads,relations; by default all that apply."""
    device: str = "auto"
    """cpu, cuda or cuda:N. auto: a GPU if there is one."""

    @property
    def names(self) -> list[str]:
        """The names in `only`."""
        return [name for part in self.only.split(",") if (name := part.strip())]

    def check(self) -> None:
        """Raise UserError that lists every invalid value."""
        problems = Problems(heading="These settings cannot be used")
        least = {"texts": 1, "trees": 1, "pairs": 1, "length": self.shortest, "shortest": 1, "seed": 0}
        for name, value in vars(self).items():
            if name in least and value < least[name]:
                problems.add(f"--{name} must be at least {least[name]}, not {value}.", code="invalid-value")
        problems.stop_if_any()


@dataclass(frozen=True, kw_only=True)
class AnalysisOptions(SampleOptions):
    """How much of the data is read, and the seed."""

    trees: int = 2000
    """Most trees to choose heads on, and most to score them on."""
    pairs: int = 50
    """Most minimal pairs of a paradigm, and most facts of a relation."""


@dataclass(frozen=True, kw_only=True)
class AnalysisRequest:
    """How a model is analysed: how much is read, how files are read, how the model is opened, and on what machines."""

    analysis: AnalysisOptions = AnalysisOptions()
    file: DocumentOptions = field(default_factory=DocumentOptions)
    opening: Opening = CAREFUL
    work: TaskOptions = field(default_factory=TaskOptions)


@dataclass(frozen=True, kw_only=True)
class ComparisonRequest:
    """How models are compared: how much is read, how files are read, and how the models are opened."""

    analysis: SampleOptions = SampleOptions()
    file: DocumentOptions = field(default_factory=DocumentOptions)
    opening: Opening = CAREFUL
