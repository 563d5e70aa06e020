"""Classes by name with a sentence encoder: which name is nearest to the text?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from osbert.data.example import Example
from osbert.inference.embedder import Embedder, vector_settings
from osbert.inference.label_scorer import ClassScorer, Logits
from osbert.inference.label_settings import SLOT, LabelName, LabelNames, NamingOptions
from osbert.inference.model import LoadedModel
from osbert.inference.vectors.settings import EmbeddingOptions, normalize_vectors

SCALE = 20.0
"""The inverse temperature of a softmax over cosines: that which sentence encoders are usually trained with."""
ROLES = ("classification", "query")
"""Roles of texts and names alike, the first that the model has a prompt for; without one its default prompt counts."""


class SimilarityScorer(ClassScorer):
    """Scores a class by the cosine of its vector and the text's, times SCALE."""

    template = SLOT

    def __init__(self, engine: LoadedModel, options: NamingOptions, *, tokens: int) -> None:
        """Use the embedder of the model's own settings. Raises UserError if it needs parts that osbert lacks."""
        super().__init__(engine, options, tokens=tokens)
        model = engine.sentence_model()
        prompts = model.prompts.texts if model else {}
        self.role = next((role for role in ROLES if prompts.get(role)), None)
        settings = vector_settings(EmbeddingOptions(role=self.role), engine)
        self.embedder = Embedder(engine, settings, tokens=tokens)
        self.packer = self.embedder.packer
        self._vectors: tuple[LabelNames, Logits] = (), np.empty((0, 0))

    def describe(self, labels: LabelNames) -> str:
        """Describe what is compared."""
        sentence = f' in "{self.before}{SLOT}{self.behind}"' if self.before or self.behind else ""
        role = f", each with the model's prompt for the role {self.role}" if self.role else ""
        return f"the cosine of the text and the name{sentence}{role}; softmax of {SCALE:g} times it"

    def reads(self, label: LabelName) -> str:
        """Return what the model reads for a class: of a name, its underscores as spaces."""
        return f"{self.before}{label.description or label.name.replace('_', ' ')}{self.behind}"

    def sequences(self, text: str, labels: LabelNames) -> list[Example]:
        return self.embedder.sequences((text,), 0)

    def outputs(self, examples: Sequence[Example]) -> Sequence[Any]:
        """Return the vectors (n, D) of the sequences."""
        vectors: Sequence[Any] = self.embedder.vectors([[example] for example in examples])
        return vectors

    def logits(self, outputs: Sequence[Any], labels: LabelNames, examples: Sequence[Example]) -> Logits:
        known, vectors = self._vectors
        if known is not labels:
            groups = [self.embedder.sequences((self.reads(label),), 0) for label in labels]
            vectors = normalize_vectors(self.embedder.vectors(groups)).astype(np.float64)  # (K, D)
            self._vectors = labels, vectors
        [text] = normalize_vectors(np.asarray(outputs, np.float64))
        cosines: Logits = vectors @ text
        return SCALE * cosines
