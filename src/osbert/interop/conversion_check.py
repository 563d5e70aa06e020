"""Compares two models on the same inputs: hidden states, and the outputs of every head."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from osbert.data.batch import Batch, collate
from osbert.data.example import Example
from osbert.data.pack import Packer
from osbert.evaluation.forward import evaluating
from osbert.interop.conversion import ModelParts

BOUND = 2e-5
"""Largest difference that rounding can explain for equal weights."""

TEXTS = (
    "The quick brown fox jumps over the lazy dog.",
    "In 1998, 37% of U.S. households hadn't paid $9.50!",
    "我们正在比较两个模型。",
    "Où est la bibliothèque, s'il vous plaît?",
)
HIDDEN, POOLED = "hidden states", "pooled states"
SECOND = "It does, and so does the other one."
LENGTH = 128
"""Most tokens in a compared sequence."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The largest difference of one output, `what`, over all compared sequences.

    It is absolute; for outputs in the user's unit, which may be large, it is relative to the largest number.
    """

    what: str
    largest: float
    bound: float = BOUND

    @property
    def small(self) -> bool:
        """Return whether it is within the bound; False for NaN."""
        return self.largest <= self.bound


def differences(first: ModelParts, second: ModelParts) -> list[Difference]:
    """Return the differences of two models. Raises ValueError if heads, vocabularies or poolings differ."""
    if first.source.tokenizer != second.source.tokenizer:
        raise ValueError("the tokenizers cut texts differently")
    if first.learner.heads.keys() != second.learner.heads.keys():
        raise ValueError(f"the heads are {', '.join(first.learner.heads)} and {', '.join(second.learner.heads)}")
    if first.sentences != second.sentences:
        raise ValueError(f"a text gets its vector by {first.sentences} and {second.sentences}")
    batch = collate(sequences(first))
    first_outputs, again = _outputs(first, batch), _outputs(second, batch)
    output_differences = [
        Difference(
            what=what, largest=float((first_outputs[what] - again[what]).abs().max()) if what in again else float("inf")
        )
        for what in first_outputs
    ]
    if second.task and second.units:
        name = f"scores of {second.task.name}"
        unit = {"center": 0.0, "scale": 1.0, **second.task.export_metadata()}
        wanted = first_outputs[name] * unit["scale"] + unit["center"]
        others = again[POOLED] @ second.units["weight"].double().T + second.units["bias"].double()
        size = max(1.0, float(wanted.abs().max()))
        output_differences.append(
            Difference(what=f"{name} as others read them", largest=float((others - wanted).abs().max()) / size)
        )
    return output_differences


def sequences(model: ModelParts) -> list[Example]:
    """Return the compared inputs: some texts, a pair if the model reads pairs, and pieces of the whole vocabulary."""
    sizes = model.learner.backbone.architecture
    packer = Packer(tokenizer=model.source.tokenizer, length=min(sizes.length, LENGTH))
    runs = [packer.run(text) for text in (*TEXTS, SECOND)]
    examples = [packer.single(run.ids, run.words, record=record) for record, run in enumerate(runs)]
    spread = np.linspace(0, sizes.vocabulary - 1, packer.length - 2).astype(np.int32)
    examples.append(packer.single(spread, np.ones(len(spread), bool), record=len(examples)))
    if sizes.segments > 1:
        examples.append(packer.pair(runs[0], runs[-1], record=len(examples)))
    return examples


def _outputs(model: ModelParts, batch: Batch) -> dict[str, Tensor]:
    outputs: dict[str, Tensor] = {}
    with evaluating(model.learner):
        states = model.learner.backbone(batch)
        outputs[HIDDEN] = states.hidden
        if model.source.has_pooler:
            outputs[POOLED] = states.pooled
        for name, head in model.learner.heads.items():
            outputs[f"scores of {name}"] = head.every(states, batch)
    return {what: torch.as_tensor(values).double() for what, values in outputs.items()}
