"""A source and its target as a unified model reads them (UniLM, Dong et al. 2019, section 2.4)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from osbert.data.example import Example
from osbert.data.examples import Examples
from osbert.data.modes import Writing, source_of, with_mask, with_target
from osbert.data.noise import Noise
from osbert.data.pack import Packer
from osbert.objectives.unified import UnifiedLanguage


@dataclass(frozen=True, kw_only=True)
class UnifiedLayout:
    """How sources and targets are laid out by a packer: `before source between target end`, in segments of their own.

    `most`: pieces of a target at most, its end included. `name`: that of the labels. `writes`: where the model predicts
    a piece of it.
    """

    packer: Packer
    most: int
    name: str
    writes: Writing

    @property
    def room(self) -> int:
        """Return how many pieces of a source are read."""
        form = self.packer.form
        return max(0, self.packer.length - len(form.before) - len(form.between) - self.most)

    def prompt(self, source: str, *, record: int = 0) -> Example:
        """Return a source as a sequence that a target follows; what does not fit is cut from its end and counted."""
        found = source_of(self.packer.tokenizer.encode(source), self.packer, most=self.most)
        found = with_mask(found, self.packer) if self.writes == "masked" else found
        return dataclasses.replace(found, record=record)

    def with_target(self, source: str, target: str, *, record: int = 0) -> Example:
        """Return a source and its target, without labels: `labelled` gives them, anew whenever it is called.

        Of a target with more than `most` pieces the first are learnt, and no end.
        """
        before = source_of(self.packer.tokenizer.encode(source), self.packer, most=self.most)
        ids = self.packer.tokenizer.encode(target)
        found = with_target(before, ids[: self.most], self.packer, closed=len(ids) < self.most)
        cut = found.truncated + max(0, len(ids) - self.most)
        return dataclasses.replace(found, record=record, truncated=cut)

    def labelled(self, examples: Examples, noise: Noise, *, rate: float) -> Examples:
        """Return sources and targets with a share `rate` of each target masked, or with the next pieces as labels.

        The end of a target is a piece of it.
        """
        objective = UnifiedLanguage(prediction=self.writes, rate=rate, sources=False)
        found = objective.corrupt_all(examples, self.packer, noise)
        return dataclasses.replace(found, targets={self.name: found.targets[objective.name]})
