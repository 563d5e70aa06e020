"""Tokenizer: google-research/bert's pieces, the `tokenizers` library's, and the promises of the class."""

from __future__ import annotations

import json
import pickle
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from osbert.text.normalize import Normalizer
from osbert.text.tokenizer import CHUNKS, SPECIALS, Tokenizer
from refusals import refusal


def test_google_pieces(data: Path) -> None:
    read = {
        name: (data / "bert" / "vocab" / f"bert-base-{name}-vocab.txt").read_text("utf-8").rstrip("\n").split("\n")
        for name in ("uncased", "cased", "chinese")
    }
    made = {
        (name, lowercase): Tokenizer(vocabulary, lowercase=lowercase)
        for name, vocabulary in read.items()
        for lowercase in (True, False)
    }
    lines = (data / "bert" / "tokenization.jsonl").read_text("utf-8").split("\n")
    expected = [json.loads(line) for line in lines if line]
    assert len(expected) > 500
    for line in expected:
        tokenizer = made[line["vocabulary"], line["lowercase"]]
        assert tokenizer.tokens(tokenizer.encode(line["text"])) == line["pieces"]
        assert tokenizer.tokens(tokenizer.encode_with_offsets(line["text"]).ids) == line["pieces"]


@given(drawn=st.data())
def test_many_texts_are_encoded_as_each_alone(tokenizer: Tokenizer, drawn: st.DataObject) -> None:
    some = st.sampled_from(["The end.", '("It\'s, re-done!") ', "[PAD]", "\0", " \0 ", "Café Σ", "\x1c\x85", "a" * 300])
    texts = drawn.draw(st.lists(some | st.text(), max_size=20)) * drawn.draw(st.sampled_from([1, 1, 1, 40]))
    assert tokenizer.encode_many(texts) == [tokenizer.encode_bytes(text) for text in texts]


def as_library(tokenizer: Tokenizer) -> tokenizers.Tokenizer:
    ids = {piece: index for index, piece in enumerate(tokenizer.vocabulary)}
    library = tokenizers.Tokenizer(WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=200))
    library.normalizer = BertNormalizer(lowercase=tokenizer.lowercase)
    library.pre_tokenizer = BertPreTokenizer()
    return library


def alike(character: str, *, lowercase: bool) -> bool:
    """Return whether the library treats a character as google-research/bert does.

    It does not where its Unicode tables are older than Python's: only characters whose category has stayed since
    Unicode 3.2, or that are symbols, are compared. It drops private-use and unassigned characters, which
    google-research keeps; lacks the first 256 ideographs of extension E; cannot take surrogates; and always lowers
    a capital sigma to the form it has inside words.
    """
    category = unicodedata.category(character)
    stayed = category == unicodedata.ucd_3_2_0.category(character) or category in ("So", "Sk", "Lu", "Ll")
    missing = category in ("Cn", "Co", "Cs") or 0x2B820 <= ord(character) <= 0x2B91F or character == "\u166d"
    return stayed and not missing and not (lowercase and character == "Σ")


@given(st.data())
@settings(max_examples=200)
def test_library_pieces(tokenizer: Tokenizer, texts: st.SearchStrategy[str], data: st.DataObject) -> None:
    library = as_library(tokenizer)
    text = "".join(c for c in data.draw(texts) if alike(c, lowercase=tokenizer.lowercase))
    assert tokenizer.encode(text).tolist() == library.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("lowercase", [True, False])
def test_every_character_as_in_the_library(lowercase: bool) -> None:
    normalizer = Normalizer(lowercase=lowercase, strip_accents=lowercase, cjk=True)
    library, splitter = BertNormalizer(lowercase=lowercase), BertPreTokenizer()
    # Every character of the first planes apart from the two great blocks, of which every hundredth.
    codes = [*range(0x3400), *range(0x3400, 0xD800, 100), *range(0xE000, 0x20000), *range(0x20000, 0x30000, 100)]
    known = [character for character in map(chr, codes) if alike(character, lowercase=lowercase)]
    assert len(known) > 10_000
    for begin in range(0, len(known), 500):
        text = "".join(f"a{character}b {character}\n" for character in known[begin : begin + 500])
        expected = [word for word, _ in splitter.pre_tokenize_str(library.normalize_str(text))]
        assert normalizer.words(text) == expected


def test_where_google_differs_from_the_library() -> None:
    normalizer = Normalizer(lowercase=True, strip_accents=True, cjk=True)
    assert normalizer.words("ΟΔΟΣ ΟΔΟΣ.") == ["οδος", "οδος", "."]  # the final form, as Python's str.lower
    assert normalizer.words("a\ue000b") == ["a\ue000b"]
    assert normalizer.words("a\U0002b820b") == ["a", "\U0002b820", "b"]
    assert normalizer.words("a\x0bb\x85c\x1cd\u2028e\x00\ufffd\u00adf") == ["abcd", "ef"]


