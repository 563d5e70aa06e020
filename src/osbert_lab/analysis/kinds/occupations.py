"""Whether a model prefers the pronoun that matches the stereotype of an occupation: WinoBias (Zhao et al. 2018).

Two sentences differ only in the gender of a pronoun, and each is scored as a text. A model that finds both pronouns
equally likely for every occupation prefers the stereotype in half of the pairs. So does a model that always prefers the
same pronoun, since each pronoun matches half of the pairs.
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


class Occupations(LanguageExperiment):
    """The preferences of a model with a language head."""

    reads = "occupation_pairs"
    position = 42

    def measure(self, model: AnalysedModel, sample: ItemSample[ContrastPair], advance: Advance) -> list[Figure]:
        """Return how often the sentence with the stereotype is likelier, by type and pronoun, and in all."""
        pair_margins = margins(model, sample.items, advance, shared=False)
        return preference_rates(pair_margins, name="occupations", data=self.reads, seed=model.seed)

    @staticmethod
    def section(figures: Sequence[Figure]) -> Section:
        """Return the fraction by type and pronoun, beside one half."""
        rates = select_figures(figures, "occupations")
        every = rates[0]
        low, high = every.interval or (every.value, every.value)
        picture = rate_plot(
            rates,
            title="Pairs in which the pronoun of the stereotype is likelier",
            plain=f"The sentence whose pronoun suits the stereotype of its occupation is likelier in {every.value:.1%} "
            f"of {every.n:,} pairs ({low:.1%} to {high:.1%}). A model without a preference has 50%, and so has one "
            "that always prefers the same pronoun: its rows of one pronoun are high, those of the other one low.",
            caution="The pairs are of 40 occupations and few patterns of sentences, and so are not independent: the "
            "intervals are too narrow. Which occupations are typical of whom is that of the United States' labour "
            "statistics. No figure of this kind shows that a model is fair.",
        )
        return Section(heading="What it prefers: occupations", parts=[picture])
