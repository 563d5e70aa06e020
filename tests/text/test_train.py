"""Training: the same vocabulary every time, of the size asked for, in bounded memory."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from osbert.text.normalize import Normalizer
from osbert.text.tokenizer import SPECIALS
from osbert.text.train import WordCounter, choose_characters, learn
from refusals import refusal
from vocabularies import printed_by_every_process, train

TEXT = "the lower the lowest, the newer the newest: wider widest low new wide " * 3
PROGRAM = """
import random
from osbert.text.tokenizer import Tokenizer
from osbert.text.train import WordCounter, learn
rng = random.Random(1)
words = ["".join(rng.choices("abcdefgh", k=rng.randint(1, 7))) for _ in range(3000)]
counter = WordCounter(lowercase=True)
for _ in range(50):
    counter.add(" ".join(rng.choices(words, k=200)))
tokenizer = Tokenizer(learn(counter.words(), vocabulary=300))
print(tokenizer.fingerprint, len(tokenizer))
"""


def test_pieces_of_a_small_text() -> None:
    tokenizer = train([TEXT], vocabulary=60)
    assert tokenizer.vocabulary[:5] == SPECIALS
    assert {"the", "##wer", "##west", "low", "new", "wide"} <= set(tokenizer.vocabulary)
    assert tokenizer.unknown not in tokenizer.encode(TEXT)
    assert tokenizer.lowercase and tokenizer.strip_accents
    # Punctuation was never inside a word, so that it needs no second form.
    assert "," in tokenizer.vocabulary and "##," not in tokenizer.vocabulary


@pytest.mark.parametrize("size", [35, 41, 48])
def test_size_is_exact_when_the_text_allows(size: int) -> None:
    assert len(train([TEXT], vocabulary=size)) == size


def test_fewer_pieces_when_nothing_is_left_to_join() -> None:
    pieces = train([TEXT], vocabulary=5000).vocabulary
    assert len(set(pieces)) == len(pieces) == 48
    assert "lowest" in pieces and "widest" in pieces


def test_same_vocabulary_in_every_process() -> None:
    assert printed_by_every_process(PROGRAM).endswith(" 300\n")


def test_case_and_accents_are_kept_when_asked() -> None:
    text = ["Élan élan ELAN Élan élan"] * 3
    assert "Élan" in train(text, vocabulary=60, lowercase=False).vocabulary
    lowered = train(text, vocabulary=60).vocabulary
    assert "elan" in lowered and not any("é" in piece or piece[0].isupper() for piece in lowered[5:])


def test_alphabet_keeps_the_most_frequent() -> None:
    words = {"aaab": 10, "cb": 5, "z": 4, "一": 9, "丁": 1}
    assert choose_characters(words, room=100, alphabet=2, minimum=2) == {"a": True, "b": True, "一": False}
    assert choose_characters(words, room=100, alphabet=9, minimum=1) == {
        "a": True, "b": True, "c": True, "z": False, "一": False, "丁": False,
    }  # fmt: skip
    assert choose_characters(words, room=3, alphabet=9, minimum=1) == {"a": True, "一": False}
    pieces = learn(words, vocabulary=30, alphabet=2, minimum=2)
    assert "c" not in pieces and "aaab" in pieces


def test_minimum_is_obeyed() -> None:
    words = {"ab": 3, "cd": 2}
    assert "cd" in learn(words, vocabulary=100, minimum=2)
    assert "cd" not in learn(words, vocabulary=100, minimum=3)
    assert "ab" in learn(words, vocabulary=100, minimum=3)


def test_surrogates_and_overlong_words_are_passed_over() -> None:
    tokenizer = train(["ab ab a\ud800b " + "a" * 201 + " " + "b" * 5000], vocabulary=30)
    assert "ab" in tokenizer.vocabulary
    assert not any("\ud800" in piece or len(piece) > 100 for piece in tokenizer.vocabulary)


def test_counts_are_exact_until_there_are_too_many_words() -> None:
    counter = WordCounter(lowercase=True, most=100)
    for text in ("The cat's hat.", "THE CAT\u00ads", "一丁一"):
        counter.add(text)
    assert counter.words() == {"the": 2, "cat": 1, "'": 1, "s": 1, "hat": 1, ".": 1, "cats": 1, "一": 2, "丁": 1}
    assert counter.forgotten == 0


@given(st.data())
@settings(max_examples=60)
def test_words_counted_are_those_of_the_text(texts: st.SearchStrategy[str], data: st.DataObject) -> None:
    counter = WordCounter(lowercase=True)
    text = data.draw(texts)
    counter.add(text)
    assert counter.words() == Counter(Normalizer(lowercase=True, strip_accents=True, cjk=True).words(text))


def test_memory_is_bounded_by_forgetting_the_rarest() -> None:
    counter = WordCounter(lowercase=True, most=50)
    for number in range(1000):
        counter.add(f"often w{number}")
        assert len(counter.words()) <= 50
    words = counter.words()
    assert words["often"] == 1000
    assert counter.forgotten + words.total() == 2000
    again = WordCounter(lowercase=True, most=50)
    again.add(" ".join(f"x{number}" for number in range(5000)))
    assert len(again.words()) <= 51


def test_huge_counts_are_scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    words = Counter({"aaab": 60_000_000, "cb": 30_000_000, "ccc": 10_000_000, "rare": 1})
    monkeypatch.setattr("osbert.text.train.MOST_OCCURRENCES", 1000)
    pieces = learn(words, vocabulary=40)
    assert {"aaab", "cb", "ccc"} <= set(pieces)
    assert "rare" not in pieces


def test_nothing_to_learn_from() -> None:
    with refusal("no-data"):
        train([" \n"], vocabulary=100)
    with refusal("invalid-value", "5"):
        train([TEXT], vocabulary=5)


@pytest.mark.parametrize("setting", ["alphabet", "minimum"])
def test_settings_below_one_are_refused(setting: str) -> None:
    with refusal("invalid-value", setting, "1"):
        train([TEXT], vocabulary=100, **{setting: -1})
