"""Word starts among ideographs: one flag a piece, whatever the segmenter; what is not an ideograph is as ever."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from osbert.text.normalize import is_cjk
from osbert.text.tokenizer import SPECIALS, Tokenizer
from osbert.text.words import check_words, segmenter, word_finder
from refusals import refusal

TOKENIZER = Tokenizer([*SPECIALS, *"我们爱北京中国abc.", "##b", "##c", "豈"])
# With what the normaliser treats in its own way: an accent, a zero-width space, a compatibility ideograph, a rare one.
TEXTS = st.text(st.sampled_from("我们爱北京中国 abc.é\u0301\u200b\t\uf900\U00020000アか한"), max_size=30)


def pairs(run: str) -> list[str]:
    """A segmenter that makes words of two characters."""
    return [run[start : start + 2] for start in range(0, len(run), 2)]


@given(TEXTS)
def test_starts_are_those_of_the_words_found_character_by_character(text: str) -> None:
    """Against the offsets of each piece: an ideograph starts a word when it is the first of its pair in its run."""
    encoding = TOKENIZER.encode_with_offsets(text)
    expected = []
    for index, start in zip(encoding.ids.tolist(), encoding.starts.tolist()):
        if is_cjk(ord(text[start])):
            before = 0
            while start > before and is_cjk(ord(text[start - before - 1])):
                before += 1
            expected.append(before % 2 == 0)
        else:
            expected.append(not TOKENIZER.continuation[index])
    assert [flag == 1 for flag in word_finder(TOKENIZER, pairs)(text)] == expected


@given(TEXTS)
def test_characters_as_words_are_what_the_tokenizer_alone_gives(text: str) -> None:
    flags = np.frombuffer(word_finder(TOKENIZER, list)(text), np.bool_)
    assert (flags == ~TOKENIZER.continuation[TOKENIZER.encode(text)]).all()


def test_text_that_is_segmented_keeps_its_words_together() -> None:
    segment = segmenter("segmented")
    assert segment is not None
    assert [*word_finder(TOKENIZER, segment)("我们 爱北京 abc.中国")] == [1, 0, 1, 0, 0, 1, 0, 0, 1, 1, 0]
    assert segmenter("characters") is None


@given(TEXTS)
def test_the_words_of_rjieba_together_are_the_run(text: str) -> None:
    pytest.importorskip("rjieba")
    segment = segmenter("rjieba")
    assert segment is not None
    assert "".join(segment(text)) == text
    assert len(word_finder(TOKENIZER, segment)(text)) == len(TOKENIZER.encode(text))


def test_rjieba_finds_words_of_a_dictionary() -> None:
    pytest.importorskip("rjieba")
    segment = segmenter("rjieba")
    assert segment is not None
    assert [*word_finder(TOKENIZER, segment)("我们爱北京")] == [1, 0, 1, 1, 0]


def test_what_is_missing_or_impossible_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rjieba", None)
    with refusal("missing-library", "segmented"):
        check_words("rjieba", TOKENIZER)
    joined = Tokenizer(TOKENIZER.vocabulary, cjk=False)
    with refusal("unusable-tokenizer", "tokenize_chinese_chars"):
        check_words("segmented", joined)
    check_words("characters", joined)
    check_words("segmented", TOKENIZER)
    wrong: str = "jieba"
    with refusal("invalid-value"):
        check_words(wrong, TOKENIZER)  # type: ignore[arg-type]
