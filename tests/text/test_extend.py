"""Extending a vocabulary: old ids stay, what is added saves the most tokens, and every addition can be spelt."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osbert.errors import UserError
from osbert.text.extend import add_words, extends, spellings
from osbert.text.tokenizer import SPECIALS, Tokenizer
from refusals import refusal

OLD = Tokenizer([*SPECIALS, *"abcde", *(f"##{letter}" for letter in "abcde"), "ab", "##cd"])
WORDS = st.dictionaries(st.text("abcdexy", min_size=1, max_size=6), st.integers(1, 50), min_size=1, max_size=20)


def _tokens(tokenizer: Tokenizer, words: dict[str, int]) -> int:
    return sum(count * len(tokenizer.encode(word)) for word, count in words.items())


def test_the_words_that_save_most_come_first() -> None:
    words = {"ab": 99, "abc": 10, "eee": 8, "xy": 9, "cde": 2}
    new = add_words(OLD, words, pieces=2, minimum=3)
    # eee: 8 times 2 pieces saved; xy is [UNK], which counts as its characters: 18; abc: 10 times 1.
    assert new.vocabulary[len(OLD) :] == ("xy", "eee")
    assert add_words(OLD, words, pieces=9, minimum=3).vocabulary[len(OLD) :] == ("xy", "eee", "abc")


@given(WORDS, st.integers(1, 8))
def test_laws(words: dict[str, int], pieces: int) -> None:
    try:
        new = add_words(OLD, words, pieces=pieces, minimum=1)
    except UserError:
        assert all(len(OLD.encode(word)) == 1 and OLD.unknown not in OLD.encode(word) for word in words)
        return
    assert extends(new, OLD) and 1 <= len(new) - len(OLD) <= pieces
    added = new.vocabulary[len(OLD) :]
    assert all(new.encode(word).tolist() == [len(OLD) + place] for place, word in enumerate(added))
    assert spellings(OLD, new) == [OLD.encode(word).tolist() for word in added]
    known = {word: count for word, count in words.items() if OLD.unknown not in OLD.encode(word)}
    assert _tokens(new, known) <= _tokens(OLD, known)


def test_continuations_are_spelt_by_continuations() -> None:
    new = Tokenizer([*OLD.vocabulary, "##cda", "##x", "bcd"])
    assert [OLD.tokens(ids) for ids in spellings(OLD, new)] == [["##cd", "##a"], ["[UNK]"], ["b", "##cd"]]


def test_settings_and_order_are_part_of_being_extended() -> None:
    assert extends(OLD, OLD)
    assert not extends(Tokenizer([*OLD.vocabulary, "abc"], lowercase=False), OLD)
    assert not extends(Tokenizer(["abc", *OLD.vocabulary]), OLD)
    assert not extends(OLD, Tokenizer([*OLD.vocabulary, "abc"]))
    assert add_words(Tokenizer(OLD.vocabulary, lowercase=False), Counter(abc=9), pieces=1, minimum=1).lowercase is False


@pytest.mark.parametrize(("pieces", "minimum"), [(0, 1), (1, 0)])
def test_numbers_below_one_are_refused(pieces: int, minimum: int) -> None:
    with refusal("invalid-value", "1"):
        add_words(OLD, {"abc": 5}, pieces=pieces, minimum=minimum)


def test_nothing_to_add_is_told() -> None:
    with refusal("no-data"):
        add_words(OLD, {"ab": 100, "abc": 3}, pieces=5, minimum=4)
