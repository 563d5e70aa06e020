"""A small architecture, learners on it, and a model of transformers, as fixtures: a conftest imports them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"

import transformers
from transformers.models.bert import modeling_bert

from osbert.data.batch import collate
from osbert.inference.engine import load
from osbert.inference.vectors.settings import EmbeddingOptions
from osbert.interop.conversion import model_of, open_any
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.models.heads.predictions import MaskedLanguageHead, NumberHead, SequenceHead
from osbert.models.heads.tagging import TagHead
from osbert.text.tokenizer import SPECIALS, Tokenizer

SENTENCE = "the a film is was good bad very not it play and long short actor ann lives in new york . , ! ?"
WORDS = Tokenizer(
    [*SPECIALS, *SENTENCE.split(), *(f"##{sign}" for sign in "abcdefghijklmnopqrstuvwxyz"), "b", "w", "s"]
)

SIZES = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 40,
    "max_position_embeddings": 24,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "initializer_range": 0.3,
}
OURS = Architecture(
    layers=2,
    heads=2,
    width=16,
    feedforward=40,
    vocabulary=60,
    length=24,
    dropout=0.0,
    attention_dropout=0.0,
    deviation=0.3,
)


@pytest.fixture(scope="session")
def ours() -> Architecture:
    """Return the small architecture."""
    return OURS


@pytest.fixture(scope="session")
def sizes() -> dict[str, object]:
    """Return the same sizes in the words of transformers."""
    return SIZES


@pytest.fixture(scope="session")
def make_learner() -> Callable[..., Learner]:
    """Return a maker of learners in evaluation mode: (kinds of heads, changes to the architecture)."""
    return _learner


def _learner(kinds: list[str], **changes: object) -> Learner:
    torch.manual_seed(1)
    backbone = replace(OURS, **changes).build()
    heads = {}
    for kind in kinds:
        if kind == "mlm":
            heads[kind] = MaskedLanguageHead(backbone)
            torch.nn.init.normal_(heads[kind].bias)
        elif kind == "tag":
            heads[kind] = TagHead(backbone, target=kind, labels=5)
        else:
            made = {
                "nsp": partial(SequenceHead, form="nsp"),
                "classify": partial(SequenceHead, labels=3),
                "regress": NumberHead,
            }
            heads[kind] = made[kind](backbone, target=kind)
            torch.nn.init.normal_(heads[kind].linear.bias)
    return Learner(backbone, heads).eval()


@pytest.fixture(scope="module")
def pretraining() -> modeling_bert.BertForPreTraining:
    torch.manual_seed(0)
    model = modeling_bert.BertForPreTraining(transformers.BertConfig(**SIZES)).eval()
    for parameter in model.parameters():
        if parameter.ndim == 1:
            torch.nn.init.normal_(parameter, mean=parameter.detach().mean().item(), std=0.1)
    return model


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    """Return a tokenizer of few words."""
    return WORDS


@pytest.fixture(scope="session")
def theirs_say() -> Callable[..., Any]:
    """Return what transformers says of a text or a pair: (folder, its Auto class, texts)."""

    def said(folder: Path, opener: str, *texts: str) -> Any:
        model, report = getattr(transformers, opener).from_pretrained(folder, output_loading_info=True)
        assert not {name for name in report["missing_keys"] if "pooler" not in name} and not report["mismatched_keys"]
        inputs = transformers.AutoTokenizer.from_pretrained(folder)(*texts, return_tensors="pt")
        with torch.no_grad():
            return model.eval()(**inputs)

    return said


@pytest.fixture(scope="session")
def ours_say() -> Callable[..., dict[str, torch.Tensor]]:
    """Return what osbert's heads say of a text or a pair: (folder, texts)."""

    def said(folder: Path, *texts: str) -> dict[str, torch.Tensor]:
        model = model_of(open_any(folder))
        batch = collate(load(folder).embedder(EmbeddingOptions(pooling="tokens")).sequences(texts, 0))
        with torch.no_grad():
            states = model.learner.backbone(batch)
            return {
                name: head.scores(states.hidden)
                if isinstance(head, MaskedLanguageHead)
                else head.outputs(states, batch)
                for name, head in model.learner.heads.items()
            }

    return said
