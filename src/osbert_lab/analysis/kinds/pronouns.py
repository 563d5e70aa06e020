"""Whether a model gives an ambiguous pronoun the gender of its referent: GAP (Webster et al. 2018).

The pronoun is masked. The answer is the gender whose forms have the higher total probability, and it is right if it is
that of the original pronoun. The two names of a text mostly have the same gender, so names and context reveal it. The
figure of interest is whether a model is right about women as often as about men.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Example
from osbert.errors import Problems
from osbert.evaluation.bootstrap import wilson_interval
from osbert.reports.page import Section
from osbert_lab.analysis.figures import Figure, select_figures
from osbert_lab.analysis.kinds.contract import Advance, LanguageExperiment
from osbert_lab.analysis.model import AnalysedModel
from osbert_lab.analysis.preferences import rate_plot
from osbert_lab.analysis.sample import ItemSample, LinkedItem, place_words

FORMS = {"masculine": ("he", "him", "his"), "feminine": ("she", "her", "hers")}
LEAST = 10
"""Fewest pronouns of a gender for a figure."""
TEXTS = 256
"""Texts that are read between two reports of progress."""


class Pronouns(LanguageExperiment):
    """The gender that a masked language model gives to the pronouns of GAP."""

    reads = "coreference"
    least = f"{LEAST} pronouns of GAP, masculine or feminine, each of which is one piece of the vocabulary"
    position = 44

    @classmethod
    def obstacle(cls, model: AnalysedModel) -> str:
        """Return why the model cannot fill masks; "" if it can."""
        if model.language and model.language.causal:
            return "a left-to-right model fills no mask in the middle of a sentence"
        return super().obstacle(model)

    def work(self, model: AnalysedModel, sample: ItemSample[LinkedItem]) -> int:
        """Return the number of tokens: each text is read once."""
        return sample.tokens

    def measure(self, model: AnalysedModel, sample: ItemSample[LinkedItem], advance: Advance) -> list[Figure]:
        """Return how often the gender is right, in all and by gender."""
        assert model.language is not None
        pieces = {gender: _pieces(model, forms) for gender, forms in FORMS.items()}
        if not all(pieces.values()):
            return []
        masked = list(_mask_pronouns(model, sample.items))
        examples = [example for _, example in masked]
        flat = np.array([piece for some in pieces.values() for piece in some])
        batch_scores = []
        for some in range(0, len(examples), TEXTS):
            batch_scores.append(model.language.candidates(examples[some : some + TEXTS], flat))
            advance(sum(map(len, examples[some : some + TEXTS])))
        chances = np.exp(np.concatenate(batch_scores))  # (n, forms of both)
        first = len(pieces["masculine"])
        feminine: NDArray[np.bool_] = chances[:, first:].sum(axis=1) > chances[:, :first].sum(axis=1)
        gold = np.array([gender == "feminine" for gender, _ in masked], bool)
        common = Figure(name="pronouns", value=0, n=0, unit="pronouns", data=self.reads, seed=model.seed)
        groups = {"": np.ones(len(gold), bool), "feminine": gold, "masculine": ~gold}
        return [
            replace(
                common,
                where={"kind": name} if name else {},
                value=float((feminine == gold)[which].mean()),
                n=(n := int(which.sum())),
                interval=wilson_interval(int((feminine == gold)[which].sum()), n),
                baselines={"guessing": 0.5, "feminine everywhere": float(gold[which].mean())},
            )
            for name, which in groups.items()
            if which.sum() >= LEAST
        ]

    @staticmethod
    def section(figures: Sequence[Figure]) -> Section:
        """Return how often each gender is right, beside a half."""
        rates = select_figures(figures, "pronouns")
        every = rates[0]
        low, high = every.interval or (every.value, every.value)
        by = {str(figure.where.get("kind", "")): figure for figure in rates}
        apart = ""
        if {*FORMS} <= {*by}:
            apart = (
                f", {by['feminine'].value:.1%} of the feminine and {by['masculine'].value:.1%} of the masculine ones"
            )
        picture = rate_plot(
            rates,
            title="Masked pronouns of GAP whose gender is right",
            plain=f"The gender of {every.value:.1%} of {every.n:,} pronouns is right ({low:.1%} to {high:.1%}){apart}.",
            caution="A model that prefers one gender everywhere is right about all pronouns of that gender: compare "
            "both. The names around a pronoun often give its gender away, so this says nothing of which name is meant.",
        )
        return Section(heading="What it prefers: pronouns", parts=[picture])


def _pieces(model: AnalysedModel, forms: Sequence[str]) -> list[int]:
    """Return the ids of the forms of a pronoun that are a single piece within a sentence."""
    piece_ids = []
    for form in forms:
        # After another word: a byte-level vocabulary has other pieces at the beginning of a text.
        if placed := place_words(["a", form], "", model.packer, Problems(heading="")):
            example, tokens = placed
            piece_ids += [int(piece_id) for piece_id in example.ids[tokens[1] > 0]] if tokens[1].sum() == 1 else []
    return piece_ids


def _mask_pronouns(model: AnalysedModel, items: Sequence[LinkedItem]) -> Iterator[tuple[str, Example]]:
    """Yield the gender of each GAP pronoun, and the text with the pronoun masked."""
    genders = {form: gender for gender, forms in FORMS.items() for form in forms}
    for item in items:
        for link in item.text.links:
            gender = genders.get(item.text.words[link.mention].lower())
            if link.kind != "ambiguous pronouns" or gender is None:
                continue
            example, tokens = item.lay_out(model.packer)
            # A pronoun of several pieces would need several masks: it is skipped.
            (indices,) = np.nonzero(tokens[link.mention])
            if len(indices) == 1:
                ids = example.ids.copy()
                ids[indices] = model.packer.tokenizer.mask
                yield gender, replace(example, ids=ids)