def test_words_longer_than_200_characters_are_unknown(uncased: Tokenizer) -> None:
    assert len(uncased.encode("b" * 200)) == 200
    assert uncased.encode("b" * 201).tolist() == [uncased.unknown]
    assert uncased.encode("é" * 200).tolist() == uncased.encode("e" * 200).tolist()  # counted without accents


def test_specials_in_text_are_plain_text(uncased: Tokenizer) -> None:
    assert not {uncased.mask, uncased.sep} & set(uncased.encode("[MASK] [SEP]").tolist())
    assert uncased.tokens([uncased.pad, uncased.unknown, uncased.cls, uncased.sep, uncased.mask]) == list(SPECIALS)


def test_bytes_are_the_ids(tokenizer: Tokenizer) -> None:
    text = "ab Abab, zz 한글 一b"
    assert tokenizer.id_type == np.dtype("<u2")
    assert np.frombuffer(tokenizer.encode_bytes(text), "<u2").tolist() == tokenizer.encode(text).tolist()
    assert tokenizer.encode(text).dtype == np.int32


def test_ids_beyond_16_bits() -> None:
    large = Tokenizer([*SPECIALS, *(f"x{number}" for number in range(1 << 16)), "b"])
    assert large.id_type == np.dtype("<u4")
    assert large.encode("b x1 b").tolist() == [len(large) - 1, 6, len(large) - 1]


@given(st.data())
@settings(max_examples=60)
def test_what_was_cached_does_not_matter(
    uncased: Tokenizer, texts: st.SearchStrategy[str], data: st.DataObject
) -> None:
    text = data.draw(texts)
    fresh = pickle.loads(pickle.dumps(uncased))
    assert uncased.encode(text).tolist() == fresh.encode(text).tolist() == uncased.encode(text).tolist()


def test_caches_are_bounded_and_stay_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("osbert.text.tokenizer.CHUNKS", 100)
    monkeypatch.setattr("osbert.text.tokenizer.WORDS", 50)
    tokenizer = Tokenizer([*SPECIALS, *"0123456789", *(f"##{digit}" for digit in range(10))])
    for number in range(1000):
        assert tokenizer.tokens(tokenizer.encode(f"{number}")) == [
            digit if place == 0 else f"##{digit}" for place, digit in enumerate(str(number))
        ]
        cache = tokenizer._chunk_bytes.__self__
        assert len(cache) <= 100 and len(cache.old) <= 100
    assert len(pickle.dumps(tokenizer)) < 1000
    assert CHUNKS > 1000


def test_equality_is_that_of_the_fingerprint(uncased: Tokenizer) -> None:
    again = pickle.loads(pickle.dumps(uncased))
    assert again == uncased and hash(again) == hash(uncased) and again.fingerprint == uncased.fingerprint
    others = [
        Tokenizer(uncased.vocabulary, lowercase=False),
        Tokenizer(uncased.vocabulary, strip_accents=False),
        Tokenizer(uncased.vocabulary, cjk=False),
        Tokenizer([*uncased.vocabulary, "more"]),
    ]
    assert len({uncased, *others}) == 5
    assert len(uncased.fingerprint) == 64 and uncased != "another thing"


def test_settings_change_the_pieces() -> None:
    letters = [*SPECIALS, "É", "e", "é", "E", "一", "##一", "##e", "##\u0301"]
    cut = {
        "cased": Tokenizer(letters, lowercase=False),
        "uncased": Tokenizer(letters),
        "accents": Tokenizer(letters, strip_accents=False),
        "together": Tokenizer(letters, cjk=False),
    }
    pieces = {name: tokenizer.tokens(tokenizer.encode("É 一一")) for name, tokenizer in cut.items()}
    assert pieces == {
        "cased": ["É", "一", "一"],
        "uncased": ["e", "一", "一"],
        "accents": ["é", "一", "一"],
        "together": ["e", "一", "##一"],
    }


def test_problems_are_told_together() -> None:
    with refusal("unusable-tokenizer", "a", "2"):
        Tokenizer(["[PAD]", "[UNK]", "[SEP]", "a", "a"])


def test_decode_joins_what_was_cut(uncased: Tokenizer) -> None:
    assert uncased.decode(uncased.encode("ababz  Ab, b")) == "ababz ab , b"
    assert uncased.decode([]) == ""
    assert uncased.continuation[uncased.encode("abz ab")].tolist() == [False, True, False]
    assert not uncased.continuation[uncased.vocabulary.index("##")]
