"""Word order: the pieces of some trigrams are shuffled; which piece belongs where (StructBERT, Wang et al. 2019)?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from osbert.data.corrupt import quotas, sample_items
from osbert.data.example import Booleans, Example, Places, ranges, rows
from osbert.data.examples import Examples, Targets
from osbert.data.noise import Noise
from osbert.data.pack import Packer
from osbert.objectives.contract import Answers, Objective

if TYPE_CHECKING:
    from osbert.models.contract import Backbone, Head


@dataclass(frozen=True, kw_only=True)
class WordOrder(Objective):
    """Shuffles the pieces of some runs of `size`; the label of each position is the piece that stood there.

    The paper's word structural objective (equation 1), which trains together with mlm, of equal weight. Pieces that mlm
    has chosen stay where they are, so mlm is named first. Each order of a run is equally likely, the original one too.
    The head has weights of its own, apart from the table of pieces.
    """

    title: ClassVar[str] = "word order"
    answers: ClassVar[Answers] = "pieces"
    after_noise: ClassVar[bool] = True

    rate: float = 0.05
    """Shuffled runs as a fraction of a sequence's tokens."""
    size: int = 3
    """Pieces of a run (K in the paper)."""

    def __post_init__(self) -> None:
        """Raise ValueError for settings out of range."""
        if self.size < 2 or not 0 < self.rate * self.size <= 1:
            raise ValueError(
                f"size must be at least 2, and rate above 0 and at most 1 / size, not {self.size} and {self.rate}"
            )

    def corrupt_all(self, examples: Examples, packer: Packer, noise: Noise) -> Examples:
        """Return the examples with shuffled runs; the labels are the pieces in their order."""
        firsts, counts = self._choose_runs(examples, noise)
        index = firsts[:, None] + np.arange(self.size)  # (R, size)
        row, number = rows(counts * self.size)
        keys = noise.stream(2).words(row, number).reshape(index.shape)
        labels = examples.ids[index]
        ids = examples.ids.copy()
        ids[index] = np.take_along_axis(labels, np.argsort(keys, axis=1), axis=1)
        targets = Targets(labels=labels.ravel(), counts=counts * self.size, index=index.ravel())
        return examples.with_target(ids=ids, name=self.name, targets=targets)

    def _choose_runs(self, examples: Examples, noise: Noise) -> tuple[Places, Places]:
        """Return the first tokens of the runs to shuffle (R,), ascending, and their number in each example (B,).

        A text is cut into runs from a random offset on, so that no two overlap. Those without a special or masked token
        are equally likely.
        """
        owners = np.repeat(np.arange(len(examples)), examples.lengths)
        local = ranges(np.zeros_like(examples.lengths), examples.lengths)
        every = np.arange(len(examples))
        offsets = noise.stream(0).below(self.size, every, np.zeros_like(every))
        starts = ((local - offsets[owners]) % self.size == 0) & (local + self.size <= examples.lengths[owners])
        free = _free(examples)
        for follower in range(self.size):
            starts[: len(free) - follower] &= free[follower:]
        candidates = np.flatnonzero(starts)
        sizes = np.diff(np.searchsorted(candidates, examples.starts), append=len(candidates))
        counts = np.minimum(quotas(examples.lengths, rate=self.rate), sizes)
        return candidates[np.flatnonzero(sample_items(sizes, counts, noise.stream(1)))], counts

    def rates(self, examples: Sequence[Example]) -> Iterator[tuple[str, str, str]]:
        """Yield the shuffled pieces as a fraction of all tokens, and those of them that stand elsewhere now."""
        targets = [(example, example.targets[self.name]) for example in examples if self.name in example.targets]
        labels = sum(len(target.labels) for _, target in targets)
        moved = sum(int((example.ids[target.index] != target.labels).sum()) for example, target in targets)
        yield (
            "shuffled, of all tokens",
            f"{labels / max(1, sum(map(len, examples))):.2%}",
            f"{self.rate * self.size:.2%}",
        )
        yield "  moved", f"{moved / max(1, labels):.2%}", f"at most {1 - 1 / self.size:.2%}"

    def head(self, backbone: Backbone) -> Head:
        """Return a masked-language head, which predicts the piece of each shuffled position."""
        from osbert.models.heads.predictions import MaskedLanguageHead

        self.require_fit(backbone.architecture)
        head = MaskedLanguageHead(backbone, target=self.name)
        head.form = ""  # a published folder has room for one language head, that of mlm
        return head


def _free(examples: Examples) -> Booleans:
    """Return the tokens (N,) that may move: neither special nor chosen by mlm."""
    free = ~examples.special
    masked = examples.targets.get("mlm")
    if masked is not None:
        assert masked.index is not None
        free[masked.index] = False
    return free
