"""One model that reads and writes: masked pieces from both sides, from one, and from a source ("UniLM", Dong 2019)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from osbert.data.corrupt import quotas
from osbert.data.example import Booleans, Example
from osbert.data.examples import Examples, Targets
from osbert.data.modes import LEFT_TO_RIGHT, RIGHT_TO_LEFT, SEGMENTS, SOURCE, TARGET, Writing, orders
from osbert.data.noise import Noise
from osbert.data.pack import Packer, shares
from osbert.data.pairs import consecutive
from osbert.data.ragged import Places, begins, ranges
from osbert.data.sequences import Sequences
from osbert.objectives.mlm import MaskedLanguage
from osbert.text.document import Document, Documents

if TYPE_CHECKING:
    from osbert.models.contract import Backbone, Head, Sizes

KINDS = max(max(segments) for segments in SEGMENTS.values()) + 1
"""Segments that a model must have."""


@dataclass(frozen=True, kw_only=True)
class UnifiedLanguage(MaskedLanguage):
    """Each sequence is of one of four modes, which its segments tell; its mode says which tokens a token sees.

    In modes both and sequence_to_sequence a sequence is two consecutive texts of a document, in the other two the same
    stretch as one text. What is predicted is masked as mlm masks. The last [SEP] of a target is a piece like others:
    by it the model learns to end a text.
    """

    title: ClassVar[str] = "unified prediction"
    alone: ClassVar[bool] = True

    both: float = 2.0
    """How often a token sees all of its sequence, beside the other modes: 2, 1, 1 and 2 are a third, a sixth, a sixth
    and a third of the sequences (section 2.3)."""
    left_to_right: float = 1.0
    """How often it sees itself and the tokens before it."""
    right_to_left: float = 1.0
    """How often it sees itself and the tokens after it."""
    sequence_to_sequence: float = 2.0
    """How often it sees the source and, in the target, the tokens of the target before it and itself."""
    prediction: Writing = "masked"
    """masked: pieces are predicted at the [MASK] in their place; shifted: at the token before them (of right_to_left,
    after them), all of them, and masked in mode both alone."""
    sources: bool = True
    """With masked: whether pieces of a source are predicted, too; False for those of its target alone, of which `rate`
    is then the share (fine-tuning, section 2.4: 0.7)."""

    @property
    def mix(self) -> tuple[float, ...]:
        """Return the probabilities of the modes, in the order of `data.modes.SEGMENTS`.

        >>> [round(one, 3) for one in UnifiedLanguage().mix]
        [0.333, 0.167, 0.167, 0.333]
        """
        parts = (self.both, self.left_to_right, self.right_to_left, self.sequence_to_sequence)
        return tuple(part / sum(parts) for part in parts)

    def __post_init__(self) -> None:
        """Refuse a mix that is none."""
        super().__post_init__()
        parts = {name: getattr(self, name) for name in SEGMENTS}
        if min(parts.values()) < 0 or not 0 < sum(parts.values()) < float("inf"):
            raise ValueError(f"{', '.join(parts)} must be 0 or more, and one above 0, not {list(parts.values())}")

    def examples(self, documents: Sequence[Document], packer: Packer, rng: np.random.Generator) -> Sequences:
        """Return sequences that walk through each document in turn, each of a mode that is drawn for it.

        What does not fit is cut from the front of the first text and from the end of the second, so that the second
        goes on where the first ends. A lone piece is no pair: it is left out where the mode has pairs.
        """
        joined, (starts, parted, ends) = consecutive(Documents.of(documents), packer, rng)
        modes = rng.choice(len(self.mix), size=len(parted), p=self.mix)
        segments = list(SEGMENTS.values())
        paired = np.array([len(one) for one in segments])[modes] == 2
        kept = np.flatnonzero((parted < ends) | ~paired)
        starts, parted, ends, modes, paired = (one[kept] for one in (starts, parted, ends, modes, paired))
        left, right = shares(parted - starts, ends - parted, packer.room(2))
        counts = 1 + paired
        second = np.flatnonzero(ranges(np.zeros_like(counts), counts))  # the runs that are second texts
        firsts = np.repeat(parted - left, counts)
        firsts[second] = parted[paired]
        sizes = np.repeat(np.where(paired, left, left + right), counts)
        sizes[second] = right[paired]
        told = np.array([(one[0], one[-1]) for one in segments], np.int8)[modes]
        marks = np.repeat(told[:, 0], counts)
        marks[second] = told[paired, 1]
        return Sequences(
            documents=joined,
            tokenizer=packer.tokenizer,
            firsts=firsts,
            sizes=sizes,
            segments=marks,
            counts=counts,
            truncated=ends - starts - left - right,
        )

    def corrupt_all(self, examples: Examples, packer: Packer, noise: Noise) -> Examples:
        """Return examples with the order of their modes, and with what is predicted masked, or labelled one token off.

        The segments tell the modes, so examples of tasks that have them are labelled alike.
        """
        examples = replace(examples, order=orders(examples.segments, examples.lengths))
        masked = super().corrupt_all(examples, packer, noise)
        return masked if self.prediction == "masked" else self._with_next(masked)

    def _choose(self, examples: Examples, noise: Noise) -> tuple[Places, Places]:
        """Return the positions to mask (M,) and how many each example has."""
        segments, ends = examples.segments, _ends(examples)
        if self.prediction == "shifted":
            return super()._choose(replace(examples, special=examples.special | (segments >= LEFT_TO_RIGHT)), noise)
        fixed = examples.special & ~ends
        if not self.sources:
            fixed |= segments == SOURCE
        return super()._choose(replace(examples, special=fixed, words=examples.words | ends), noise)

    def _quotas(self, examples: Examples) -> Places:
        """Return how many positions to mask of each example (B,); of a target alone, a share of its own tokens."""
        if self.sources:
            return super()._quotas(examples)
        own = np.add.reduceat((examples.segments != SOURCE).astype(np.int64), begins(examples.lengths))
        return quotas(own, rate=self.rate, limit=self.limit)

    def _with_next(self, examples: Examples) -> Examples:
        """Return examples with the next piece as the label of every token of the modes that reveal one by one.

        Of right_to_left it is the piece before. The end of a target is one of its pieces, other specials are none.
        """
        segments, asked = examples.segments, ~examples.special | _ends(examples)
        inside = np.ones(len(segments), np.bool_)
        inside[examples.starts] = False  # the token before it is another example's
        forward = np.isin(segments, (LEFT_TO_RIGHT, TARGET)) & asked & inside
        backward = (segments == RIGHT_TO_LEFT) & asked & np.append(inside[1:], False)
        index = np.flatnonzero(np.append(forward[1:], False) | np.append(False, backward[:-1]))
        labels = np.where(
            segments[index] == RIGHT_TO_LEFT, examples.ids[index - 1], examples.ids[(index + 1) % len(segments)]
        )
        before = examples.targets[self.name]
        assert before.index is not None
        every = np.concatenate([before.index, index])
        order = np.argsort(every, kind="stable")
        every = every[order]
        targets = Targets(
            labels=np.concatenate([before.labels, labels])[order],
            counts=np.diff(np.searchsorted(every, examples.starts), append=len(every)),
            index=every,
        )
        return examples.changed(ids=examples.ids, name=self.name, targets=targets)

    def objections(self, architecture: Sizes) -> Iterator[str]:
        """Yield what would let a token see the piece that it is to predict, or hide from the model which mode it is."""
        yield from super().objections(architecture)
        if architecture.direction != "both":
            yield (
                f'{self.name} says itself which tokens are seen, and model.direction = "{architecture.direction}" '
                'says so, too. Set model.direction = "both".'
            )
        if getattr(architecture, "recurrent", 0):
            yield (
                f"{self.name} reads some texts one way, which recurrent layers read both ways. Set model.recurrent = "
                "0; they are added in fine-tuning (osbert finetune ... --recurrent 1)."
            )
        if architecture.segments < KINDS:
            yield f"{self.name} tells its modes apart by {KINDS} segments. Set model.segments = {KINDS}."

    def rates(self, examples: Sequence[Example]) -> Iterator[tuple[str, str, str]]:
        """Yield the share of each mode."""
        lasts = np.array([example.segments[-1] for example in examples])
        for (mode, segments), share in zip(SEGMENTS.items(), self.mix, strict=True):
            yield f"mode {mode}", f"{np.isin(lasts, segments).mean():.2%}", f"{share:.2%}"

    def head(self, backbone: Backbone) -> Head:
        """Return the masked-language head, its output embeddings tied to the backbone's.

        Raises ValueError when the backbone sees what is to be predicted.
        """
        from osbert.models.heads.predictions import MaskedLanguageHead

        if objections := list(self.objections(backbone.architecture)):
            raise ValueError(" ".join(objections))
        return MaskedLanguageHead(backbone, target=self.name, writes=self.prediction)


def _ends(examples: Examples) -> Booleans:
    """Return which of N tokens are the first special after a target: what the model writes to end it."""
    special = examples.special & (examples.segments == TARGET)
    return special & ~np.append(False, special[:-1])
