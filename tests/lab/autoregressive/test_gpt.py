"""GPT and GPT-2: the states, scores and folders of transformers, both ways; and the fields that are refused."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"

import transformers
from safetensors.torch import load_file, save_file

from osbert.data.batch import Batch, BatchTarget, collate
from osbert.data.example import Example
from osbert.data.examples import Examples
from osbert.interop.folder import open_folder
from osbert.interop.huggingface import folders as huggingface
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.models.heads.grouped import ChoiceHead
from osbert.models.heads.predictions import MaskedLanguageHead, SequenceHead
from osbert.models.heads.tagging import TagHead
from osbert.objectives.left_to_right import LeftToRight
from refusals import refusal

TOLERANCE = 2e-5
SIZES = {"vocab_size": 60, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 24, "initializer_range": 0.3}
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt": ("OpenAIGPT", SIZES),
    "gpt-relu": ("OpenAIGPT", SIZES | {"afn": "relu"}),
    "gpt-silu": ("OpenAIGPT", SIZES | {"afn": "swish"}),
    "gpt2": ("GPT2", SIZES),
    "gpt2-inverse": ("GPT2", SIZES | {"scale_attn_by_inverse_layer_idx": True, "reorder_and_upcast_attn": True}),
    "gpt2-unscaled": ("GPT2", SIZES | {"scale_attn_weights": False}),
    "gpt2-wide": ("GPT2", SIZES | {"n_inner": 40, "activation_function": "relu", "layer_norm_epsilon": 1e-3}),
}


def model(name: str, kind: str = "Model", **fields: Any) -> Any:
    """A random model of transformers, no two of whose vectors are alike."""
    begin, sizes = CONFIGS[name]
    torch.manual_seed(0)
    made = getattr(transformers, begin + kind)(getattr(transformers, f"{begin}Config")(**sizes | fields)).eval()
    for parameter in made.parameters():
        if parameter.ndim == 1:
            torch.nn.init.normal_(parameter, mean=parameter.detach().mean().item(), std=0.1)
    return made


@pytest.mark.parametrize("name", ["gpt2-inverse", "gpt2-unscaled"])
def test_queries_in_half_precision_are_scaled_in_single_precision(name: str, tmp_path: Path) -> None:
    made = model(name, n_layer=3).half()
    made.save_pretrained(tmp_path / "half")
    made.float().save_pretrained(tmp_path / "single")
    half, single = (open_folder(tmp_path / part).backbone.state_dict() for part in ("half", "single"))
    assert all(torch.equal(half[parameter], single[parameter]) for parameter in single)


def examples_of(*lengths: int) -> list[Example]:
    rng = np.random.default_rng(0)
    none = [np.zeros(length, np.bool_) for length in lengths]
    return [
        Example(ids=rng.integers(0, 60, len(one)), segments=one.astype(np.int8), words=one, special=one, record=row)
        for row, one in enumerate(none)
    ]


def batch_of(*lengths: int) -> Batch:
    """Return sequences of some lengths, every token of which is asked for its next piece."""
    batch = collate(examples_of(*lengths))
    every = torch.arange(batch.tokens)
    return replace(batch, targets={"mlm": BatchTarget(labels=batch.ids, index=every, per_token=True, count=1.0)})


def theirs(made: Any, batch: Batch, **options: Any) -> list[Any]:
    with torch.no_grad():
        return [made(input_ids=ids[None], **options) for ids in batch.ids.split(batch.lengths)]


@pytest.mark.parametrize("name", CONFIGS)
def test_every_layer_is_theirs(name: str, tmp_path: Path) -> None:
    made = model(name)
    made.save_pretrained(tmp_path)
    loaded = open_folder(tmp_path)
    assert loaded.report.problems == () and not loaded.has_pooler
    assert loaded.architecture.direction == "left_to_right"
    batch = batch_of(24, 9, 9, 2)
    found = theirs(made, batch, output_hidden_states=True)
    with torch.no_grad():
        layers = list(loaded.backbone.eval().layers(batch))
    assert len(layers) == 3
    for layer, mine in enumerate(layers):
        other = torch.cat([one.hidden_states[layer][0] for one in found])
        torch.testing.assert_close(mine, other, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", CONFIGS)
def test_their_language_model_gives_their_scores_and_is_written_as_theirs(name: str, tmp_path: Path) -> None:
    made = model(name, "LMHeadModel")
    made.save_pretrained(tmp_path / "theirs")
    folder = open_folder(tmp_path / "theirs")
    assert folder.report.problems == () and {*folder.heads} == {"mlm"}
    learner = Learner(folder.backbone, folder.heads).eval()
    batch = batch_of(24, 9, 5)
    before = torch.cat([one.logits[0] for one in theirs(made, batch)])
    with torch.no_grad():
        scores = learner.heads["mlm"].outputs(learner.states(batch), batch)
    torch.testing.assert_close(scores, before, rtol=0, atol=TOLERANCE)

    huggingface.write_model(learner, tmp_path / "ours")
    assert not huggingface.osbert_only_reason(learner.backbone.architecture, learner)
    name_of_class = CONFIGS[name][0] + "LMHeadModel"
    assert json.loads((tmp_path / "ours" / "config.json").read_text())["architectures"] == [name_of_class]
    again, report = getattr(transformers, name_of_class).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not report["missing_keys"] and not report["mismatched_keys"]
    after = torch.cat([one.logits[0] for one in theirs(again.eval(), batch)])
    torch.testing.assert_close(after, before, rtol=0, atol=TOLERANCE)
    reopened = open_folder(tmp_path / "ours")
    assert reopened.report.problems == () and not reopened.report.select_names("new") and not reopened.has_pooler
    assert reopened.backbone.architecture == learner.backbone.architecture
    for parameter, tensor in learner.backbone.state_dict().items():
        assert torch.equal(reopened.backbone.state_dict()[parameter], tensor), parameter


def test_the_gradient_of_the_next_piece_is_theirs(tmp_path: Path) -> None:
    made = model("gpt2", "LMHeadModel", resid_pdrop=0.0, attn_pdrop=0.0, embd_pdrop=0.0)
    made.save_pretrained(tmp_path)
    folder = open_folder(tmp_path)
    batch = batch_of(12)
    labels = batch.ids[1:]
    target = BatchTarget(labels=labels, index=torch.arange(11), per_token=True, count=11.0)
    learner = Learner(folder.backbone, {"mlm": MaskedLanguageHead(folder.backbone)})
    loss = learner(replace(batch, targets={"mlm": target}))["mlm"]
    (loss.total / 11).backward()
    expected = made(input_ids=batch.ids[None], labels=batch.ids[None]).loss
    expected.backward()
    torch.testing.assert_close(loss.total / 11, expected, rtol=0, atol=TOLERANCE)
    block, own = made.transformer.h[0], folder.backbone.blocks[0]
    torch.testing.assert_close(own.attention.inward.weight.grad, block.attn.c_attn.weight.grad.T, rtol=0, atol=1e-4)
    torch.testing.assert_close(own.down.weight.grad, block.mlp.c_proj.weight.grad.T, rtol=0, atol=1e-4)
    pieces = folder.backbone.embeddings.pieces.weight.grad
    torch.testing.assert_close(pieces, made.transformer.wte.weight.grad, rtol=0, atol=1e-4)


def test_taggers_are_theirs_and_classifiers_of_texts_stay_with_us(tmp_path: Path) -> None:
    model("gpt2").save_pretrained(tmp_path / "theirs")
    backbone = open_folder(tmp_path / "theirs").backbone
    learner = Learner(backbone, {"tag": TagHead(backbone, target="tag", labels=3)}).eval()
    huggingface.write_model(learner, tmp_path / "ours")
    batch = batch_of(9, 5)
    again = transformers.GPT2ForTokenClassification.from_pretrained(tmp_path / "ours").eval()
    with torch.no_grad():
        scores = learner.heads["tag"].outputs(learner.states(batch), batch)
    expected = torch.cat([one.logits[0] for one in theirs(again, batch)])
    torch.testing.assert_close(scores, expected, rtol=0, atol=TOLERANCE)
    classifier = Learner(backbone, {"classify": SequenceHead(backbone, target="classify", labels=3)}).eval()
    huggingface.write_model(classifier, tmp_path / "classifier")
    assert "left_to_right" in huggingface.osbert_only_reason(backbone.architecture, classifier)
    other = transformers.GPT2Config(**SIZES, num_labels=3)
    same = transformers.GPT2ForSequenceClassification(other).eval()
    same.transformer.load_state_dict(model("gpt2").state_dict())
    torch.nn.init.zeros_(classifier.heads["classify"].linear.bias)
    same.score.load_state_dict({"weight": classifier.heads["classify"].linear.weight})
    with torch.no_grad():
        mine = classifier.heads["classify"].outputs(classifier.states(batch), batch)
    torch.testing.assert_close(mine, torch.cat([one.logits for one in theirs(same, batch)]), rtol=0, atol=TOLERANCE)
    reopened = open_folder(tmp_path / "classifier").backbone.eval()
    assert reopened.architecture == backbone.architecture
    assert torch.equal(reopened(batch).pooled, backbone.eval()(batch).pooled)


@pytest.mark.parametrize("name", ["gpt", "gpt2"])
def test_choices_and_the_language_model_have_the_losses_of_their_model_with_two_heads(name: str, tmp_path) -> None:
    kind = f"{CONFIGS[name][0]}DoubleHeadsModel"
    made = model(name, "DoubleHeadsModel", num_labels=1)
    made.save_pretrained(tmp_path / "theirs")
    folder = open_folder(tmp_path / "theirs")
    heads = {"choose": ChoiceHead(folder.backbone, target="choose"), "mlm": MaskedLanguageHead(folder.backbone)}
    learner = Learner(folder.backbone, heads).eval()
    assert folder.fill(learner).select_names("new") == ()
    batch = batch_of(9, 9, 9)
    every = LeftToRight().every_next(Examples.of(examples_of(9, 9, 9))).targets["left_to_right"]
    labels, index, weights = (torch.from_numpy(column) for column in (every.labels, every.index, every.weights))
    targets = {
        "choose": BatchTarget(labels=torch.tensor([1]), index=torch.tensor([1]), per_token=False, count=1.0),
        "mlm": BatchTarget(labels=labels, index=index, weights=weights, per_token=True, count=3.0),
    }
    batch = replace(batch, targets=targets, records=torch.zeros(3, dtype=torch.int64))
    ids = batch.ids.view(1, 3, 9)
    with torch.no_grad():
        losses = learner(batch)
        expected = made(input_ids=ids, mc_labels=torch.tensor([1]), labels=ids)
    torch.testing.assert_close(losses["mlm"].total / 3, expected.loss, rtol=0, atol=TOLERANCE)
    torch.testing.assert_close(losses["choose"].total, expected.mc_loss, rtol=0, atol=TOLERANCE)

    chooser = Learner(folder.backbone, {"choose": heads["choose"]})
    huggingface.write_model(chooser, tmp_path / "ours")
    again, report = getattr(transformers, kind).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not report["missing_keys"] and not report["mismatched_keys"]
    with torch.no_grad():
        scores = again.eval()(input_ids=ids).mc_logits[0]
    torch.testing.assert_close(scores, expected.mc_logits[0], rtol=0, atol=TOLERANCE)


def test_files_of_the_first_releases_have_tables_that_hold_nothing_learned(tmp_path: Path) -> None:
    model("gpt2").save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    save_file(tensors | {"h.0.attn.bias": torch.ones(1, 1, 24, 24)}, tmp_path / "model.safetensors")
    assert open_folder(tmp_path).report.problems == ()


@pytest.mark.parametrize("name", ["gpt", "gpt2"])
def test_an_old_pretraining_with_a_pooler_that_nothing_read_has_no_remark(name: str, tmp_path: Path) -> None:
    made = model(name, "LMHeadModel")
    made.save_pretrained(tmp_path)
    expected = open_folder(tmp_path).backbone.state_dict()
    path = tmp_path / "model.safetensors"
    pooler = {"transformer.pooler.dense.weight": torch.ones(16, 16), "transformer.pooler.dense.bias": torch.ones(16)}
    save_file(load_file(path) | pooler, path, metadata={"format": "pt"})
    source = open_folder(tmp_path)
    torch.testing.assert_close(source.backbone.state_dict(), expected)
    assert (
        source.report.select_names("unused") == ("pooler.dense.bias", "pooler.dense.weight")
        and not source.report.problems
    )


@pytest.mark.parametrize(
    ("name", "change", "values"),
    [
        ("gpt2", {"scale_attn_weights": "no"}, ("scale_attn_weights", "no")),
        ("gpt2", {"activation_function": "mish"}, ("activation_function", "mish")),
        ("gpt2", {"n_inner": "wide"}, ("n_inner", "wide")),
        ("gpt2", {"embd_pdrop": 0.3}, ("embd_pdrop", "0.3")),
        ("gpt2", {"add_cross_attention": True}, ("add_cross_attention", "True")),
        ("gpt2", {"summary_type": "mean"}, ("summary_type", "mean")),
        ("gpt", {"summary_activation": "tanh"}, ("summary_activation", "tanh")),
        ("gpt", {"afn": "mish"}, ("afn", "mish")),
        ("gpt", {"n_head": "two"}, ("n_head", "two")),
    ],
)
def test_other_mathematics_is_refused(name: str, change: dict[str, Any], values: tuple[str, str], tmp_path) -> None:
    model(name).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with refusal("unsupported-model", *values):
        _ = open_folder(tmp_path).backbone


def test_how_fresh_weights_start_is_kept(tmp_path: Path) -> None:
    shape = {"layers": 2, "heads": 2, "width": 16, "vocabulary": 60, "length": 24}
    values = {"segments": 0, "direction": "left_to_right", "embedding_norm": False, "piece_transform": False}
    values["pooling"] = "none"
    for number, scaled in enumerate((True, False)):
        sizes = Architecture(**shape, **values, normalization="pre", activation="gelu_tanh", scaled_outputs=scaled)
        backbone = sizes.build()
        huggingface.write_model(Learner(backbone, {}), tmp_path / str(number))
        assert json.loads((tmp_path / str(number) / "config.json").read_text())["model_type"] == "gpt2"
        assert open_folder(tmp_path / str(number)).backbone.architecture == backbone.architecture
