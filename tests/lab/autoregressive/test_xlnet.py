"""XLNet: both streams, memory and every head as transformers', folders both ways, and its tokenizer's form."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

os.environ["HF_HUB_OFFLINE"] = "1"

import transformers

from osbert.data.batch import Batch, BatchTarget, collate
from osbert.data.example import Example
from osbert.data.pack import Packer
from osbert.interop.folder import open_folder
from osbert.interop.huggingface import folders as huggingface
from osbert.interop.tokenizers import read_any_tokenizer, write_any_tokenizer
from osbert.models.contract import Head, Learner
from osbert.models.families.transformer import Transformer
from osbert.models.heads.grouped import ChoiceHead, SpanHead
from osbert.models.heads.predictions import MaskedLanguageHead, SequenceHead
from osbert.models.heads.tagging import TagHead
from osbert.models.memory import Past
from osbert.text.tokenizer import SPECIALS, Tokenizer
from osbert_lab.autoregressive.permuted import PermutedLanguage
from refusals import refusal

TOLERANCE = {"rtol": 0, "atol": 2e-5}
SIZES = {"vocab_size": 60, "d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 40, "mem_len": None}
HEADS = {
    "classify": "ForSequenceClassification",
    "tag": "ForTokenClassification",
    "span": "ForQuestionAnsweringSimple",
    "choose": "ForMultipleChoice",
    "mlm": "LMHeadModel",
}


def model(kind: str, **changes: Any) -> Any:
    """Return a random model of transformers whose weights are large enough to matter."""
    labels = 2 if "Question" in kind else 3
    torch.manual_seed(0)
    made = getattr(transformers, f"XLNet{kind}")(transformers.XLNetConfig(**SIZES, **changes, num_labels=labels))
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return made.eval()


def batch_of(*lengths: int, seed: int = 0) -> Batch:
    """Return texts with segments 0, 1 and 2, as <cls> has it."""
    rng = np.random.default_rng(seed)
    examples = []
    for place, n in enumerate(lengths):
        segments, none = (np.arange(n) > n // 2).astype(np.int8), np.zeros(n, np.bool_)
        segments[-1] = 2
        examples.append(
            Example(ids=rng.integers(5, 60, size=n), segments=segments, words=~none, special=none, record=place)
        )
    return collate(examples)


def inputs(batch: Batch) -> list[dict[str, Tensor]]:
    columns = zip(batch.ids.split(batch.lengths), batch.segments.split(batch.lengths), strict=True)
    return [{"input_ids": ids[None], "token_type_ids": kinds[None]} for ids, kinds in columns]


def head_of(kind: str, backbone: Transformer) -> Head:
    if kind in ("classify", "tag"):
        return {"classify": SequenceHead, "tag": TagHead}[kind](backbone, target=kind, labels=3)
    return {"span": SpanHead, "choose": ChoiceHead, "mlm": MaskedLanguageHead}[kind](backbone, target=kind)


def scores(learner: Learner, kind: str, batch: Batch) -> Tensor:
    every = BatchTarget(labels=torch.zeros(batch.tokens), index=torch.arange(batch.tokens), per_token=True, count=1.0)
    batch = replace(batch, targets={kind: every}) if kind == "mlm" else batch
    with torch.no_grad():
        return learner.heads[kind].outputs(learner.states(batch), batch)


@torch.no_grad()
def expected(made: Any, kind: str, batch: Batch) -> Tensor:
    rows = inputs(batch)
    if kind == "choose":
        choices = [{name: column[None] for name, column in row.items()} for row in rows]
        return torch.cat([made(**row, attention_mask=torch.ones_like(row["input_ids"])).logits for row in choices])
    found = [made(**row) for row in rows]
    if kind == "span":
        return torch.cat([torch.stack([one.start_logits[0], one.end_logits[0]], dim=1) for one in found])
    return torch.cat([one.logits if kind == "classify" else one.logits[0] for one in found])


@pytest.mark.parametrize("changes", [{}, {"attn_type": "uni", "clamp_len": 3}], ids=str)
def test_every_layer_is_theirs(changes: dict[str, Any], tmp_path: Path) -> None:
    made = model("Model", **changes)
    made.save_pretrained(tmp_path)
    loaded = open_folder(tmp_path)
    assert loaded.report.problems == ()
    assert sorted(loaded.report.select_names("new")) == ["pooler.dense.bias", "pooler.dense.weight"]
    batch = batch_of(12, 5, 1)
    with torch.no_grad():
        found = [made(**row, output_hidden_states=True).hidden_states for row in inputs(batch)]
        layers = [*loaded.backbone.eval().layers(batch)]
    for number, layer in enumerate(layers):
        torch.testing.assert_close(layer, torch.cat([one[number][0] for one in found]), **TOLERANCE)


@pytest.mark.parametrize("kind", HEADS)
def test_their_heads_give_their_scores_and_are_written_as_theirs(kind: str, tmp_path: Path) -> None:
    made = model(HEADS[kind])
    made.save_pretrained(tmp_path / "theirs")
    loaded = open_folder(tmp_path / "theirs")
    learner = Learner(loaded.backbone, {kind: head_of(kind, loaded.backbone)}).eval()
    rows = huggingface.fill_heads(loaded.tensors, learner)
    assert all(row.status == "loaded" and row.expected for row in rows)
    batch = batch_of(12, 5)
    before = expected(made, kind, batch)
    torch.testing.assert_close(scores(learner, kind, batch), before, **TOLERANCE)
    huggingface.write_model(learner, tmp_path / "ours")
    again, report = type(made).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert again.config.architectures == [type(made).__name__]
    assert not report["missing_keys"] and not report["mismatched_keys"]
    torch.testing.assert_close(expected(again.eval(), kind, batch), before, **TOLERANCE)
    assert open_folder(tmp_path / "ours").backbone.architecture == loaded.backbone.architecture


def permuted(length: int, seed: int) -> tuple[Example, dict[str, Tensor]]:
    """Return a corrupted text and what transformers is given for it, by section 2.2 and figure 1 of the paper.

    Of two pieces, the one that is revealed later sees the other; those that are not predicted are there from the start.
    """
    packer = Packer(tokenizer=Tokenizer([*SPECIALS, *(f"w{number}" for number in range(55))]), length=length)
    rng = np.random.default_rng(seed)
    text = packer.single(rng.integers(5, 60, size=length), np.ones(length, np.bool_))
    text = replace(text, segments=(np.arange(length) > length // 2).astype(np.int8))
    example = PermutedLanguage(rate=0.4).corrupt(text, packer, rng)
    order, positions, places = example.order, example.positions, np.arange(length)
    assert order is not None and positions is not None
    rank = order[:length]
    asked = positions[length:]
    # 1 where row i may not see column j; a predicted piece does not see itself, the others do.
    hidden = (rank[None] > 0) & (rank[None] >= rank[:, None])
    hidden[np.diag_indices(length)] = np.isin(places, asked)
    mapping = (asked[:, None] == places).astype(np.float32)
    columns = {"input_ids": text.ids, "token_type_ids": text.segments}
    given = {name: torch.from_numpy(column.astype(np.int64))[None] for name, column in columns.items()}
    given |= {"perm_mask": torch.from_numpy(hidden.astype(np.float32))[None]}
    return example, given | {"target_mapping": torch.from_numpy(mapping)[None]}


@pytest.mark.parametrize("memory", [0, 5])
@torch.no_grad()
def test_queries_are_their_second_stream_over_two_segments(memory: int, tmp_path: Path) -> None:
    made = model("LMHeadModel")
    made.transformer.mem_len = memory
    made.save_pretrained(tmp_path)
    folder = open_folder(tmp_path)
    learner = Learner(folder.backbone, {"permuted": MaskedLanguageHead(folder.backbone, target="permuted")}).eval()
    assert all(row.status == "loaded" for row in huggingface.fill_heads(folder.tensors, learner))
    past, mems = Past(layers=[torch.zeros(0, 16)] * 2, lengths=(0,), most=memory), None
    for seed in range(2):
        example, given = permuted(16, seed)
        found = made(**given, mems=mems, use_mems=bool(memory))
        mems = found.mems if memory else None
        batch = collate([example])
        if memory:
            states, past = folder.backbone.forward_with_past(batch, past)
        else:
            states = learner.states(batch)
        torch.testing.assert_close(learner.heads["permuted"].outputs(states, batch), found.logits[0], **TOLERANCE)
        if memory:  # the content stream: what the next segment remembers
            for layer, theirs in zip(past.layers, found.mems, strict=True):
                torch.testing.assert_close(layer, theirs[:, 0], **TOLERANCE)


def test_the_summary_is_of_the_last_token_that_is_no_query(tmp_path: Path) -> None:
    model("Model").save_pretrained(tmp_path)
    backbone = open_folder(tmp_path).backbone
    batch = collate([permuted(16, 0)[0], permuted(9, 1)[0]])
    assert (backbone.summaries(batch) - batch.starts).tolist() == [15, 8]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("bi_data", True),
        ("same_length", True),
        ("summary_type", "first"),
        ("attn_type", "none"),
        ("clamp_len", "far"),
        ("d_head", 6),
    ],
)
def test_other_mathematics_is_refused(field: str, value: object, tmp_path: Path) -> None:
    model("Model").save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
    with refusal("unsupported-model", field, repr(value)):
        _ = open_folder(tmp_path).backbone


def test_their_tokenizer_ends_with_its_summary(tmp_path: Path) -> None:
    specials = ("<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>")
    vocabulary = [(piece, 0.0) for piece in (*specials, "▁a", "▁cat", "s", "▁sat", "▁")]
    theirs = transformers.XLNetTokenizer(vocab=vocabulary, unk_id=0)
    theirs.save_pretrained(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("{}")  # as it was published first
    ours = read_any_tokenizer(tmp_path)
    assert (ours.cls, ours.sep, ours.mask, ours.pad) == (3, 4, 6, 5) and ours.form.summary == "last"
    packer = Packer(tokenizer=ours, length=20)
    for texts in (["a cats sat"], ["a cats", "sat"]):
        expected = theirs(*texts, return_token_type_ids=True)
        runs = [packer.run(text) for text in texts]
        example = packer.single(*runs[0]) if len(runs) == 1 else packer.pair(*runs)
        assert example.ids.tolist() == expected["input_ids"]
        assert example.segments.tolist() == expected["token_type_ids"]
    write_any_tokenizer(ours, tmp_path / "again", segments=3)
    assert read_any_tokenizer(tmp_path / "again") == ours
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "again")
    assert again("a", "cats", return_token_type_ids=True)["token_type_ids"][-2:] == [1, 2]
