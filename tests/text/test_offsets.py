"""Offsets: they index the text as it was given."""

from __future__ import annotations

import unicodedata

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from osbert.text.normalize import Normalizer
from osbert.text.tokenizer import SPECIALS, Tokenizer


def slices(tokenizer: Tokenizer, text: str) -> list[tuple[str, str]]:
    encoding = tokenizer.encode_with_offsets(text)
    return [
        (piece, text[start:end])
        for piece, start, end in zip(tokenizer.tokens(encoding.ids), encoding.starts, encoding.ends)
    ]


@given(st.data())
@settings(max_examples=250)
def test_laws(tokenizer: Tokenizer, texts: st.SearchStrategy[str], data: st.DataObject) -> None:
    text = data.draw(texts)
    encoding = tokenizer.encode_with_offsets(text)
    assert encoding.ids.tolist() == tokenizer.encode(text).tolist()
    assert len(encoding) == len(encoding.starts) == len(encoding.ends) == len(encoding.words)
    assert (encoding.starts >= 0).all() and (encoding.ends <= len(text)).all()
    assert (encoding.starts < encoding.ends).all()
    assert (np.diff(encoding.starts) >= 0).all() and (np.diff(encoding.ends) >= 0).all()
    assert set(np.diff(encoding.words).tolist()) <= {0, 1} and encoding.words[:1].tolist() in ([], [0])
    begins = ~tokenizer.continuation[encoding.ids]
    assert (np.diff(encoding.words) == begins[1:]).all()


@given(st.data())
@settings(max_examples=250)
def test_a_slice_normalises_to_its_piece(
    tokenizer: Tokenizer, texts: st.SearchStrategy[str], data: st.DataObject
) -> None:
    # Left out: characters that become several letters, which pieces may share, and marks that change places.
    text = "".join(c for c in data.draw(texts) if c not in "한글ŉǅ" and unicodedata.category(c) != "Mc")
    normalizer = Normalizer(lowercase=tokenizer.lowercase, strip_accents=tokenizer.strip_accents, cjk=True)
    encoding = tokenizer.encode_with_offsets(text)
    shared = set(zip(encoding.starts[1:].tolist(), encoding.ends[:-1].tolist()))
    for index, start, end in zip(encoding.ids.tolist(), encoding.starts.tolist(), encoding.ends.tolist()):
        if index == tokenizer.unknown or any(first < end and start < last for first, last in shared if first < last):
            continue
        piece = tokenizer.vocabulary[index]
        expected = piece[2:] if tokenizer.continuation[index] else piece
        found = "".join(normalizer.words(text[start:end]))
        # Alone, a sigma is not at a word's end.
        assert found.replace("ς", "σ") == expected.replace("ς", "σ")


def test_unknown_words_are_covered_whole() -> None:
    tokenizer = Tokenizer([*SPECIALS, "a", "."])
    assert slices(tokenizer, "a qué.") == [("a", "a"), ("[UNK]", "qué"), (".", ".")]


def test_accents_case_and_controls(uncased: Tokenizer) -> None:
    assert slices(uncased, "É e\u0301b") == [("e", "É"), ("e", "e\u0301"), ("##b", "b")]
    assert slices(uncased, "\ufeffa\u00adB\u200b z") == [("ab", "a\u00adB"), ("z", "z")]
    assert slices(uncased, "aİb") == [("a", "a"), ("##i", "İ"), ("##b", "b")]


def test_astral_and_ideographs(uncased: Tokenizer) -> None:
    assert slices(uncased, "👍 𠀀一a") == [("👍", "👍"), ("𠀀", "𠀀"), ("一", "一"), ("a", "a")]
    compatibility = slices(uncased, "b豈")
    assert compatibility[1] == (unicodedata.normalize("NFD", "豈"), "豈")


def test_jamo_share_their_syllable(uncased: Tokenizer) -> None:
    assert [part for _, part in slices(uncased, "한a")] == ["한", "한", "한", "a"]


def test_marks_out_of_order() -> None:
    # A cedilla below sorts before an acute above; Mc marks with a combining class stay and change places.
    letters = ["e", "\U0001d16d", "\U0001d165"]
    tokenizer = Tokenizer([*SPECIALS, *letters, *(f"##{letter}" for letter in letters)])
    assert slices(tokenizer, "e\u0301\u0327") == [("e", "e\u0301\u0327")]
    text = "e\U0001d16d\U0001d165"
    encoding = tokenizer.encode_with_offsets(text)
    assert encoding.ids.tolist() == tokenizer.encode(text).tolist()
    assert (np.diff(encoding.starts) >= 0).all() and encoding.ends.tolist()[-1] == 3


def test_words_are_numbered_across_chunks(uncased: Tokenizer) -> None:
    encoding = uncased.encode_with_offsets(" abz,a \x00 b")
    assert uncased.tokens(encoding.ids) == ["ab", "##z", ",", "a", "b"]
    assert encoding.words.tolist() == [0, 0, 1, 2, 3]
    assert encoding.starts.tolist() == [1, 3, 4, 5, 9]
    assert uncased.encode_with_offsets(" \n").ids.dtype == np.int32
