"""No folder of ours opens in transformers as something else: the class of a head gives our scores, or refuses."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"

import transformers
from safetensors.torch import load_file, save_file

from osbert.data.batch import collate
from osbert.data.example import Example
from osbert.interop.conversion import model_of, open_any, write_model_as
from osbert.interop.folder import open_folder
from osbert.interop.huggingface import folders as huggingface
from osbert.interop.tokenizers import write_tokenizer
from osbert.models.contract import Head, Learner
from osbert.models.heads.features import stand_on_features
from osbert.models.heads.grouped import ChoiceHead, SpanHead
from osbert.models.heads.tagging import TagHead
from osbert.text.tokenizer import Tokenizer
from refusals import refusal

BACKBONES: dict[str, dict[str, Any]] = {
    "bert": {},
    "gelu_tanh": {"activation": "gelu_tanh"},
    "rotary": {"positions": "rotary"},
    "rotary_tanh": {"positions": "rotary", "activation": "gelu_tanh"},
    "left": {"direction": "left_to_right"},
    "rotary_left": {"positions": "rotary", "direction": "left_to_right"},
    "roberta": {"first_position": 2},
    "distilbert": {"segments": 0, "pooling": "relu"},
    "electra": {"pooling": "gelu"},
    "electra_projected": {"pooling": "gelu", "embedding": 8},
    "pre": {"normalization": "pre"},
    "rotary_pre": {"positions": "rotary", "normalization": "pre"},
}
OPENERS = {
    "": "AutoModel",
    "mlm": "AutoModelForMaskedLM",
    "nsp": "AutoModelForNextSentencePrediction",
    "classify": "AutoModelForSequenceClassification",
    "regress": "AutoModelForSequenceClassification",
    "choose": "AutoModelForMultipleChoice",
    "span": "AutoModelForQuestionAnswering",
    "tag": "AutoModelForTokenClassification",
    "features": "AutoModelForTokenClassification",
}
FIRST_TOKEN = ("classify", "regress", "choose", "nsp")
REFUSED = {
    *(("pre", kind) for kind in OPENERS),
    *(("rotary_pre", kind) for kind in OPENERS),
    *((backbone, "features") for backbone in BACKBONES),
    *((backbone, kind) for backbone in ("rotary", "rotary_tanh", "rotary_left", "left") for kind in FIRST_TOKEN),
    *((backbone, "nsp") for backbone in ("roberta", "distilbert", "electra", "electra_projected")),
}
"""What transformers has no class for: it must say so."""


def head(kind: str, learner: Learner) -> Head:
    torch.manual_seed(5)
    if kind in ("span", "choose"):
        return (SpanHead if kind == "span" else ChoiceHead)(learner.backbone, target=kind)  # type: ignore[no-any-return]
    return stand_on_features(learner.backbone, "last", lambda states: TagHead(states, target=kind, labels=5))


def made(make_learner: Callable[..., Learner], kind: str, backbone: str) -> Learner:
    own = kind in ("span", "choose", "features")
    learner = make_learner([] if own or not kind else [kind], **BACKBONES[backbone])
    if own:
        learner.heads[kind] = head(kind, learner)
    return learner.eval()


def batch(segments: int) -> Any:
    rng, found = np.random.default_rng(0), []
    for record in range(2):
        ids, flags = rng.integers(5, 60, 12), np.zeros(12, bool)
        second = (np.arange(12) > 5).astype(np.int64) * (segments > 1)
        found.append(Example(ids=ids, segments=second, words=flags, special=flags, record=record))
    return collate(found)


def said(theirs: Any, asked: Any, kind: str) -> torch.Tensor:
    """Return what their model gives: of sequences (2, K), of tokens (24, K)."""
    rows = {"input_ids": asked.ids.view(2, 12).long()}
    if theirs.config.model_type != "distilbert":
        rows["token_type_ids"] = asked.segments.view(2, 12).long()
    if kind == "choose":
        return theirs(**{name: row[None] for name, row in rows.items()}).logits.view(2, 1)
    found = theirs(**rows)
    if not kind:
        return found.last_hidden_state.flatten(0, 1)
    if kind == "span":
        return torch.stack([found.start_logits, found.end_logits], dim=2).flatten(0, 1)
    return found.logits.flatten(0, 1) if kind in ("mlm", "tag") else found.logits


@pytest.mark.filterwarnings("ignore:.*is_decoder")
@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("kind", OPENERS)
def test_it_gives_our_scores_or_refuses(
    tmp_path: Path, make_learner: Callable[..., Learner], kind: str, backbone: str
) -> None:
    learner = made(make_learner, kind, backbone)
    huggingface.write_model(learner, tmp_path)
    opener = getattr(transformers, OPENERS[kind])
    if (backbone, kind) in REFUSED:
        with pytest.raises(ValueError, match=r"osbert|Unrecognized configuration class"):
            opener.from_pretrained(tmp_path)
    else:
        theirs, report = opener.from_pretrained(tmp_path, output_loading_info=True)
        missing = {name for name in report["missing_keys"] if ".pooler." not in name or kind in ("classify", "choose")}
        assert not missing and not report["mismatched_keys"]
        asked = batch(learner.backbone.architecture.segments)
        with torch.no_grad():
            states = learner.backbone(asked)
            if not kind:
                ours = states.hidden
            else:
                one: Any = learner.heads[kind]
                ours = one.scores(states.hidden) if kind == "mlm" else one.outputs(states, asked)
            torch.testing.assert_close(said(theirs.eval(), asked, kind), ours, rtol=0, atol=2e-5)
    again = made(make_learner, kind, backbone)
    for weight in again.parameters():
        torch.nn.init.zeros_(weight)
    open_folder(tmp_path).fill(again).require_complete("folder")
    for name, tensor in learner.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name


def test_it_is_not_converted_into_a_form_that_would_open_as_another(
    tmp_path: Path, make_learner: Callable[..., Learner], tokenizer: Tokenizer
) -> None:
    huggingface.write_model(make_learner(["classify"], positions="rotary", vocabulary=len(tokenizer)), tmp_path / "run")
    write_tokenizer(tokenizer, tmp_path / "run", length=24)
    (tmp_path / "run" / "recipe.toml").write_text('task = "classify"\n[classify]\nlabels = ["a", "b", "c"]\n')
    with refusal("not-convertible"):
        write_model_as(model_of(open_any(tmp_path / "run")), tmp_path / "out", "huggingface")
    assert not (tmp_path / "out").exists()


def test_a_folder_written_as_roformer_before_still_opens_here(
    tmp_path: Path, make_learner: Callable[..., Learner]
) -> None:
    learner = make_learner(["classify"], positions="rotary")
    huggingface.write_model(Learner(learner.backbone, {}), tmp_path)
    backbone = load_file(tmp_path / "model.safetensors")
    own = {f"heads.classify.{name}": tensor for name, tensor in learner.heads["classify"].state_dict().items()}
    save_file({f"roformer.{name}": tensor for name, tensor in backbone.items()} | own, tmp_path / "model.safetensors")
    again = make_learner(["classify"], positions="rotary")
    for weight in again.parameters():
        torch.nn.init.zeros_(weight)
    open_folder(tmp_path).fill(again).require_complete("folder")
    for name, tensor in learner.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name
