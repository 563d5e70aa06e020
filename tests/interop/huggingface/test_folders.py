"""Hugging Face folders: equality with transformers both ways, and clear words for what cannot be opened."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

os.environ["HF_HUB_OFFLINE"] = "1"

import transformers
from safetensors.torch import load_file, save_file
from transformers.models.roformer import modeling_roformer

from osbert.data.batch import Batch, BatchTarget, collate
from osbert.data.example import Example
from osbert.interop.folder import open_folder
from osbert.interop.hub import minilm
from osbert.interop.huggingface import folders as huggingface
from osbert.interop.tokenizers import write_tokenizer
from osbert.models.contract import Learner
from osbert.text.tokenizer import SPECIALS, Tokenizer
from refusals import refusal

TOLERANCE = 2e-5


def make_batch(lengths: list[int], vocabulary: int = 60, seed: int = 0) -> Batch:
    rng = np.random.default_rng(seed)
    examples = []
    for place, length in enumerate(lengths):
        cut = int(rng.integers(1, length))
        examples.append(
            Example(
                ids=rng.integers(1, vocabulary, size=length),
                segments=np.repeat([0, 1], [cut, length - cut]),
                words=np.ones(length, dtype=bool),
                special=np.zeros(length, dtype=bool),
                record=place,
            )
        )
    return collate(examples)


def padded(batch: Batch) -> dict[str, torch.Tensor]:
    """The batch as transformers wants it: rectangles and a mask."""

    def square(column: torch.Tensor) -> torch.Tensor:
        return torch.nn.utils.rnn.pad_sequence(list(column.split(batch.lengths)), batch_first=True)

    return {
        "input_ids": square(batch.ids),
        "token_type_ids": square(batch.segments),
        "attention_mask": square(torch.ones_like(batch.ids)),
    }


def flat(columns: torch.Tensor, batch: Batch) -> torch.Tensor:
    return torch.cat([row[:length] for row, length in zip(columns, batch.lengths, strict=True)])


def labelled(batch: Batch) -> Batch:
    index = torch.tensor([1, 4, batch.lengths[0] + 2])
    mlm = BatchTarget(labels=torch.tensor([7, 3, 11]), index=index, per_token=True, count=3.0)
    sequences = torch.arange(len(batch.lengths))
    nsp = BatchTarget(labels=sequences % 2, index=sequences, per_token=False, count=float(len(sequences)))
    return replace(batch, targets={"mlm": mlm, "nsp": nsp})


@pytest.fixture(scope="module")
def published() -> Path:
    return minilm()


def test_a_published_model_gives_equal_states_in_every_layer(published: Path) -> None:
    theirs = transformers.AutoModel.from_pretrained(published, attn_implementation="eager").eval()
    loaded = open_folder(published)
    assert loaded.report.problems == () and loaded.report.select_names("new") == ()
    assert loaded.report.select_names("unused") == ("embeddings.position_ids",)
    ours = loaded.backbone.eval()
    batch = make_batch([37, 128, 5, 5, 64, 2], vocabulary=30522)
    with torch.no_grad():
        expected = theirs(**padded(batch), output_hidden_states=True)
        for mine, other in zip(ours.layers(batch), expected.hidden_states, strict=True):
            torch.testing.assert_close(mine, flat(other, batch), rtol=0, atol=TOLERANCE)
        states = ours(batch)
    torch.testing.assert_close(states.summary, expected.last_hidden_state[:, 0], rtol=0, atol=TOLERANCE)
    torch.testing.assert_close(states.pooled, expected.pooler_output, rtol=0, atol=TOLERANCE)


def test_attention_weights_are_theirs(published: Path) -> None:
    theirs = transformers.AutoModel.from_pretrained(published, attn_implementation="eager").eval()
    ours = open_folder(published).backbone.eval()
    batch = make_batch([12, 7], vocabulary=30522)
    with torch.no_grad():
        expected = theirs(**padded(batch), output_attentions=True).attentions
        for mine, other in zip(ours.weights(batch), expected, strict=True):
            for place, length in enumerate(batch.lengths):
                torch.testing.assert_close(mine[place], other[place, :, :length, :length], rtol=0, atol=TOLERANCE)


def test_losses_and_gradients_equal_those_of_pretraining(
    pretraining, tmp_path: Path, make_learner: Callable[..., Learner]
) -> None:
    pretraining.save_pretrained(tmp_path)
    learner = make_learner(["mlm", "nsp"])
    report = open_folder(tmp_path).fill(learner)
    assert report.problems == () and report.select_names("new") == ()
    batch = labelled(make_batch([9, 6, 6, 4]))
    losses = learner(batch)

    labels = torch.full(padded(batch)["input_ids"].shape, -100)
    labels[0, 1], labels[0, 4], labels[1, 2] = 7, 3, 11
    theirs = pretraining(**padded(batch))
    mlm = functional.cross_entropy(theirs.prediction_logits.flatten(0, 1), labels.flatten())
    nsp = functional.cross_entropy(theirs.seq_relationship_logits, batch.targets["nsp"].labels)
    torch.testing.assert_close(losses["mlm"].total / losses["mlm"].count, mlm)
    torch.testing.assert_close(losses["nsp"].total / losses["nsp"].count, nsp)

    pretraining.zero_grad()
    (mlm + nsp).backward()
    sum(loss.total / loss.count for loss in losses.values()).backward()
    block, other = learner.backbone.blocks[0], pretraining.bert.encoder.layer[0]
    attention = other.attention.self
    pairs = {
        "pieces": (learner.backbone.embeddings.pieces, pretraining.bert.embeddings.word_embeddings),
        "positions": (learner.backbone.embeddings.positions, pretraining.bert.embeddings.position_embeddings),
        "norm": (block.attention_norm, other.attention.output.LayerNorm),
        "up": (block.up, other.intermediate.dense),
        "pooler": (learner.backbone.pooler, pretraining.bert.pooler.dense),
        "nsp": (learner.heads["nsp"].linear, pretraining.cls.seq_relationship),
        "transform": (learner.heads["mlm"].dense, pretraining.cls.predictions.transform.dense),
    }
    for name, (mine, their) in pairs.items():
        torch.testing.assert_close(mine.weight.grad, their.weight.grad, rtol=1e-4, atol=1e-5, msg=name)
    joined = torch.cat([part.weight.grad for part in (attention.query, attention.key, attention.value)])
    torch.testing.assert_close(block.attention.inward.weight.grad, joined, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(learner.heads["mlm"].bias.grad, pretraining.cls.predictions.bias.grad)


@pytest.mark.parametrize(
    ("kinds", "opener", "expected"),
    [
        ([], "AutoModel", "BertModel"),
        (["mlm"], "AutoModelForMaskedLM", "BertForMaskedLM"),
        (["nsp"], "AutoModelForNextSentencePrediction", "BertForNextSentencePrediction"),
        (["mlm", "nsp"], "AutoModelForPreTraining", "BertForPreTraining"),
        (["mlm", "nsp"], "AutoModel", "BertForPreTraining"),
        (["classify"], "AutoModelForSequenceClassification", "BertForSequenceClassification"),
        (["regress"], "AutoModelForSequenceClassification", "BertForSequenceClassification"),
        (["tag"], "AutoModelForTokenClassification", "BertForTokenClassification"),
    ],
)
def test_what_is_written_opens_in_transformers_with_equal_outputs(
    tmp_path: Path, kinds: list[str], opener: str, expected: str, make_learner: Callable[..., Learner]
) -> None:
    learner = make_learner(kinds)
    huggingface.write_model(learner, tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == [expected]
    theirs, report = getattr(transformers, opener).from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"] and not report["mismatched_keys"]
    batch = labelled(make_batch([9, 6, 6, 4]))
    with torch.no_grad():
        states = learner.backbone(batch)
        found = theirs.eval()(**padded(batch))
        if opener == "AutoModel":
            assert_close(states.hidden, flat(found.last_hidden_state, batch))
            assert_close(states.pooled, found.pooler_output)
        if opener in ("AutoModelForMaskedLM", "AutoModelForPreTraining"):
            scores = found.logits if opener == "AutoModelForMaskedLM" else found.prediction_logits
            assert_close(learner.heads["mlm"].outputs(states, batch), flat(scores, batch)[batch.targets["mlm"].index])
        if opener == "AutoModelForPreTraining":
            assert_close(learner.heads["nsp"].outputs(states, batch), found.seq_relationship_logits)
        if opener in ("AutoModelForNextSentencePrediction", "AutoModelForSequenceClassification"):
            assert_close(learner.heads[kinds[0]].outputs(states, batch), found.logits)
        if opener == "AutoModelForTokenClassification":
            assert_close(learner.heads["tag"].outputs(states, batch), flat(found.logits, batch))


def assert_close(mine: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(mine, theirs, rtol=0, atol=TOLERANCE)


def test_weights_come_back_bit_for_bit(pretraining, tmp_path: Path, make_learner: Callable[..., Learner]) -> None:
    """transformers -> ours -> a folder: the same tensors under the same names."""
    pretraining.save_pretrained(tmp_path / "theirs")
    learner = make_learner(["mlm", "nsp"])
    open_folder(tmp_path / "theirs").fill(learner).require_complete("theirs")
    huggingface.write_model(learner, tmp_path / "ours")
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("theirs", "ours"))
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        assert torch.equal(tensor, after[name]), name


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_a_written_model_is_read_back_whole(
    tmp_path: Path, positions: str, make_learner: Callable[..., Learner]
) -> None:
    learner = make_learner(["mlm", "nsp", "classify", "regress"], positions=positions, activation="gelu_tanh")
    huggingface.write_model(learner, tmp_path, labels=["a", "b", "c"])
    loaded = open_folder(tmp_path)
    assert loaded.report.problems == () and loaded.report.select_names("new") == ()
    assert loaded.backbone.architecture == learner.backbone.architecture
    twin = make_learner(["mlm", "nsp", "classify", "regress"], positions=positions, activation="gelu_tanh")
    for parameter in twin.parameters():
        torch.nn.init.normal_(parameter)
    open_folder(tmp_path).fill(twin).require_complete("folder")
    for name, tensor in learner.state_dict().items():
        assert torch.equal(tensor, twin.state_dict()[name]), name


def test_how_fresh_weights_start_is_written_too(tmp_path: Path, make_learner: Callable[..., Learner]) -> None:
    learner = make_learner([], positions="rotary", neighbours=2.0)
    huggingface.write_model(learner, tmp_path)
    assert open_folder(tmp_path).backbone.architecture == learner.backbone.architecture
    huggingface.write_model(make_learner([]), tmp_path)
    assert "osbert" not in (tmp_path / "config.json").read_text()


def test_a_regressors_unit_is_in_their_weights_and_ours_stay_exact(
    tmp_path: Path, make_learner: Callable[..., Learner]
) -> None:
    learner = make_learner(["regress"])
    huggingface.write_model(learner, tmp_path, center=200.0, scale=50.0)
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    batch = make_batch([9, 4])
    with torch.no_grad():
        mine = learner.heads["regress"].outputs(learner.backbone(batch), batch)
        torch.testing.assert_close(200 + 50 * mine, theirs(**padded(batch)).logits, rtol=0, atol=1e-3)
    twin = make_learner(["regress"])
    torch.nn.init.zeros_(twin.heads["regress"].linear.weight)
    open_folder(tmp_path).fill(twin).require_complete("folder")
    assert torch.equal(twin.heads["regress"].linear.weight, learner.heads["regress"].linear.weight)
    assert torch.equal(twin.heads["regress"].linear.bias, learner.heads["regress"].linear.bias)


def test_a_tokenizer_of_another_model_is_refused(tmp_path: Path, make_learner: Callable[..., Learner]) -> None:
    huggingface.write_model(make_learner([]), tmp_path)
    write_tokenizer(Tokenizer([*SPECIALS, *(f"w{n}" for n in range(55))]), tmp_path)
    assert len(open_folder(tmp_path).tokenizer) == 60
    write_tokenizer(Tokenizer([*SPECIALS, *(f"w{n}" for n in range(56))]), tmp_path)
    with refusal("mismatched-tokenizer", "61", "60"):
        _ = open_folder(tmp_path).tokenizer


def test_label_names_and_problem_type_are_told(tmp_path: Path, make_learner: Callable[..., Learner]) -> None:
    huggingface.write_model(make_learner(["classify"]), tmp_path, labels=["bad", "fair", "good"])
    config = transformers.AutoConfig.from_pretrained(tmp_path)
    assert config.id2label == {0: "bad", 1: "fair", 2: "good"}
    assert config.label2id == {"bad": 0, "fair": 1, "good": 2}
    assert config.problem_type == "single_label_classification"
    huggingface.write_model(make_learner(["regress"]), tmp_path)
    assert transformers.AutoConfig.from_pretrained(tmp_path).problem_type == "regression"
    with pytest.raises(ValueError, match="2 label names for 3 outputs"):
        huggingface.write_model(make_learner(["classify"]), tmp_path, labels=["bad", "good"])


@pytest.mark.parametrize(
    ("kinds", "opener"),
    [([], "AutoModel"), (["mlm", "nsp"], "AutoModelForMaskedLM"), (["tag"], "AutoModelForTokenClassification")],
)
def test_a_rotary_encoder_opens_as_roformer(
    tmp_path: Path, kinds: list[str], opener: str, make_learner: Callable[..., Learner]
) -> None:
    learner = make_learner(kinds, positions="rotary")
    huggingface.write_model(learner, tmp_path)
    theirs, report = getattr(transformers, opener).from_pretrained(tmp_path, output_loading_info=True)
    assert theirs.config.model_type == "roformer"
    assert not report["missing_keys"] and not report["mismatched_keys"]
    batch = labelled(make_batch([20, 6, 6, 4]))
    with torch.no_grad():
        states = learner.backbone(batch)
        found = theirs.eval()(**padded(batch), output_hidden_states=True)
        assert_close(states.hidden, flat(found.hidden_states[-1], batch))
        if kinds == ["tag"]:
            assert_close(learner.heads["tag"].outputs(states, batch), flat(found.logits, batch))
        elif kinds:
            scores = flat(found.logits, batch)[batch.targets["mlm"].index]
            assert_close(learner.heads["mlm"].outputs(states, batch), scores)


@pytest.mark.parametrize("narrow", [{}, {"embedding_size": 6}], ids=str)
def test_a_roformer_of_theirs_is_read(tmp_path: Path, sizes: dict[str, object], narrow: dict[str, int]) -> None:
    torch.manual_seed(0)
    theirs = modeling_roformer.RoFormerModel(transformers.RoFormerConfig(**sizes, **narrow)).eval()
    theirs.save_pretrained(tmp_path)
    loaded = open_folder(tmp_path)
    assert loaded.report.select_names("new") == ("pooler.dense.weight", "pooler.dense.bias")
    assert loaded.report.problems == ()
    huggingface.write_model(Learner(loaded.backbone, {}), tmp_path / "again")
    before, after = (load_file(folder / "model.safetensors") for folder in (tmp_path, tmp_path / "again"))
    assert after.keys() - before.keys() == {"pooler.dense.weight", "pooler.dense.bias"}
    for name, tensor in before.items():
        torch.testing.assert_close(tensor, after[name], rtol=0, atol=1e-6 if "embed_positions" in name else 0)
    batch = make_batch([20, 6, 6, 4])
    with torch.no_grad():
        expected = flat(theirs(**padded(batch)).last_hidden_state, batch)
        assert_close(loaded.backbone.eval()(batch).hidden, expected)


def test_other_forms_of_the_same_weights_give_the_same_model(pretraining, tmp_path: Path) -> None:
    """Shards, PyTorch files, bare names, TensorFlow's gamma and beta, half precision: all the same encoder."""
    pretraining.save_pretrained(tmp_path / "whole")
    wanted = open_folder(tmp_path / "whole").backbone.state_dict()
    tensors = load_file(tmp_path / "whole" / "model.safetensors")

    def check(folder: Path, tolerance: float = 0) -> None:
        shutil.copy(tmp_path / "whole" / "config.json", folder)
        for name, tensor in open_folder(folder).backbone.state_dict().items():
            torch.testing.assert_close(tensor, wanted[name], rtol=0, atol=tolerance)

    for name in ("shards", "pickled", "bare", "old", "half"):
        (tmp_path / name).mkdir()
    pretraining.save_pretrained(tmp_path / "shards", max_shard_size="10KB")
    assert (tmp_path / "shards" / "model.safetensors.index.json").is_file()
    check(tmp_path / "shards")
    torch.save(tensors, tmp_path / "pickled" / "pytorch_model.bin")
    check(tmp_path / "pickled")
    save_file(
        {name.removeprefix("bert."): tensor for name, tensor in tensors.items()},
        tmp_path / "bare" / "model.safetensors",
    )
    check(tmp_path / "bare")
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in tensors.items()
    }
    assert any("gamma" in name for name in old)
    torch.save(old, tmp_path / "old" / "pytorch_model.bin")
    check(tmp_path / "old")
    save_file({name: tensor.half() for name, tensor in tensors.items()}, tmp_path / "half" / "model.safetensors")
    check(tmp_path / "half", tolerance=1e-3)
