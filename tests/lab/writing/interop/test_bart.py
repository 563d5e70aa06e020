"""BART: encoder, decoder, loss, heads and generation are theirs, folders are read and written."""

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

import osbert
from osbert.data.batch import Batch, collate
from osbert.data.example import Example
from osbert.data.examples import Examples
from osbert.interop.conversion import model_of, open_any, write_model_as
from osbert.interop.folder import open_folder
from osbert.interop.huggingface.folders import osbert_only_reason, write_model
from osbert.models.contract import Head, Learner
from osbert.models.heads.grouped import SpanHead
from osbert.models.heads.predictions import MaskedLanguageHead, SequenceHead
from osbert.models.heads.tagging import TagHead
from osbert_lab.writing.decoder_inputs import decoder_examples
from osbert_lab.writing.search import Limits, WrittenRow, write
from osbert_lab.writing.settings import GenerationOptions
from refusals import refusal

SIZES: dict[str, Any] = {
    "vocab_size": 60,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 20,
    "decoder_ffn_dim": 20,
    "max_position_embeddings": 24,
    "num_labels": 2,
}
SOURCES = ([0, 5, 6, 7, 8, 9, 2], [0, 10, 11, 2], [0, 12, 13, 14, 2, 2, 15, 2])
TEXTS = ([0, 20, 21, 2], [0, 22, 23, 24, 25, 2], [0, 26, 2])


def example(ids: list[int], record: int) -> Example:
    flags = np.zeros(len(ids), np.bool_)
    return Example(ids=np.array(ids), segments=flags.astype(np.int8), words=flags, special=flags, record=record)


def save(folder: Path, kind: str = "ForConditionalGeneration", **sizes: Any) -> Any:
    torch.manual_seed(0)
    made = getattr(transformers, f"Bart{kind}")(transformers.BartConfig(**SIZES | sizes)).eval()
    for name, weight in made.named_parameters():  # theirs begin so small that all texts come out alike
        one = weight.ndim == 1 and "norm" in name and not name.endswith("bias")
        torch.nn.init.normal_(weight, float(one), 0.2 if weight.ndim == 1 else 0.3)
    made.save_pretrained(folder)
    return made


def padded(rows: tuple[list[int], ...], fill: int) -> torch.Tensor:
    width = max(map(len, rows))
    return torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows])


def opened(folder: Path, **heads: Any) -> Learner:
    backbone = open_folder(folder).backbone
    made = {name: head(backbone) for name, head in heads.items()}
    made = made or {"generate": MaskedLanguageHead(backbone, target="generate")}
    learner = Learner(backbone, made).eval()
    pooled = any(isinstance(head, SequenceHead) for head in made.values())
    open_folder(folder).fill(learner).require_complete(str(folder), but="" if pooled else "pooler.")
    return learner


def require_equal(found: torch.Tensor, batch: Batch, wanted: torch.Tensor) -> None:
    for row, part in zip(batch.records.tolist(), found.split(list(batch.lengths)), strict=True):
        torch.testing.assert_close(part, wanted[row, : len(part)], rtol=0, atol=2e-5)


@torch.no_grad()
def test_encoder_decoder_and_loss_are_theirs(tmp_path: Path) -> None:
    made = save(tmp_path / "theirs")
    learner = opened(tmp_path / "theirs")
    sides = [Examples.of([example(ids, row) for row, ids in enumerate(rows)]) for rows in (SOURCES, TEXTS)]
    batch = collate(list(decoder_examples(*sides, 2, name="generate")))
    ids = padded(SOURCES, 1)
    inputs = {"input_ids": ids, "attention_mask": (ids != 1).long(), "labels": padded(TEXTS, -100)}
    expected = made(**inputs, output_hidden_states=True)
    assert batch.source is not None
    require_equal(learner.backbone.encoder(batch.source).hidden, batch.source, expected.encoder_last_hidden_state)
    states = learner.backbone(batch)
    require_equal(states.hidden, batch, expected.decoder_hidden_states[-1])
    require_equal(learner.heads["generate"].every(states, batch), batch, expected.logits)
    loss = learner(batch)["generate"]
    torch.testing.assert_close(loss.total / loss.count, expected.loss, rtol=0, atol=2e-5)

    write_model(learner, tmp_path / "ours")
    assert not osbert_only_reason(learner.backbone.architecture, learner)
    stored, again = (load_file(tmp_path / name / "model.safetensors") for name in ("theirs", "ours"))
    pooler = {name for name in again if ".pooler." in name}  # which a fine-tuning begins with
    assert len(pooler) == 2 and again.keys() - pooler == stored.keys() - {"final_logits_bias"}
    assert all(torch.equal(again[name], stored[name]) for name in again.keys() - pooler)
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "ours").eval()
    torch.testing.assert_close(theirs(**inputs).logits, expected.logits, rtol=0, atol=1e-5)
    assert opened(tmp_path / "ours").backbone.architecture == learner.backbone.architecture


