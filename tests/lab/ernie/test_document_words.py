"""Token-document relation and capitals: labels of pieces are those of a plain definition."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from osbert.corpus.encode import encode_portion
from osbert.data.pack import Packer
from osbert.text.document import Document
from osbert.text.tokenizer import SPECIALS, Tokenizer
from osbert_lab.ernie.capitals import Capitals
from osbert_lab.ernie.document_words import DocumentWords
from unique import pairs

PIECES = Tokenizer([*SPECIALS, *"abcdefgh", "##a", "##b"])


@settings(max_examples=30)
@given(
    documents=st.lists(
        st.lists(st.lists(st.integers(5, 14), min_size=1, max_size=12), min_size=1, max_size=8), min_size=1, max_size=4
    ),
    seed=st.integers(0, 5),
)
def test_a_token_is_looked_for_in_the_rest_of_its_document(documents: list[list[list[int]]], seed: int) -> None:
    packer = Packer(tokenizer=PIECES, length=14, short=0)
    texts = [
        Document(
            ids=np.array([piece for sentence in document for piece in sentence], np.uint16),
            sentences=np.cumsum([0, *map(len, document)]),
            words=np.ones(sum(map(len, document)), np.bool_),
        )
        for document in documents
    ]
    left = [Counter(document.ids.tolist()) for document in texts]
    at, number = 0, 0
    for example in pairs(DocumentWords(), texts, packer, seed):
        target, own = example.targets["document_words"], example.ids[~example.special].tolist()
        while at == len(texts[number]):
            at, number = 0, number + 1
        at += len(own)
        assert target.index is not None and target.index.tolist() == np.flatnonzero(~example.special).tolist()
        counts = Counter(own)
        # Once more in the document than in the sequence: the sequence's own tokens never count.
        assert target.labels.tolist() == [int(left[number][piece] > counts[piece]) for piece in own]


@settings(max_examples=30)
@given(
    st.lists(
        st.lists(st.sampled_from(["ab", "Ab", "c", "C", "AB", "d", "D."]), min_size=1, max_size=9),
        min_size=1,
        max_size=5,
    )
)
def test_capitals_are_those_of_the_text(lines: list[list[str]]) -> None:
    """Marked before lower-casing, at the first piece of each word; the pieces are those of a text in lower case."""
    text = "\n".join(" ".join(words) for words in lines)
    marked = encode_portion([(text, True)], PIECES, capitals=True)
    lower = encode_portion([(text.lower(), True)], PIECES)
    assert marked.ids == lower.ids and marked.capitals is not None
    ids = np.frombuffer(marked.ids, PIECES.id_type)
    bounds = np.append(marked.sentences, len(ids)).astype(np.int64)
    capitals = np.unpackbits(marked.capitals, count=len(ids)).astype(np.bool_)
    words = ~PIECES.continuation[ids]
    spelt = [part for word in text.split() for part in ([word[:-1], "."] if word.endswith(".") else [word])]
    assert capitals[words].tolist() == [part[0].isupper() for part in spelt] and not capitals[~words].any()
    document = Document(ids=ids, sentences=bounds, words=words, capitals=capitals)
    labels: list[int] = []
    for example in pairs(Capitals(), [document], Packer(tokenizer=PIECES, length=16, short=0)):
        target = example.targets["capitals"]
        assert target.index is not None and not PIECES.continuation[example.ids[target.index]].any()
        labels += target.labels.tolist()
    assert labels == [int(part[0].isupper()) for part in spelt]


def test_documents_without_marks_are_refused(packer: Packer, text: list[Document]) -> None:
    with pytest.raises(ValueError, match="capitals"):
        pairs(Capitals(), text, replace(packer))
