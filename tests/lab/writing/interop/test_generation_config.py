"""generation_config.json: what transformers writes with a folder's own settings, osbert writes too."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"

import transformers

import osbert
from osbert.cli import main
from osbert_lab.writing.generation_config import DecoderStart, writing_defaults
from osbert_lab.writing.settings import GivenOptions
from osbert_lab.writing.text_writer import folder_defaults

TEXTS = ("good film", "the actor was bad and the play good", "bad play. good actor.")
BEGIN, END = 0, 2
SPECIALS = [1, 3, 4]
"""Byte-level BPE's others; osbert writes none of them, and the first at the beginning alone."""
CNN = {
    "num_beams": 4,
    "early_stopping": True,
    "length_penalty": 2.0,
    "max_length": 24,
    "min_length": 9,
    "no_repeat_ngram_size": 3,
    "forced_bos_token_id": 0,
    "forced_eos_token_id": 2,
}
"""The settings of facebook/bart-large-cnn, with shorter texts."""
BART: dict[str, dict[str, Any]] = {
    "cnn": CNN,
    "usual penalty": {"num_beams": 3, "max_length": 14, "forced_bos_token_id": 0},
    "greedy": {"max_length": 12, "min_length": 6, "no_repeat_ngram_size": 2, "forced_bos_token_id": 0},
    "suppressed": {"max_new_tokens": 9, "forced_bos_token_id": 0, "forced_eos_token_id": 2, "num_beams": 2},
}
T5: dict[str, dict[str, Any]] = {
    "beams": {"num_beams": 3, "max_new_tokens": 9, "length_penalty": 0.6, "early_stopping": True},
    "least": {"max_length": 12, "min_new_tokens": 4, "begin_suppress_tokens": [20, 21, 22], "num_beams": 2},
}


def tokenized(folder: Path) -> Any:
    folder.parent.mkdir(exist_ok=True)
    text = "good film. bad play. the actor was good and the film bad.\n" * 9
    osbert.train_tokenizer([text], out=folder, kind="bpe", vocabulary=270)
    return transformers.AutoTokenizer.from_pretrained(folder)


def saved(made: Any, folder: Path, settings: dict[str, Any]) -> Any:
    """Save a model with weights that make texts differ, and with settings of generation."""
    torch.manual_seed(3)
    for name, weight in made.named_parameters():
        torch.nn.init.normal_(weight, 1.0 if name.endswith("norm.weight") else 0.0, 0.5)
    for name, value in {"suppress_tokens": SPECIALS, **settings}.items():
        setattr(made.generation_config, name, value)
    made.eval().save_pretrained(folder)
    return made


