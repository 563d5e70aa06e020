"""Translation: a document's first sentences are the source, and its second half is the decoder's text."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace

import numpy as np
import pytest

from osbert.data.example import Example
from osbert.data.noise import Noise
from osbert.data.pack import Packer
from osbert.text.document import Document, Documents
from osbert.text.tokenizer import SPECIALS, Form, Tokenizer
from osbert_lab.recurrent.translation import Translation

TOKENIZER = Tokenizer([*SPECIALS, *"abcdefghij"])


def document(*sentences: str) -> Document:
    ids = [TOKENIZER.encode(sentence) for sentence in sentences]
    bounds = np.cumsum([0, *map(len, ids)])
    return Document(ids=np.concatenate(ids), sentences=bounds, words=np.ones(bounds[-1], np.bool_))


def translated(documents: Sequence[Document], packer: Packer) -> list[Example]:
    objective = Translation()
    sequences = objective.examples(documents, packer, np.random.default_rng(0))
    whole = sequences.take(np.arange(len(sequences)))
    return list(objective.corrupt_all(whole, packer, Noise.at(0, np.arange(len(whole)))))


@pytest.mark.parametrize("form", [TOKENIZER.form, Form(before=(2,), between=(3, 3), after=(3,), second_segment=0)])
def test_a_document_is_a_source_and_its_translation(form: Form) -> None:
    tokenizer = copy(TOKENIZER)
    tokenizer.form = form
    documents = [document("a b", "c"), document("d", "e", "f"), document("a b c", "d e f g h"), document("i")]
    first, second = translated(documents, Packer(tokenizer=tokenizer, length=16))
    for example, source, text in ((first, "a b", "c"), (second, "a b c", "d e f g h")):
        assert example.source is not None
        assert TOKENIZER.tokens(example.source.ids) == ["[CLS]", *source.split(), "[SEP]"]
        assert TOKENIZER.tokens(example.ids) == ["[SEP]", *text.split()]
        target = example.targets["translation"]
        assert TOKENIZER.tokens(target.labels) == [*text.split(), "[SEP]"]
        assert target.index is not None and target.index.tolist() == list(range(len(example)))
        assert not example.segments.any() and not example.source.segments.any() and not example.truncated


def test_two_sentences_of_a_longer_document_are_no_pair() -> None:
    """Neither two of three, nor two of four that a block of the corpus was cut behind."""
    packer = Packer(tokenizer=TOKENIZER, length=16)
    assert not translated([document("a", "b", "c"), document("a", "b", "c", "d")], packer)
    cut = replace(Documents.of([document("a", "b"), document("c", "d")]), cut=np.array([True, False]))
    (example,) = translated(cut, packer)
    assert TOKENIZER.tokens(example.targets["translation"].labels) == ["d", "[SEP]"]


def test_pieces_that_do_not_fit_are_cut_from_the_end_and_counted() -> None:
    (example,) = translated([document("a b c d e f", "g h i j")], Packer(tokenizer=TOKENIZER, length=9))
    assert example.source is not None and example.truncated == 4
    assert TOKENIZER.tokens(example.source.ids) == ["[CLS]", "a", "b", "c", "[SEP]"]
    assert TOKENIZER.tokens(example.targets["translation"].labels) == ["g", "h", "i", "[SEP]"]
