"""Encoders that look left only, against their decoders; recurrent layers and heads that they have no model for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from transformers.models.bert import modeling_bert

from osbert.data.batch import Batch, collate
from osbert.data.example import Example
from osbert.interop.folder import open_folder
from osbert.interop.huggingface import folders as huggingface
from osbert.models.contract import Learner
from osbert.models.heads.predictions import SequenceHead
from osbert.objectives.left_to_right import LeftToRight
from osbert.objectives.sentence_order import SentenceOrder
from refusals import refusal

LENGTHS = [20, 6, 6, 4]
ATOL = 2e-5


def examples() -> list[Example]:
    rng, found = np.random.default_rng(0), []
    for length in LENGTHS:
        special = np.zeros(length, bool)
        special[[0, -1]] = True
        ids = rng.integers(5, 60, size=length)
        ids[0], ids[-1] = 2, 3
        segments = (np.arange(length) > length // 2).astype(np.int64)
        found.append(Example(ids=ids, segments=segments, words=~special, special=special))
    return found


def batch() -> Batch:
    return collate([LeftToRight().corrupt(example, None, np.random.default_rng(0)) for example in examples()])  # type: ignore[arg-type]


def padded() -> dict[str, torch.Tensor]:
    """Return the batch as their models take it."""
    rows = {"input_ids": [e.ids for e in examples()], "token_type_ids": [e.segments for e in examples()]}
    rows["attention_mask"] = [np.ones(length, np.int64) for length in LENGTHS]
    return {
        name: torch.nn.utils.rnn.pad_sequence([torch.from_numpy(row) for row in column], batch_first=True)
        for name, column in rows.items()
    }


def flat(values: torch.Tensor) -> torch.Tensor:
    """Return the tokens of a padded rectangle end to end."""
    return torch.cat([row[:length] for row, length in zip(values, LENGTHS, strict=True)])


def learner(make_learner: Callable[..., Learner], **changes: object) -> Learner:
    made = make_learner([], direction="left_to_right", **changes)
    torch.manual_seed(2)
    made.heads["left_to_right"] = LeftToRight().head(made.backbone)
    torch.nn.init.normal_(made.heads["left_to_right"].bias)
    return made.eval()


def test_their_decoder_is_ours_that_looks_left(tmp_path: Path, sizes: dict[str, object]) -> None:
    torch.manual_seed(0)
    theirs = modeling_bert.BertModel(transformers.BertConfig(**sizes, is_decoder=True)).eval()
    theirs.save_pretrained(tmp_path)
    loaded = open_folder(tmp_path)
    assert loaded.backbone.architecture.direction == "left_to_right"
    assert loaded.report.problems == () and loaded.report.select_names("new") == ()
    with torch.no_grad():
        expected = theirs(**padded(), output_hidden_states=True).hidden_states
        layers = list(loaded.backbone.eval().layers(batch()))
    for one, other in zip(layers, expected, strict=True):
        torch.testing.assert_close(one, flat(other), rtol=0, atol=ATOL)


@pytest.mark.parametrize(("positions", "name"), [("learned", "BertLMHeadModel"), ("rotary", "RoFormerForCausalLM")])
def test_the_loss_and_its_gradient_are_those_of_their_language_model(
    tmp_path: Path, make_learner: Callable[..., Learner], positions: str, name: str
) -> None:
    ours = learner(make_learner, positions=positions)
    huggingface.write_model(ours, tmp_path)
    theirs, report = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert type(theirs).__name__ == name and theirs.config.architectures == [name]
    assert not report["missing_keys"] and not report["mismatched_keys"]
    inputs = padded()
    labels = torch.where(inputs["attention_mask"].bool(), inputs["input_ids"], -100)
    labels[labels == 3] = -100  # [SEP] is not asked for
    expected = theirs.eval()(**inputs, labels=labels).loss
    loss = ours(batch())["left_to_right"]
    assert loss.count == sum(LENGTHS) - 2 * len(LENGTHS)
    mean = loss.total / loss.count
    torch.testing.assert_close(mean, expected, rtol=0, atol=ATOL)
    expected.backward()
    mean.backward()
    table = f"{theirs.base_model_prefix}.embeddings.word_embeddings.weight"
    torch.testing.assert_close(
        ours.backbone.embeddings.pieces.weight.grad, theirs.get_parameter(table).grad, rtol=0, atol=ATOL
    )


@pytest.mark.parametrize("changes", [{}, {"positions": "rotary"}, {"normalization": "pre"}, {"recurrent": 2}])
def test_the_direction_and_recurrent_layers_come_back_bit_for_bit(
    tmp_path: Path, make_learner: Callable[..., Learner], changes: dict[str, object]
) -> None:
    ours = make_learner(["classify"], direction="left_to_right", **changes)
    huggingface.write_model(ours, tmp_path)
    loaded = open_folder(tmp_path)
    assert loaded.backbone.architecture == ours.backbone.architecture
    again = Learner(loaded.backbone, {"classify": SequenceHead(loaded.backbone, target="x", labels=3)})
    open_folder(tmp_path).fill(again).require_complete("folder")
    assert again.state_dict().keys() == ours.state_dict().keys()
    for name, tensor in ours.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name


def test_recurrent_layers_close_a_model_to_others(tmp_path: Path, make_learner: Callable[..., Learner]) -> None:
    ours = make_learner([], recurrent=1)
    huggingface.write_model(ours, tmp_path)
    assert "recurrent = 1" in huggingface.osbert_only_reason(ours.backbone.architecture)
    with pytest.raises(ValueError, match="osbert"):
        transformers.AutoModel.from_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    huggingface.write_model(make_learner([]), tmp_path / "plain")
    (tmp_path / "plain" / "model.safetensors").rename(tmp_path / "model.safetensors")
    with refusal("damaged-file", "recurrent.weight_ih_l0", "32", "16"):
        _ = open_folder(tmp_path).backbone


def test_a_sentence_order_head_stays_out_of_the_way_of_theirs(
    tmp_path: Path, make_learner: Callable[..., Learner]
) -> None:
    ours = make_learner(["mlm"])
    torch.manual_seed(4)
    ours.heads["sentence_order"] = SentenceOrder().head(ours.backbone)
    huggingface.write_model(ours.eval(), tmp_path)
    theirs, report = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path, output_loading_info=True)
    assert theirs.config.architectures == ["BertForMaskedLM"]
    assert not report["missing_keys"] and not report["mismatched_keys"]
    with torch.no_grad():
        states = ours.backbone(batch())
        expected = theirs.eval()(**padded()).logits
    scores = ours.heads["mlm"].scores(states.hidden)
    torch.testing.assert_close(scores, flat(expected), rtol=0, atol=1e-4)
    again = make_learner(["mlm"])
    again.heads["sentence_order"] = SentenceOrder().head(again.backbone)
    open_folder(tmp_path).fill(again).require_complete("folder")
    assert torch.equal(again.heads["sentence_order"].linear.weight, ours.heads["sentence_order"].linear.weight)
