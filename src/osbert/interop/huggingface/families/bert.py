"""BERT (Devlin et al. 2019), whose names are the common ones. Its decoder is the same with causal attention."""

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
