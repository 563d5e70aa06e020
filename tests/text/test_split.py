"""Words lie in their text without overlap, and are those of the basic tokenizer."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from osbert.text.normalize import Normalizer
from osbert.text.words import ranges

TEXTS = st.text(st.sampled_from("ab ,.-\t\n　你好é́​�😀Ａ"), max_size=20) | st.text(max_size=20)


@given(TEXTS)
def test_words_are_those_of_the_basic_tokenizer(text: str) -> None:
    found = ranges(text, "words")
    basic = Normalizer(lowercase=False, strip_accents=False, cjk=True)
    assert [basic.words(text[start:end]) for start, end in found] == [[word] for word in basic.words(text)]
    assert all(one[1] <= other[0] for one, other in pairwise(found))
    assert all(0 <= start < end <= len(text) for start, end in found)


@given(TEXTS)
def test_characters_are_all_but_spaces(text: str) -> None:
    assert "".join(text[start:end] for start, end in ranges(text, "characters")) == "".join(text.split())


def test_punctuation_and_ideographs_stand_alone() -> None:
    text = "Mr. O'Neill去New-York"
    words = [text[start:end] for start, end in ranges(text, "words")]
    assert words == ["Mr", ".", "O", "'", "Neill", "去", "New", "-", "York"]
