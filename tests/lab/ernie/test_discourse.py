"""discourse: sentences after the one before them, without the connective that the label names."""

from __future__ import annotations

import numpy as np
import pytest

from osbert.data.examples import Examples
from osbert.data.pack import Packer
from osbert.text.document import Document
from osbert.text.tokenizer import SPECIALS, Tokenizer
from osbert_lab.ernie.discourse import Discourse

WORDS = "but so in fact however it he ran sat ##ter rain ##s . , 但 是 他 来 了 。 ，"
TOKENIZER = Tokenizer([*SPECIALS, *WORDS.split(" ")])
PACKER = Packer(tokenizer=TOKENIZER, length=32)
CHOSEN = Discourse(connectives=("but", "so", "in fact", "in", "however", "但是"))


def document(*sentences: str) -> Document:
    pieces = [TOKENIZER.encode(sentence) for sentence in sentences]
    ids = np.concatenate(pieces)
    bounds = np.concatenate([[0], np.cumsum([len(part) for part in pieces])])
    return Document(ids=ids, sentences=bounds, words=~TOKENIZER.continuation[ids])


def read(*documents: Document) -> list[tuple[str, str]]:
    """Return each sequence as text, with its connective."""
    examples = Examples.of([*CHOSEN.examples(documents, PACKER, np.random.default_rng(0))])
    return [
        (" ".join(TOKENIZER.tokens(one.ids)), CHOSEN.connectives[int(one.targets["discourse"].labels[0])])
        for one in examples
    ]


def test_the_connective_and_its_comma_are_taken_away() -> None:
    assert read(document("he ran .", "But, it rains .", "he sat .", "so he ran .")) == [
        ("[CLS] he ran . [SEP] it rain ##s . [SEP]", "but"),
        ("[CLS] he sat . [SEP] he ran . [SEP]", "so"),
    ]


def test_the_longest_connective_counts_and_ends_with_a_word() -> None:
    assert [label for _, label in read(document("he ran .", "in fact , he sat .", "in rain he sat ."))] == [
        "in fact",
        "in",
    ]
    assert read(document("he ran .", "butter ran .", "he but sat .")) == []


def test_a_sentence_needs_one_before_it_and_something_left() -> None:
    assert read(document("but he ran ."), document("so he sat .", "but", "however ,")) == []


def test_connectives_of_other_languages() -> None:
    assert read(document("他来了。", "但是，他来了。")) == [
        ("[CLS] 他 来 了 。 [SEP] 他 来 了 。 [SEP]", "但是"),
    ]


def test_settings_and_remarks() -> None:
    for connectives in (("but",), ("but", "but", "so")):
        with pytest.raises(ValueError, match="connectives"):
            Discourse(connectives=connectives)
    few = CHOSEN.examples([document("he ran .", "but he sat .")], PACKER, np.random.default_rng(0))
    assert "1 of its 6 connectives" in CHOSEN.idle(few)
