"""Sentinels: behind the other pieces of every kind of vocabulary, their ids descending."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"

import transformers

import osbert
from osbert.interop.tokenizers import read_any_tokenizer
from osbert.text.file_tokenizer import sentinel_ids, with_sentinels
from refusals import refusal
from vocabularies import train

TEXT = "The lower the lowest, the newer the newest: wider widest low new wide. It was a low day, as wide as it was.\n"


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram", "words"])
def test_every_kind_has_them_last_and_others_read_them(kind: str, tmp_path: Path) -> None:
    size = 290 if kind == "bpe" else 60
    made = osbert.train_tokenizer([TEXT] * 9, out=tmp_path, kind=kind, vocabulary=size, sentinels=3, minimum=1)
    ids = sentinel_ids(made).tolist()
    assert ids == [len(made) - 1, len(made) - 2, len(made) - 3] and len(made) <= size
    assert made.tokens(ids) == ["<extra_id_0>", "<extra_id_1>", "<extra_id_2>"]
    assert read_any_tokenizer(tmp_path).fingerprint == made.fingerprint
    plain = [made.encode(part).tolist() for part in ("it was", " low as")]
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    read = theirs("it was <extra_id_0> low as <extra_id_1>", add_special_tokens=False).input_ids
    assert read == [*plain[0], ids[0], *plain[1], ids[1]]


def test_a_tokenizer_without_them_has_no_ids_of_theirs() -> None:
    made = train([TEXT] * 9, vocabulary=60)
    assert not len(sentinel_ids(made)) and with_sentinels(made, 0) is made


def test_more_than_fit_are_refused(tmp_path: Path) -> None:
    for sentinels in (-1, 55):
        with refusal("invalid-value"):
            osbert.train_tokenizer([TEXT], out=tmp_path / "out", vocabulary=60, sentinels=sentinels)
