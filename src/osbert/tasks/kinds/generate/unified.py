"""Sources and targets for a unified model (UniLM, Dong et al. 2019, section 2.4)."""

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
    """Lays out sources and targets with a packer: `before source between target end`, each with its own segment.

    `most`: pieces of a target at most, its end included. `name`: that of the labels. `writes`: where the model predicts
    a piece of it.
    """

    packer: Packer
    most: int
    name: str
    writes: Writing

    @property
    def room(self) -> int:
        """Return the most pieces of a source."""
        form = self.packer.form
        return max(0, self.packer.length - len(form.before) - len(form.between) - self.most)

    def prompt(self, source: str, *, record: int = 0) -> Example:
        """Return a source as the prompt of a target. Pieces that do not fit are cut from its end and counted."""
        example = source_of(self.packer.tokenizer.encode(source), self.packer, most=self.most)
        example = with_mask(example, self.packer) if self.writes == "masked" else example
        return dataclasses.replace(example, record=record)

    def with_target(self, source: str, target: str, *, record: int = 0) -> Example:
        """Return a source and its target without labels. `add_labels` adds these, sampled anew at each call.

        A target with more than `most` pieces is cut and then has no end piece.
        """
        before = source_of(self.packer.tokenizer.encode(source), self.packer, most=self.most)
        ids = self.packer.tokenizer.encode(target)
        example = with_target(before, ids[: self.most], self.packer, closed=len(ids) < self.most)
        cut = example.truncated + max(0, len(ids) - self.most)
        return dataclasses.replace(example, record=record, truncated=cut)

    def add_labels(self, examples: Examples, noise: Noise, *, rate: float) -> Examples:
        """Mask a fraction `rate` of each target, or label each token with the next piece, depending on `writes`.

        The end piece belongs to the target.
        """
        objective = UnifiedLanguage(prediction=self.writes, rate=rate, sources=False)
        labelled_examples = objective.corrupt_all(examples, self.packer, noise)
        return dataclasses.replace(labelled_examples, targets={self.name: labelled_examples.targets[objective.name]})
