"""T5 and T5 1.1: encoder, decoder, loss and generation are theirs, folders are read and written."""

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

import tokenizers
import transformers
from safetensors.torch import load_file, save_file

import osbert
from osbert.data.batch import collate
from osbert.data.example import Example
from osbert.data.examples import Examples
from osbert.interop.folder import open_folder
from osbert.interop.huggingface.folders import write_model
from osbert.models.contract import Learner
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert_lab.writing.decoder_inputs import decoder_examples
from osbert_lab.writing.objectives.spans import sentinels
from osbert_lab.writing.search import Limits, WrittenRow, write
from osbert_lab.writing.settings import GenerationOptions
from refusals import refusal

SIZES: dict[str, Any] = {
    "vocab_size": 60,
    "d_model": 16,
    "d_kv": 6,
    "d_ff": 20,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": 2,
    "decoder_start_token_id": 0,
    "relative_attention_num_buckets": 8,
    "dropout_rate": 0.1,
}
KINDS = {
    "1.0": {"feed_forward_proj": "relu", "d_kv": 8, "num_decoder_layers": 2},
    "1.1": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
}
SOURCES, TEXTS = ([5, 6, 7, 8, 9, 1], [10, 11, 1], [12, 13, 14, 1]), ([20, 21, 1], [22, 23, 24, 25, 1], [26, 1])


def example(ids: list[int], record: int) -> Example:
    flags = np.zeros(len(ids), np.bool_)
    return Example(ids=np.array(ids), segments=flags.astype(np.int8), words=flags, special=flags, record=record)


def save(folder: Path, kind: str, **sizes: int) -> transformers.T5ForConditionalGeneration:
    torch.manual_seed(0)
    made = transformers.T5ForConditionalGeneration(transformers.T5Config(**SIZES | KINDS[kind] | sizes)).eval()
    made.generation_config.decoder_start_token_id = 0
    if kind == "1.1":  # a new one shares its table, a published one does not
        made.lm_head.weight = torch.nn.Parameter(torch.empty_like(made.lm_head.weight))
    for name, weight in made.named_parameters():  # theirs begin so small that all texts come out alike
        if "shared" not in name:
            torch.nn.init.normal_(weight, 1.0 if weight.ndim == 1 else 0.0, 0.25)
    made.save_pretrained(folder)
    return made


def padded(rows: tuple[list[int], ...], fill: int) -> torch.Tensor:
    width = max(map(len, rows))
    return torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows])


def opened(folder: Path) -> Learner:
    backbone = open_folder(folder).backbone
    learner = Learner(backbone, {"generate": MaskedLanguageHead(backbone, target="generate")}).eval()
    open_folder(folder).fill(learner).require_complete(str(folder))
    return learner


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_encoder_decoder_and_loss_are_theirs(kind: str, tmp_path: Path) -> None:
    made = save(tmp_path / "theirs", kind)
    learner = opened(tmp_path / "theirs")
    sides = [Examples.of([example(ids, row) for row, ids in enumerate(rows)]) for rows in (SOURCES, TEXTS)]
    batch = collate(list(decoder_examples(*sides, 0, name="generate")))
    ids = padded(SOURCES, 0)
    expected = made(
        input_ids=ids, attention_mask=(ids > 0).long(), labels=padded(TEXTS, -100), output_hidden_states=True
    )
    source = batch.source
    assert source is not None
    columns = (
        (learner.backbone(source).hidden, source, expected.encoder_last_hidden_state),
        (learner.backbone(batch).hidden, batch, expected.decoder_hidden_states[-1]),
        (learner.heads["generate"].every(learner.backbone(batch), batch), batch, expected.logits),
    )
    for found, side, wanted in columns:
        for row, part in zip(side.records.tolist(), found.split(list(side.lengths)), strict=True):
            torch.testing.assert_close(part, wanted[row, : len(part)], rtol=0, atol=2e-5)
    loss = learner(batch)["generate"]
    torch.testing.assert_close(loss.total / loss.count, expected.loss, rtol=0, atol=2e-5)

    write_model(learner, tmp_path / "ours")
    stored, again = (load_file(tmp_path / name / "model.safetensors") for name in ("theirs", "ours"))
    stored.pop("lm_head.weight", None) if kind == "1.0" else None
    for name, tensor in again.items():
        torch.testing.assert_close(tensor, stored[name], rtol=1e-6, atol=0)
    assert again.keys() == stored.keys()
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "ours").eval()
    found = theirs(input_ids=ids, attention_mask=(ids > 0).long(), labels=padded(TEXTS, -100))
    torch.testing.assert_close(found.logits, expected.logits, rtol=0, atol=1e-5)
    assert opened(tmp_path / "ours").backbone.architecture == learner.backbone.architecture


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("beams", [1, 3])
@torch.no_grad()
def test_greedy_choice_and_beams_write_their_pieces(kind: str, beams: int, tmp_path: Path) -> None:
    made = save(tmp_path, kind, num_decoder_layers=2)  # with others, transformers 5.23 fails
    learner = opened(tmp_path)
    decoder = learner.backbone.decoder(learner.heads["generate"])
    assert decoder is not None
    prompts = [replace(example([0], row), source=example(ids, row)) for row, ids in enumerate(SOURCES)]
    options = GenerationOptions(beams=beams, most=8)
    found = {one.row: one for one in write(decoder, prompts, options, Limits(end=1)) if isinstance(one, WrittenRow)}
    ids = padded(SOURCES, 0)
    mask = (ids > 0).long()
    settings = {
        "num_beams": beams,
        "do_sample": False,
        "max_new_tokens": 8,
        "length_penalty": 0.0,
        "early_stopping": False,
    }
    rows = made.generate(input_ids=ids, attention_mask=mask, **settings)
    for row, pieces in enumerate(rows.tolist()):
        wanted = pieces[1:]
        wanted = wanted[: wanted.index(1)] if 1 in wanted else wanted
        assert list(found[row].pieces) == wanted
    assert len({one.pieces for one in found.values()}) > 1