@pytest.mark.parametrize(
    ("kind", "head"),
    [
        ("ForSequenceClassification", lambda backbone: SequenceHead(backbone, target="classify")),
        ("ForQuestionAnswering", lambda backbone: SpanHead(backbone, target="span")),
    ],
)
@torch.no_grad()
def test_heads_stand_on_the_decoder_that_reads_the_same_text(kind: str, head: Any, tmp_path: Path) -> None:
    made = save(tmp_path / "theirs", kind)
    learner = opened(tmp_path / "theirs", task=head)
    for ids in SOURCES[:2]:
        batch = collate([example(ids, 0)])
        found = learner.heads["task"].every(learner.backbone(batch), batch)
        expected = made(input_ids=torch.tensor([ids]))
        if kind == "ForSequenceClassification":
            torch.testing.assert_close(found, expected.logits, rtol=0, atol=2e-5)
        else:
            both = torch.stack([expected.start_logits[0], expected.end_logits[0]], dim=-1)
            torch.testing.assert_close(found, both, rtol=0, atol=2e-5)
    write_model(learner, tmp_path / "ours")
    again = getattr(transformers, f"Bart{kind}").from_pretrained(tmp_path / "ours").eval()
    wanted = made(input_ids=torch.tensor([SOURCES[0]]))
    torch.testing.assert_close(again(input_ids=torch.tensor([SOURCES[0]]))[0], wanted[0], rtol=0, atol=1e-5)


@torch.no_grad()
def test_a_model_without_a_head_reads_on_both_sides(tmp_path: Path) -> None:
    made = save(tmp_path / "theirs", "Model", encoder_layers=1, decoder_layers=1)
    backbone = open_folder(tmp_path / "theirs").backbone.eval()
    write_model(Learner(backbone, {}), tmp_path / "ours")
    again = transformers.AutoModel.from_pretrained(tmp_path / "ours").eval()
    assert type(again).__name__ == "BartModel"
    for ids in SOURCES:
        wanted = made(input_ids=torch.tensor([ids])).last_hidden_state
        states = backbone(collate([example(ids, 0)]))
        torch.testing.assert_close(states.hidden, wanted[0], rtol=0, atol=2e-5)
        assert torch.equal(states.summary[0], states.hidden[-1])
        torch.testing.assert_close(again(input_ids=torch.tensor([ids])).last_hidden_state, wanted, rtol=0, atol=1e-5)


def test_a_head_that_they_have_no_class_for_is_ours_alone(tmp_path: Path) -> None:
    save(tmp_path / "theirs")
    backbone = open_folder(tmp_path / "theirs").backbone
    learner = Learner(backbone, {"tag": TagHead(backbone, target="tag", labels=3)})
    assert osbert_only_reason(backbone.architecture, learner)
    write_model(learner, tmp_path / "ours")
    assert json.loads((tmp_path / "ours" / "config.json").read_text())["model_type"] == "osbert"
    assert opened(tmp_path / "ours", tag=lambda backbone: TagHead(backbone, target="tag", labels=3))


