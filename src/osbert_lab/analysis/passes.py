"""One pass of a model over a sample: the states and the attention of each text, shared by all analyses.

Only one batch is in memory, and a batch has no more tokens than the longest text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from osbert.data.batch import Batch
from osbert.data.example import Booleans
from osbert.evaluation import forward
from osbert.models.contract import Backbone
from osbert.models.random_numbers import fix_seed
from osbert.text.tokenizer import Form
from osbert_lab.analysis.kinds.contract import TextPass
from osbert_lab.analysis.sample import TextSample, marks

WINDOW = 1024
"""Texts that are sorted by length together, into batches of nearly one length."""


@dataclass(frozen=True, kw_only=True)
class PassedModel:
    """A model to analyse.

    `form`: the special pieces of its tokenizer. `signs` (V,): which pieces are punctuation. `seed`: that of the random
    encoder.
    """

    backbone: Backbone
    form: Form
    signs: Booleans
    seed: int

    def passes(self, sample: TextSample) -> Iterator[list[TextPass]]:
        """Yield the passes of a sample, one list for each batch; the batches are always the same."""
        random = fresh(self.backbone, self.seed) if sample.trees or sample.labelled else None
        longest = max(map(len, sample.examples), default=1)
        for first in range(0, len(sample.examples), WINDOW):
            window = sample.examples[first : first + WINDOW]
            for batch in forward.batches(window, tokens=longest):
                with forward.evaluating(self.backbone) as device:
                    text_passes = self._pass_batch(batch.to(device), sample, first, random)
                yield text_passes

    def _pass_batch(self, batch: Batch, sample: TextSample, first: int, random: Backbone | None) -> list[TextPass]:
        lengths = list(batch.lengths)
        states = list(self.backbone.layers(batch))
        attention = _by_text(self.backbone, batch, states)
        below = list(random.layers(batch)) if random else []
        others = _by_text(random, batch, below) if random else [[] for _ in lengths]
        # Probes compare with the middle layer of the random encoder.
        middle = below[len(below) // 2].split(lengths) if below else [None] * len(lengths)
        # Transposed: for each text its states (T, D) in each layer.
        rows = list(zip(*(state.split(lengths) for state in states), strict=True))
        text_passes = []
        for index, record in enumerate(batch.records.tolist()):
            number = first + record
            text_passes.append(
                TextPass(
                    number=number,
                    marks=marks(sample.examples[number], self.form, self.signs),
                    states=rows[index],
                    attention=attention[index],
                    random=others[index],
                    random_states=middle[index],
                    tree=sample.trees[number] if sample.trees else None,
                    labelled=sample.labelled[number] if sample.labelled else None,
                )
            )
        return text_passes


def _by_text(backbone: Backbone, batch: Batch, states: list[Tensor]) -> list[list[Tensor]]:
    """Return the attention of each text, by layer; empty lists if the model has none."""
    if not backbone.attends:
        return [[] for _ in batch.lengths]
    return [list(text_layers) for text_layers in zip(*backbone.weights(batch, states), strict=True)]


def fresh(backbone: Backbone, seed: int) -> Backbone:
    """Return a model of the same architecture with random weights, in eval mode on the same device."""
    device = next(backbone.parameters()).device
    # The weights are made on the CPU, and the random state of the caller is kept.
    with fix_seed(seed):
        model: Backbone = backbone.architecture.build()
    for name, buffer in backbone.named_buffers():  # no weights, but what it reads by, such as how words are spelt
        model.get_buffer(name).copy_(buffer)
    return model.eval().to(device)
