"""The words of tokens: where they lie in the text that was given, whatever the tokenizer and the layout."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from family_tokenizers import KINDS
from osbert.analysis.words import token_words, words_of_pieces
from osbert.data.pack import Packer
from osbert.interop.tokenizers import read_any_tokenizer
from osbert.tasks import Record
from osbert.tasks.kinds.classify import Classify
from osbert.tasks.kinds.span import Span
from osbert.tasks.kinds.tag import Tag
from osbert.text.tokenizer import SPECIALS, Tokenizer

TOKENIZER = Tokenizer([*SPECIALS, *"abcdefgh", "##b", "##c", "好", "影", ".", "!", "film"])
TEXT = "  Ça b😀 film!! 好影 xyz don't.\n"


def words(tokenizer: object, *texts: str, task: object = None, length: int = 64) -> tuple[list[str], list[list[int]]]:
    record = Record(number=0, texts=texts)
    found = token_words(task or Classify(labels=("a", "b")), record, Packer(tokenizer=tokenizer, length=length))  # type: ignore[arg-type]
    return [texts[word.text][word.start : word.end] for word in found.words], [one.tolist() for one in found.tokens]


def test_words_are_those_of_the_text() -> None:
    said, [tokens] = words(TOKENIZER, TEXT)
    assert said == ["Ça", "b😀", "film", "!", "!", "好", "影", "xyz", "don", "'", "t", "."]
    assert tokens[0] == tokens[-1] == -1 and sorted({*tokens}) == [-1, *range(12)]


@pytest.mark.parametrize("kind", ["roberta", "xlm-roberta", "deberta", "mpnet", "modernbert"])
def test_words_of_other_tokenizers_are_parts_of_the_text(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / kind
    KINDS[kind](folder)
    text = "the naïve film, don't  stop 日本語 😀 good."
    said, [tokens] = words(read_any_tokenizer(folder), text)
    assert "".join(said) == "".join(text.split()), said
    assert {"the", "film", ",", "stop", "good", "."} <= {*said}
    assert [one for one in tokens if one >= 0] == sorted(one for one in tokens if one >= 0)


def test_each_layout_knows_its_words() -> None:
    """What is cut has no word, what is read twice the same one; two texts of a record that are alike are told apart."""
    said, [tokens] = words(TOKENIZER, "a b c", "a b c")
    assert said == ["a", "b", "c"] * 2 and tokens == [-1, 0, 1, 2, -1, 3, 4, 5, -1]
    assert words(TOKENIZER, "a b c d e f", length=6)[0] == ["a", "b", "c", "d"]
    tail = Classify(labels=("a", "b"), long="head+tail")
    assert words(TOKENIZER, "a b c d e f", task=tail, length=6)[0] == ["a", "d", "e", "f"]
    windowed = Classify(labels=("a", "b"), long="window", overlap=2)
    assert words(TOKENIZER, "a b c d e f", task=windowed, length=6)[1] == [[-1, 0, 1, 2, 3, -1], [-1, 2, 3, 4, 5, -1]]
    both = Classify(labels=("a", "b"), both_orders=True)
    assert words(TOKENIZER, "a", "b c", task=both)[1] == [[-1, 0, -1, 1, 2, -1], [-1, 1, 2, -1, 0, -1]]
    asked = words(TOKENIZER, "a b", "c d e f g h a b", task=Span(stride=2), length=9)
    assert asked[1][0] == [-1, 0, 1, -1, 2, 3, 4, 5, -1] and asked[1][1][4:8] == [4, 5, 6, 7]


def test_the_words_of_a_tagger_are_its_own() -> None:
    task = Tag(types=("A",), split="characters")
    record = task.record_of(["ab ☃ b"])
    found = token_words(task, record, Packer(tokenizer=TOKENIZER, length=16))
    assert [(word.start, word.end) for word in found.words] == [(0, 1), (1, 2), (3, 4), (5, 6)]
    assert found.tokens[0].tolist() == [-1, 0, 1, 2, 3, -1]


@given(st.text(alphabet="ab好影 .!\n😀é\u0301\u200d", max_size=20), st.data())
def test_words_are_in_order_and_hold_their_pieces(text: str, data: st.DataObject) -> None:
    pieces = TOKENIZER.encode_with_offsets(text)
    bounds, found = words_of_pieces(text, pieces.starts, pieces.ends)
    assert all(first[1] <= second[0] for first, second in pairwise(bounds))
    assert (np.diff(found) >= 0).all()
    for word, start, end in zip(found.tolist(), pieces.starts.tolist(), pieces.ends.tolist()):
        assert bounds[word][0] <= start < end <= bounds[word][1]
