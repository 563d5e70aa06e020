"""From which layers coreference can be read: a linear probe on two mentions, which predicts whether they corefer.

For each mention the nearest coreferent candidate and the nearest other one are used, so that both labels are about
equally frequent. The probe reads the elementwise product and distance of the two states, since no linear function of
the concatenated states can measure their similarity. The state of a mention is that of its head word.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from osbert.models.contract import Sizes
from osbert.reports.page import Section
from osbert_lab.analysis.coreference_files import MentionLink
from osbert_lab.analysis.figures import Figure
from osbert_lab.analysis.kinds.contract import Advance, Experiment, PlacedWords, TextPass
from osbert_lab.analysis.model import AnalysedModel
from osbert_lab.analysis.passes import PassedModel
from osbert_lab.analysis.probe import States
from osbert_lab.analysis.probing import LayerProbes, ProbedItem
from osbert_lab.analysis.sample import ItemSample, LinkedItem, TextSample

ONE, TWO = "one thing", "two things"


class Mentions(Experiment):
    """Probes of mentions. It lays out the texts itself, since they are stored as words."""

    reads = "coreference"
    needs_attention = False
    position = 14

    def measure(self, model: AnalysedModel, sample: ItemSample[LinkedItem], advance: Advance) -> list[Figure]:
        """Read each text once, then train a probe of each layer on a sample of the pairs."""
        probes = _MentionProbes(model.backbone.architecture, model.seed, sample.items)
        passed = PassedModel(
            backbone=model.backbone, form=model.packer.tokenizer.form, signs=model.signs, seed=model.seed
        )
        for texts in passed.passes(_lay_out_texts(model, sample.items)):
            for text in texts:
                probes.add(text)
            advance(sum(len(text.marks.first) for text in texts))
        return probes.figures(advance.part("training items of mentions", probes.training))

    @staticmethod
    def section(figures: Sequence[Figure]) -> Section:
        """Return the accuracy and the codelength by layer."""
        return _MentionProbes.section(figures)


class _MentionProbes(LayerProbes):
    """Pairs of mentions. The guess uses the kind of the later mention and whether the head words are equal."""

    reads = "coreference"
    name = "mentions"
    says = "coreference of two mentions"
    unit = "pairs"
    clue = "most frequent answer for such words"
    slots = 2

    def __init__(self, sizes: Sizes, seed: int, linked: Sequence[LinkedItem]) -> None:
        """Start with no pair. `linked`: the texts by their number."""
        super().__init__(sizes, seed)
        self.linked = linked

    def items(self, text: TextPass) -> Iterator[tuple[str, ProbedItem]]:
        """Yield the pairs; the control label depends on the head word of the earlier mention."""
        assert text.labelled is not None
        states = text.word_states
        words = [word.lower() for word in text.labelled.words]
        for link in self.linked[text.number].text.links:
            for other, label in _pairs(link):
                same = "same" if words[other] == words[link.mention] else "other"
                item = ProbedItem(
                    text=text.number,
                    label=label,
                    word=words[other],
                    clue=f"{link.kind} {same}",
                    states=states[:, [link.mention, other]],
                )
                yield text.labelled.part, item

    def features(self, states: NDArray[np.float16]) -> States:
        """Return the elementwise product and distance (L + 2, n, 2D) of the states (L + 2, n, 2, D) of pairs."""
        mention, candidate = states[:, :, 0].astype(np.float32), states[:, :, 1].astype(np.float32)
        return np.concatenate([mention * candidate, np.abs(mention - candidate)], axis=-1)


def _pairs(link: MentionLink) -> Iterator[tuple[int, str]]:
    """Yield the nearest coreferent candidate and the nearest other one, if any, with their labels."""
    for label in (ONE, TWO):
        fitting = [candidate for candidate in link.candidates if (candidate in link.right) == (label == ONE)]
        if fitting:
            yield min(fitting, key=lambda candidate: abs(candidate - link.mention)), label


def _lay_out_texts(model: AnalysedModel, items: Sequence[LinkedItem]) -> TextSample:
    """Return the texts as sequences, with the tokens of their words."""
    examples, labelled = [], []
    for item in items:
        example, tokens = item.lay_out(model.packer)
        examples.append(example)
        labelled.append(PlacedWords(words=item.text.words, labels=(), tokens=tokens, part=item.part))
    return TextSample(examples=examples, labelled=labelled, read=len(examples))
