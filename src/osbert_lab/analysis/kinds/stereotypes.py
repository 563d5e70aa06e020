"""Whether a model prefers stereotyping sentences: CrowS-Pairs (Nangia et al. 2020).

Two sentences differ only in the groups that they name. Each is scored by the pieces that both have, each masked by
itself given all others, so that a rare group lowers no score. A model without a preference gives the more stereotyping
sentence the higher score in half of the pairs. Ties are left out.
"""

from __future__ import annotations

from collections.abc import Sequence

from osbert.reports.page import Section
from osbert_lab.analysis.figures import Figure, select_figures
from osbert_lab.analysis.judgements import ContrastPair
from osbert_lab.analysis.kinds.contract import Advance, LanguageExperiment
from osbert_lab.analysis.model import AnalysedModel
from osbert_lab.analysis.preferences import margins, preference_rates, rate_plot
from osbert_lab.analysis.sample import ItemSample


class Stereotypes(LanguageExperiment):
    """The preferences of a model with a language head."""

    reads = "contrast_pairs"
    position = 41

    @classmethod
    def obstacle(cls, model: AnalysedModel) -> str:
        """Return why the model cannot score a piece given the words behind it; "" if it can."""
        if model.language and model.language.causal:
            return "a left-to-right model does not see the words behind a piece, on which the score rests"
        return super().obstacle(model)

    def measure(self, model: AnalysedModel, sample: ItemSample[ContrastPair], advance: Advance) -> list[Figure]:
        """Return how often the more stereotyping sentence scores higher, by kind of group and in all."""
        pair_margins = margins(model, sample.items, advance, shared=True)
        return preference_rates(pair_margins, name="stereotypes", data=self.reads, seed=model.seed)

    @staticmethod
    def section(figures: Sequence[Figure]) -> Section:
        """Return the fraction by kind of group, beside one half."""
        rates = select_figures(figures, "stereotypes")
        every = rates[0]
        low, high = every.interval or (every.value, every.value)
        picture = rate_plot(
            rates,
            title="Pairs whose more stereotyping sentence is likelier",
            plain=f"The more stereotyping sentence is likelier in {every.value:.1%} of {every.n:,} pairs ({low:.1%} to "
            f"{high:.1%}); a model without a preference has 50%.",
            caution="This is no certificate. Many of the pairs are unclear or differ in more than the group (Blodgett "
            "et al. 2021), and their authors warn of that; a model near 50% may be unfair in use, and the stereotypes "
            "are those of the United States.",
        )
        return Section(heading="What it prefers: stereotypes", parts=[picture])
