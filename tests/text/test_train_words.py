"""Closed vocabularies of words: which words have pieces, where these lie in a text, and corpora of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

import osbert
from osbert.corpus.encode import encode_document
from osbert.corpus.shards import Corpus
from osbert.text.normalize import Normalizer
from osbert.text.tokenizer import Form
from osbert.text.train_file import BYTE_LEVEL, learn_words, word_tokenizer
from refusals import refusal

WORDS = Counter({"the": 9, ",": 7, "low": 4, "cafe": 4, "end": 3, "日": 2, "rare": 1, "\ud800": 8})
SMALL = learn_words(WORDS, vocabulary=100)


def test_pieces_are_the_frequent_words_by_count() -> None:
    assert SMALL.vocabulary == (*BYTE_LEVEL, "the", ",", "cafe", "low", "end", "日")
    assert learn_words(WORDS, vocabulary=8).vocabulary[5:] == ("the", ",", "cafe")
    assert learn_words(WORDS, vocabulary=100, minimum=4).vocabulary[5:] == ("the", ",", "cafe", "low")
    assert SMALL.form == Form(before=(0,), between=(2, 2), after=(2,), second_segment=0)
    assert not SMALL.spaced and SMALL.cjk and not SMALL.continuation.any()
    with refusal("no-data"):
        learn_words({})


def test_offsets_are_those_of_the_words() -> None:
    text = "The Café, 日x \nLOW<mask>"
    found = SMALL.encode_with_offsets(text)
    assert SMALL.tokens(found.ids) == ["the", "cafe", ",", "日", "<unk>", "low", "<mask>"]
    assert [text[start:end] for start, end in zip(found.starts, found.ends)] == [
        "The", "Café", ",", "日", "x", "LOW", "<mask>",
    ]  # fmt: skip
    assert found.words.tolist() == [*range(7)]


@given(st.text("The cafés, 日本low\n.é"))
def test_words_are_those_of_berts_basic_tokenizer(text: str) -> None:
    known = set(SMALL.vocabulary)
    words = Normalizer(lowercase=True, strip_accents=True, cjk=True).words(text)
    assert SMALL.tokens(SMALL.encode(text)) == [word if word in known else "<unk>" for word in words]


def test_words_between_spaces_may_hold_any_sign() -> None:
    spaced = word_tokenizer(["don't", "U.S.", "</w>"], lowercase=False, spaces=True)
    assert spaced.tokens(spaced.encode("don't  U.S. u.s. </w>")) == ["don't", "U.S.", "<unk>", "</w>"]
    assert not spaced.cjk


def test_a_corpus_of_words(tmp_path: Path) -> None:
    texts = ["The low end. The café, the end.", "Rare the low, 日 end."]
    tokenizer = osbert.train_tokenizer(texts * 2, out=tmp_path / "words", kind="words", vocabulary=50)
    (tmp_path / "text.txt").write_text("\n\n".join(texts), "utf-8")
    osbert.build_corpus(
        tmp_path / "text.txt", tokenizer=tmp_path / "words", out=tmp_path / "corpus", workers=1, documents="blank-line"
    )
    corpus = Corpus.open(tmp_path / "corpus")
    found = [document for block in corpus.blocks() for document in corpus.read(block)]
    for document, text in zip(found, texts, strict=True):
        expected = encode_document(text, tokenizer)
        assert document.ids.tolist() == expected.ids.tolist()
        assert document.sentences.tolist() == expected.sentences.tolist() and document.words.all()
