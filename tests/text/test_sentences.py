"""Sentences: where they end, and that nothing is lost."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from osbert.corpus.encode import encode_document
from osbert.text.sentences import split
from osbert.text.tokenizer import Tokenizer


def cut(text: str) -> list[str]:
    return [text[start:end] for start, end in split(text)]


@pytest.mark.parametrize(
    "marked",
    [
        "It rained.| We stayed in!| Why?| Nobody knew…| The end",
        "Mr. Smith met Dr. Jones Jr. at St. Paul's.| They left.",
        "J. S. Bach wrote it.| So did I.| Nobody else.",
        "See No. 5, Fig. 2 and p. 7.| She said no.| He went.",
        "In the U.S. it is so, e.g. in the U.S. Senate?| He left at 5 p.m. on Jan. 5.| Good.",
        "Apples, pears etc. are fruit.| He sold pears etc.| They were good.",
        "It costs 3.50 at shop.com or 1.000,5 elsewhere.| In 1999.| And 7.",
        "1. First this.| 2. Then that.",
        '"Stop!" he cried.| "Why?"| "Because."| (So it was.)| \'Yes.\'| No',
        "this is so... strange.| it ends...| Now.| all small.| letters",
        "What?!| No way!!!| So",
        "One line\n|Another line\n\n  |third one \r\n|fourth\u2028|fifth",
        "他来了。|她走了！|为什么？|“真的吗？”|他说。|好的!|行",
        "今日は。|寒い」と言った。|本当",
        "वह आया। |क्यों? |“ठीक है।” |उसने कहा॥",
        "هل أنت هنا؟ |نعم. |لا",
        "یہ کتاب ہے۔ |وہ گیا۔",
        "ሰላም ነው። |ለምን፧ |እሺ",
        "Նա եկավ։ |Լավ",
        "သူလာသည်။ |ကောင်းသည်။",
        "គាត់មក។ |ល្អ",
        "went home . |She slept . |The end",
    ],
)
def test_ends(marked: str) -> None:
    assert cut(marked.replace("|", "")) == [part.strip() for part in marked.split("|")]


@given(st.data())
@settings(max_examples=300)
def test_sentences_cover_the_text(texts: st.SearchStrategy[str], data: st.DataObject) -> None:
    text = data.draw(st.one_of(texts, st.text("aB1 .!?\"')。”\n…", max_size=40)))
    spans = split(text)
    borders = [place for span in spans for place in span]
    assert borders == sorted(borders)
    for start, end in spans:
        assert text[start:end] == text[start:end].strip() != ""
        assert "\n" not in text[start:end]
    kept = "".join("".join(sentence.split()) for sentence in cut(text))
    assert kept == "".join(text.split())


@given(st.data())
@settings(max_examples=150)
def test_documents_have_the_pieces_of_their_text(
    tokenizer: Tokenizer, texts: st.SearchStrategy[str], data: st.DataObject
) -> None:
    text = data.draw(st.one_of(texts, st.text("aBΣ1 .!?\"')。”\n…\x0b\x1c", max_size=40)))
    document = encode_document(text, tokenizer)
    assert document.ids.tolist() == tokenizer.encode(text).tolist()
    assert document.sentences[0] == 0 and document.sentences[-1] == len(document)
    assert (document.sentences[1:] > document.sentences[:-1]).all()
    words = tokenizer.encode_with_offsets(text).words
    assert document.words.sum() == len(set(words.tolist()))


def test_a_document(uncased: Tokenizer) -> None:
    document = encode_document("Abz ab. B!\n\x00\n. a", uncased)
    assert uncased.tokens(document.ids) == ["ab", "##z", "ab", ".", "b", "!", ".", "a"]
    assert document.sentences.tolist() == [0, 4, 6, 7, 8]
    assert document.words.tolist() == [True, False, True, True, True, True, True, True]
    empty = encode_document(" \n", uncased)
    assert len(empty) == 0 and empty.sentences.tolist() == [0]


def test_long_runs_do_not_slow_it_down() -> None:
    assert len(split("." * 100_000)) == 1
    assert len(split("a. " * 30_000)) > 1
    assert len(split("\n" * 100_000 + "a")) == 1
    assert len(split(("a" * 100_000) + ".")) == 1
