"""toy_parity: whether a sequence has an even number of tokens, with a title and words of its own for reports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Example, Target
from osbert.data.pack import Packer
from osbert.objectives import Objective

if TYPE_CHECKING:
    from osbert.models.contract import Backbone, Head


@dataclass(frozen=True, kw_only=True)
class Parity(Objective):
    """Two classes of sequences: those of an odd and those of an even number of tokens."""

    title: ClassVar[str] = "Parity"

    def corrupt(self, example: Example, packer: Packer, rng: np.random.Generator) -> Example:
        """Return the example with the parity of its length as its label."""
        target = Target(labels=np.array([len(example) % 2], np.int64))
        return example.with_target(ids=example.ids, name=self.name, target=target)

    def in_words(self, labels: NDArray[Any]) -> str:
        """Return the parity by its name."""
        return ("even", "odd")[labels[0]]

    def rates(self, examples: Sequence[Example]) -> Iterator[tuple[str, str, str]]:
        """Yield the share of odd lengths."""
        yield "odd lengths", f"{np.mean([len(example) % 2 for example in examples]):.2%}", "any"

    def head(self, backbone: Backbone) -> Head:
        """Return a linear layer on the pooled state, two scores a sequence."""
        from osbert.models.heads.predictions import SequenceHead

        return SequenceHead(backbone, target=self.name)
