"""Canonical decomposition: Python's own for every text, in time n log n for a run of n combining characters."""

from __future__ import annotations

import sys
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osbert.text.normalize import _LONG_RUN, Normalizer, decompose

# Marks of several classes: nonspacing and spacing, some that decompose, one of class 0; and what may stand between.
MARKS = "\u0301\u0316\u0327\u0344\u0f71\u0f73\u0f75\u302e\U0001d165\U0001d16d\u0903"
TEXTS = st.lists(
    st.builds(
        str.__mul__, st.sampled_from([*MARKS, *"a\xe9\u1ea1\uac01\u4e2d\u3002 "]) | st.characters(), st.integers(1, 90)
    )
    | st.text(MARKS, min_size=60, max_size=90),
    max_size=6,
).map("".join)
PLAIN = Normalizer(lowercase=True, strip_accents=True, cjk=True)


@given(TEXTS)
def test_it_is_what_python_gives(text: str) -> None:
    assert decompose(text) == unicodedata.normalize("NFD", text)


@given(TEXTS)
def test_words_and_traced_words_agree(text: str) -> None:
    assert PLAIN.words(text) == [word.text for word in PLAIN.trace_words(text)]


def test_every_combining_character_counts_for_a_long_run() -> None:
    for code in range(sys.maxunicode + 1):
        for part in unicodedata.normalize("NFD", chr(code)):
            if unicodedata.combining(part):
                assert _LONG_RUN.fullmatch(part * 64), hex(code)


@pytest.mark.parametrize(("first", "second"), [("\u0301", "\u0316"), ("\U0001d16d", "\U0001d165"), ("\u0f73", "")])
def test_a_long_run_of_marks_takes_no_square_of_its_length(first: str, second: str) -> None:
    """In processor time: 400,000 marks take Python's own decomposition more than a minute."""
    start = time.process_time()
    PLAIN.words("a" + first * 200_000 + second * 200_000)
    assert time.process_time() - start < 10