def test_what_cannot_be_honoured_is_refused(tmp_path: Path) -> None:
    save(tmp_path, "1.0")
    written = json.loads((tmp_path / "config.json").read_text())
    for name, value in (
        ("relative_attention_max_distance", 64),
        ("feed_forward_proj", "gated-sine"),
        ("decoder_start_token_id", 3),
        ("relative_attention_num_buckets", 0),
        ("relative_attention_num_buckets", 31),
        ("dense_act_fn", "gelu"),
        ("is_gated_act", True),
        ("attention_dropout", "much"),
    ):
        (tmp_path / "config.json").write_text(json.dumps(written | {name: value}))
        with refusal("unsupported-model", name):
            _ = open_folder(tmp_path).architecture


@pytest.mark.parametrize("table", [True, False])
@pytest.mark.parametrize("tie", [True, False])
@torch.no_grad()
def test_a_t5_1_1_has_its_output_table_or_that_of_pieces(table: bool, tie: bool, tmp_path: Path) -> None:
    made = save(tmp_path / "theirs", "1.1")
    config = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert config["tie_word_embeddings"] is True and config["scale_decoder_outputs"] is False  # as version 5 saves it
    (tmp_path / "theirs" / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": tie}))
    if not table:
        tensors = load_file(tmp_path / "theirs" / "model.safetensors")
        del tensors["lm_head.weight"]
        save_file(tensors, tmp_path / "theirs" / "model.safetensors", {"format": "pt"})
        made = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "theirs").eval()
    batch = collate(
        list(decoder_examples(*(Examples.of([example(SOURCES[0], 0)]) for _ in range(2)), 0, name="generate"))
    )
    inputs = {"input_ids": torch.tensor(SOURCES[:1]), "labels": torch.tensor(SOURCES[:1])}
    expected = made(**inputs).logits
    learner = opened(tmp_path / "theirs")
    write_model(learner, tmp_path / "ours")
    for reader in (learner, opened(tmp_path / "ours")):
        found = reader.heads["generate"].every(reader.backbone(batch), batch)
        torch.testing.assert_close(found, expected[0], rtol=0, atol=2e-5)
    again = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "ours").eval()
    torch.testing.assert_close(again(**inputs).logits, expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("precision", [torch.float16, torch.bfloat16])
@torch.no_grad()
def test_queries_in_half_precision_are_scaled_in_single_precision(precision: torch.dtype, tmp_path: Path) -> None:
    save(tmp_path, "1.0", d_kv=6).to(precision).save_pretrained(tmp_path)
    made = transformers.T5Model.from_pretrained(tmp_path, dtype=torch.float32).eval()
    states = opened(tmp_path).backbone(collate([example(SOURCES[0], 0)])).hidden
    expected = made.encoder(input_ids=torch.tensor(SOURCES[:1])).last_hidden_state[0]
    torch.testing.assert_close(states, expected, rtol=0, atol=2e-5)


def test_a_dropout_of_null_is_theirs_by_default(tmp_path: Path) -> None:
    save(tmp_path, "1.0")
    written = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(written | {"dropout_rate": None}))
    architecture = open_folder(tmp_path).architecture
    assert (architecture.dropout, architecture.attention_dropout) == (0.1, 0.1)  # type: ignore[attr-defined]


def write_tokenizer(folder: Path) -> transformers.PreTrainedTokenizerFast:
    """Write a tokenizer in T5's form: the padding, the end and the unknown first, sentinels last and going down."""
    words = ["\u2581good", "\u2581film", "\u2581bad", *(f"\u2581w{number}" for number in range(44))]
    sentinels = [f"<extra_id_{9 - number}>" for number in range(10)]
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *((word, -3.0) for word in words)]
    library = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, unk_id=2))
    library.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    library.decoder = tokenizers.decoders.Metaspace()
    library.add_special_tokens(["<pad>", "</s>", "<unk>", *sentinels])
    library.post_processor = tokenizers.processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
    )
    names = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=library, **names)
    made.save_pretrained(folder)
    return made


@torch.no_grad()
def test_a_folder_writes_the_texts_that_they_write(tmp_path: Path) -> None:
    made, theirs = save(tmp_path, "1.0"), write_tokenizer(tmp_path)
    model = osbert.load(tmp_path)
    assert not model.remarks
    assert len(model.tokenizer) == 60 and sentinels(model.tokenizer).tolist() == [*range(59, 49, -1)]
    assert model.tokenizer.encode("good film").tolist() == [3, 4]
    found = model.generate(["good film", "bad w3 w4 w5"], most=6)
    for text, said in zip(("good film", "bad w3 w4 w5"), found, strict=True):
        ids = theirs(text, return_tensors="pt").input_ids
        rows = made.generate(input_ids=ids, do_sample=False, max_new_tokens=6, suppress_tokens=[0, 2])
        wanted = [piece for piece in rows[0].tolist()[1:] if piece != 1]
        assert said.pieces == len(wanted) and said.text.split() == theirs.decode(wanted).split()
