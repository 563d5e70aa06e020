"""BERT (Devlin et al. 2019): whose names all others are made into. Its decoder is the same, looking left only."""

from __future__ import annotations

from osbert.interop.huggingface.family import CLASSES, Family

FAMILY = Family(
    types=("bert",),
    name="Bert",
    varies=("activation", "segments", "direction"),
    classes={**CLASSES, "nsp": "ForNextSentencePrediction"},
    pretraining="ForPreTraining",
    causal="LMHeadModel",
)