@pytest.mark.parametrize("beams", [1, 3])
@torch.no_grad()
def test_greedy_choice_and_beams_write_their_pieces(beams: int, tmp_path: Path) -> None:
    made = save(tmp_path)
    made.generation_config.forced_eos_token_id = None
    learner = opened(tmp_path)
    head = learner.heads["generate"]
    assert isinstance(head, Head)
    decoder = learner.backbone.decoder(head)
    assert decoder is not None
    prompts = [replace(example([2, 0], row), source=example(ids, row)) for row, ids in enumerate(SOURCES)]
    options = GenerationOptions(beams=beams, most=8)
    found = {one.row: one for one in write(decoder, prompts, options, Limits(end=2)) if isinstance(one, WrittenRow)}
    ids = padded(SOURCES, 1)
    rows = made.generate(
        input_ids=ids,
        attention_mask=(ids != 1).long(),
        decoder_input_ids=torch.tensor([[2, 0]] * 3),
        num_beams=beams,
        do_sample=False,
        max_new_tokens=8,
        length_penalty=0.0,
        early_stopping=False,
    )
    for row, pieces in enumerate(rows.tolist()):
        wanted = pieces[2:]
        wanted = wanted[: wanted.index(2)] if 2 in wanted else wanted
        assert list(found[row].pieces) == wanted
    assert len({one.pieces for one in found.values()}) > 1


def test_what_cannot_be_honoured_is_refused(tmp_path: Path) -> None:
    save(tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())
    for name, value in (
        ("scale_embedding", True),
        ("decoder_ffn_dim", 24),
        ("decoder_start_token_id", 0),
        ("decoder_layers", "3"),
        ("decoder_layers", 10**9),
        ("tie_word_embeddings", False),
    ):
        (tmp_path / "config.json").write_text(json.dumps(written | {name: value}))
        with refusal("unsupported-model", name):
            _ = open_folder(tmp_path).architecture
    for name in ("decoder_attention_heads", "decoder_ffn_dim"):  # which are then 16 and 4,096 in transformers
        (tmp_path / "config.json").write_text(json.dumps({field: written[field] for field in written if field != name}))
        with refusal("unsupported-model", name):
            _ = open_folder(tmp_path).architecture
    (tmp_path / "config.json").write_text(json.dumps({key: written[key] for key in written if key != "decoder_layers"}))
    assert open_folder(tmp_path).architecture.decoder_layers == 12  # type: ignore[attr-defined]
    (tmp_path / "config.json").write_text(json.dumps(written))
    tensors = load_file(tmp_path / "model.safetensors")
    save_file(tensors | {"final_logits_bias": torch.ones(1, 60)}, tmp_path / "model.safetensors", {"format": "pt"})
    learner = opened(tmp_path)
    report = open_folder(tmp_path).fill(learner)
    assert not any(row.name == "final_logits_bias" and row.expected for row in report.rows)


@torch.no_grad()
def test_a_folder_writes_the_texts_that_they_write(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("good film. bad play. the actor was good and the film bad.\n" * 9)
    osbert.train_tokenizer(tmp_path / "text.txt", out=tmp_path / "folder", kind="bpe", vocabulary=270)
    made = save(tmp_path / "folder", vocab_size=270, max_position_embeddings=64)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "folder")
    model, texts = osbert.load(tmp_path / "folder"), ("good film", "the actor was bad and the play good")
    found = model.generate(texts, most=6)
    for text, said in zip(texts, found, strict=True):
        ids = theirs(text, return_tensors="pt").input_ids
        rows = made.generate(
            input_ids=ids,
            decoder_input_ids=torch.tensor([[2, 0]]),
            do_sample=False,
            max_new_tokens=6,
            suppress_tokens=[0, 1, 3, 4],
        )
        wanted = [piece for piece in rows[0].tolist()[2:] if piece != 2]
        assert said.pieces == len(wanted) and said.text == theirs.decode(wanted)
    assert len({one.text for one in found}) == 2


@torch.no_grad()
def test_a_published_classifier_becomes_a_run_with_their_probabilities(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("good film. bad play. the actor was good and the film bad.\n" * 9)
    osbert.train_tokenizer(tmp_path / "text.txt", out=tmp_path / "theirs", kind="bpe", vocabulary=270)
    made = save(tmp_path / "theirs", "ForSequenceClassification", vocab_size=270, max_position_embeddings=64)
    write_model_as(model_of(open_any(tmp_path / "theirs")), tmp_path / "run", "osbert")
    model, theirs = osbert.load(tmp_path / "run"), transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")
    for texts in (("good film",), ("the actor was good", "bad play")):  # a pair has three pieces that end a text
        ids = theirs(*texts, return_tensors="pt").input_ids
        (said,) = model.predict([texts if len(texts) == 2 else texts[0]])
        wanted = made(input_ids=ids).logits.softmax(-1)[0].tolist()
        assert list(said.probabilities.values()) == pytest.approx(wanted, abs=2e-5)
