"""Unified pretraining: one model that reads in both directions and writes ("UniLM", Dong et al. 2019)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from osbert.data.corrupt import quotas
from osbert.data.example import Booleans, Example, Places, begins, ranges
from osbert.data.examples import Examples, Targets
from osbert.data.noise import Noise
from osbert.data.pack import Packer, trim_lengths
from osbert.data.pairs import consecutive
from osbert.data.sequences import Sequences
from osbert.models.forms import Writing
from osbert.objectives.mlm import MaskedLanguage
from osbert.text.document import Document, Documents
from osbert_lab.writing.modes import LEFT_TO_RIGHT, RIGHT_TO_LEFT, SEGMENTS, SOURCE, TARGET, orders

if TYPE_CHECKING:
    from osbert.models.contract import Backbone, Head, Sizes

KINDS = max(max(segments) for segments in SEGMENTS.values()) + 1
"""Fewest segment embeddings of a model: the four modes use this many."""


@dataclass(frozen=True, kw_only=True)
class UnifiedLanguage(MaskedLanguage):
    """Each sequence has one of four modes, which decides which tokens attend to which. Segments encode the mode.

    In the modes both and sequence_to_sequence a sequence is two consecutive texts of a document; in the other two the
    same stretch is one text. Positions are masked as by mlm. The [SEP] after a target may be masked like any piece: so
    the model learns to end a text.
    """

    title: ClassVar[str] = "unified prediction"
    alone: ClassVar[bool] = True

    both: float = 2.0
    """Relative frequency of the mode in which every token sees the whole sequence. The defaults 2, 1, 1 and 2 make a
    third, a sixth, a sixth and a third of the sequences (section 2.3)."""
    left_to_right: float = 1.0
    """Relative frequency of the mode in which a token sees itself and those before it."""
    right_to_left: float = 1.0
    """Relative frequency of the mode in which a token sees itself and those after it."""
    sequence_to_sequence: float = 2.0
    """Relative frequency of the mode in which a target token sees the source, itself and the target before it."""
    prediction: Writing = "masked"
    """masked: pieces are predicted at the [MASK] that replaces them. shifted: every piece is predicted at the token
    before it (in right_to_left: after it), and masks are used in the mode both alone."""
    sources: bool = True
    """With masked: whether pieces of a source are predicted, too. If False, `rate` is the fraction of the target that
    is masked (fine-tuning, section 2.4: 0.7)."""

    @property
    def mix(self) -> tuple[float, ...]:
        """Return the probabilities of the modes, in the order of `data.modes.SEGMENTS`.

        >>> [round(one, 3) for one in UnifiedLanguage().mix]
        [0.333, 0.167, 0.167, 0.333]
        """
        parts = (self.both, self.left_to_right, self.right_to_left, self.sequence_to_sequence)
        return tuple(part / sum(parts) for part in parts)

    def __post_init__(self) -> None:
        """Raise ValueError for negative frequencies, or if all are 0."""
        super().__post_init__()
        parts = {name: getattr(self, name) for name in SEGMENTS}
        if min(parts.values()) < 0 or not 0 < sum(parts.values()) < float("inf"):
            raise ValueError(
                f"{', '.join(parts)} must be 0 or more, and at least one above 0, not {list(parts.values())}"
            )

    def examples(self, documents: Sequence[Document], packer: Packer, rng: np.random.Generator) -> Sequences:
        """Return sequences that walk through each document in turn; the mode of each is sampled from `mix`.

        A pair that is too long loses the front of its first text and the end of its second, so that the second still
        follows the first. A single piece cannot be a pair and is dropped if its mode has pairs.
        """
        # All sequences are laid out as pairs first; modes with one text join the two again below.
        joined, (starts, parted, ends) = consecutive(Documents.of(documents), packer, rng)
        modes = rng.choice(len(self.mix), size=len(parted), p=self.mix)
        segments = list(SEGMENTS.values())
        paired = np.array([len(mode_segments) for mode_segments in segments])[modes] == 2
        usable = np.flatnonzero((parted < ends) | ~paired)
        starts, parted, ends, modes, paired = (column[usable] for column in (starts, parted, ends, modes, paired))
        # Pieces kept of both texts, with room for the special pieces of a pair.
        left, right = trim_lengths(parted - starts, ends - parted, packer.room(2))
        counts = 1 + paired
        second = np.flatnonzero(ranges(np.zeros_like(counts), counts))  # the runs that are second texts
        # The first text loses its front: it ends at `parted`, where the second begins.
        firsts = np.repeat(parted - left, counts)
        firsts[second] = parted[paired]
        # A single text is the whole stretch, left + right.
        sizes = np.repeat(np.where(paired, left, left + right), counts)
        sizes[second] = right[paired]
        # Each mode has one segment, or two; with one, first and last are the same.
        end_segments = np.array([(mode_segments[0], mode_segments[-1]) for mode_segments in segments], np.int8)[modes]
        marks = np.repeat(end_segments[:, 0], counts)
        marks[second] = end_segments[paired, 1]
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
        """Return examples with the attention order of their modes and with labels, masked or shifted.

        The mode is read from the segments, so the examples of a task that sets them are treated in the same way.
        """
        examples = replace(examples, order=orders(examples.segments, examples.lengths))
        masked = super().corrupt_all(examples, packer, noise)
        return masked if self.prediction == "masked" else self._with_next(masked)

    def _choose(self, examples: Examples, noise: Noise) -> tuple[Places, Places]:
        """Return the positions to mask (M,) and how many each example has."""
        segments, ends = examples.segments, _ends(examples)
        # Positions are excluded by declaring them special: those of the shifted modes, or all specials but the ends.
        if self.prediction == "shifted":
            return super()._choose(replace(examples, special=examples.special | (segments >= LEFT_TO_RIGHT)), noise)
        fixed = examples.special & ~ends
        if not self.sources:
            fixed |= segments == SOURCE
        return super()._choose(replace(examples, special=fixed, words=examples.words | ends), noise)

    def _quotas(self, examples: Examples) -> Places:
        """Return the number of positions to mask in each example (B,); without `sources`, from the target's length."""
        if self.sources:
            return super()._quotas(examples)
        # Number of target pieces in each example: the sum of marks between the starts of examples.
        target_sizes = np.add.reduceat((examples.segments != SOURCE).astype(np.int64), begins(examples.lengths))
        return quotas(target_sizes, rate=self.rate, limit=self.limit)

    def _with_next(self, examples: Examples) -> Examples:
        """Return examples with the next piece as the label of every token in the one-directional modes.

        In right_to_left it is the piece before. The [SEP] after a target is predicted; other specials are not.
        """
        segments, is_predicted = examples.segments, ~examples.special | _ends(examples)
        inside = np.ones(len(segments), np.bool_)
        inside[examples.starts] = False  # the token before it is another example's
        # `forward`, `backward`: tokens whose piece is a label. The label is predicted at the neighbour: one index
        # before it, or one after it.
        forward = np.isin(segments, (LEFT_TO_RIGHT, TARGET)) & is_predicted & inside
        # The last token of an example has no successor in it: `inside`, shifted by one, excludes it.
        backward = (segments == RIGHT_TO_LEFT) & is_predicted & np.append(inside[1:], False)
        index = np.flatnonzero(np.append(forward[1:], False) | np.append(False, backward[:-1]))
        # The modulo keeps the unused branch of np.where in range; a forward index is never the last one.
        labels = np.where(
            segments[index] == RIGHT_TO_LEFT, examples.ids[index - 1], examples.ids[(index + 1) % len(segments)]
        )
        before = examples.targets[self.name]
        assert before.index is not None
        every = np.concatenate([before.index, index])
        # Targets must ascend; masked positions of the mode both and these labels are interleaved.
        order = np.argsort(every, kind="stable")
        every = every[order]
        targets = Targets(
            labels=np.concatenate([before.labels, labels])[order],
            # Number of targets in each example, from the first target at or after each start.
            counts=np.diff(np.searchsorted(every, examples.starts), append=len(every)),
            index=every,
        )
        return examples.with_target(ids=examples.ids, name=self.name, targets=targets)

    def objections(self, architecture: Sizes) -> Iterator[str]:
        """Yield a message if a token would see the piece that it has to predict, or the mode would be unknown."""
        yield from super().objections(architecture)
        if architecture.direction != "both":
            yield (
                f'{self.name} sets itself which tokens are seen, which model.direction = "{architecture.direction}" '
                'would restrict. Set model.direction = "both".'
            )
        if architecture.recurrent:
            yield (
                f"{self.name} reads some texts in one direction, but recurrent layers read in both. Set "
                "model.recurrent = 0; they can be added in fine-tuning (osbert finetune ... --recurrent 1)."
            )
        if architecture.segments < KINDS:
            yield f"{self.name} distinguishes its modes by {KINDS} segments. Set model.segments = {KINDS}."

    def rates(self, examples: Sequence[Example]) -> Iterator[tuple[str, str, str]]:
        """Yield the frequency of each mode."""
        lasts = np.array([example.segments[-1] for example in examples])
        for (mode, segments), probability in zip(SEGMENTS.items(), self.mix, strict=True):
            yield f"mode {mode}", f"{np.isin(lasts, segments).mean():.2%}", f"{probability:.2%}"

    def head(self, backbone: Backbone) -> Head:
        """Return the masked-language head. Its output embeddings are those of the backbone (tied).

        Raises ValueError if the backbone would see the pieces that it has to predict.
        """
        from osbert.models.heads.predictions import MaskedLanguageHead

        self.require_fit(backbone.architecture)
        return MaskedLanguageHead(backbone, target=self.name, writes=self.prediction)


def _ends(examples: Examples) -> Booleans:
    """Return which of N tokens are the first special after a target, which the model writes to end it."""
    special = examples.special & (examples.segments == TARGET)
    return special & ~np.append(False, special[:-1])