class NoBegin(transformers.LogitsProcessor):
    """Forbids the piece that begins texts behind the beginning."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if input_ids.shape[1] > 1:
            scores[:, BEGIN] = float("-inf")
        return scores


def compared(made: Any, theirs: Any, folder: Path) -> None:
    """Compare the texts of both."""
    found = osbert.load(folder).generate(TEXTS)
    for text, said in zip(TEXTS, found, strict=True):
        with torch.no_grad():
            [row] = made.generate(theirs(text, return_tensors="pt").input_ids, logits_processor=[NoBegin()]).tolist()
        pieces = [piece for piece in row if piece not in (*SPECIALS, BEGIN, END)]
        assert (said.text, said.pieces) == (theirs.decode(pieces), len(pieces))
    assert len({one.text for one in found}) > 1


@pytest.mark.parametrize("settings", BART.values(), ids=list(BART))
def test_a_bart_writes_with_its_own_settings(settings: dict[str, Any], tmp_path: Path) -> None:
    theirs = tokenized(tmp_path / "folder")
    config = transformers.BartConfig(
        vocab_size=270, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, max_position_embeddings=64,
    )  # fmt: skip
    made = saved(transformers.BartForConditionalGeneration(config), tmp_path / "folder", settings)
    compared(made, theirs, tmp_path / "folder")
    left = folder_defaults(osbert.load(tmp_path / "folder")).left
    assert not left
    for form in ("osbert", "huggingface"):
        converted = tmp_path / form
        assert main(["convert", str(tmp_path / "folder"), str(converted), "--to", form]) == 0
        assert osbert.load(converted).generate(TEXTS) == osbert.load(tmp_path / "folder").generate(TEXTS)


@pytest.mark.parametrize("settings", T5.values(), ids=list(T5))
def test_a_t5_writes_with_its_own_settings(settings: dict[str, Any], tmp_path: Path) -> None:
    theirs = tokenized(tmp_path / "folder")
    config = transformers.T5Config(
        vocab_size=270, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_decoder_layers=1, num_heads=2,
        decoder_start_token_id=2, bos_token_id=0, eos_token_id=2, pad_token_id=1, relative_attention_num_buckets=8,
    )  # fmt: skip
    made = saved(transformers.T5ForConditionalGeneration(config), tmp_path / "folder", settings)
    made.generation_config.decoder_start_token_id = 2
    compared(made, theirs, tmp_path / "folder")


def test_given_options_count_more_and_by_our_own_equation() -> None:
    own = writing_defaults(CNN, DecoderStart(before=(0,), end=2)).options
    assert (own.beams, own.most, own.least, own.no_repeat, own.length_penalty) == (4, 22, 7, 3, 2.0)
    assert own.rules.closed and own.rules.stops == "first" and own.rules.scoring == "pieces"
    assert own.score(-6.0, 2) == -6.0 / 9
    given = GivenOptions(length_penalty=1.0, most=30).over(own)
    assert (given.score(-6.0, 7), given.most, given.beams) == (-3.0, 30, 4)
    for alone in (GivenOptions(beams=1), GivenOptions(sample=True)):
        assert alone.over(own).length_penalty == 0.0
        assert not [*alone.over(own).faults()]


def test_what_is_not_applied_is_said_once() -> None:
    fields = {"do_sample": True, "num_beams": "4", "bad_words_ids": [[1, 2]], "max_length": -1, "top_k": 50}
    found = writing_defaults(fields, DecoderStart())
    assert found.options == writing_defaults({}, DecoderStart()).options and not found.applied
    assert [one.split()[0] for one in found.left] == ["do_sample", "num_beams", "bad_words_ids", "max_length"]
    assert all(one in found.remark for one in found.left)
    assert not writing_defaults({"eos_token_id": 1, "num_beams": 1, "length_penalty": 1.0}, DecoderStart()).left
    alone = writing_defaults({"max_length": 50, "max_new_tokens": 9}, DecoderStart(alone=True))
    assert (alone.options.most, alone.left) == (9, ("max_length = 50",))
    assert writing_defaults({"forced_bos_token_id": 7}, DecoderStart(before=(0,))).left == ("forced_bos_token_id = 7",)


def bart(folder: Path, settings: dict[str, Any]) -> None:
    """Save a small BART with its tokenizer."""
    tokenized(folder)
    config = transformers.BartConfig(
        vocab_size=270, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, max_position_embeddings=64,
    )  # fmt: skip
    saved(transformers.BartForConditionalGeneration(config), folder, settings)


def test_a_command_says_it_and_a_pooler_is_none_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bart(tmp_path / "folder", CNN | {"do_sample": True})
    assert main(["generate", str(tmp_path / "folder"), "good film", "--json"]) in (None, 0)
    said = capsys.readouterr()
    assert said.err.count("generation_config.json") == 1 and "do_sample" in said.err and "pooler" not in said.err
    assert json.loads(said.out.splitlines()[-1])["generations"]


def test_a_text_that_ends_at_once_is_said_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bart(tmp_path / "folder", {"forced_bos_token_id": 0, "forced_eos_token_id": 2, "max_length": 3})
    for texts in (["good film"], ["good film", "bad"]):
        assert main(["generate", str(tmp_path / "folder"), *texts]) in (None, 0)
        said = capsys.readouterr()
        assert not said.out.strip() and f"{len(texts)} text" in said.err
    (tmp_path / "in.csv").write_text("text\ngood film\nbad\n")
    tally = osbert.generate(tmp_path / "folder", tmp_path / "in.csv", out=tmp_path / "out.csv")
    assert (tally.rows, tally.blank, tally.empty, tally.pieces) == (2, 2, 0, 0)
