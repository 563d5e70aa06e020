"""Documents: many in one hold what the single ones hold, and count their sources."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from osbert.text.document import Document, Documents, sources


@st.composite
def one(draw: st.DrawFn) -> Document:
    lengths = draw(st.lists(st.integers(0, 5), max_size=4))
    bounds = np.cumsum([0, *lengths])
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    return Document(
        ids=rng.integers(5, 100, bounds[-1]).astype(np.uint16),
        sentences=bounds,
        words=rng.random(bounds[-1]) < 0.5,
        source=draw(st.none() | st.integers(0, 3)),
    )


def plain(document: Document) -> list[Any]:
    return [document.ids.tolist(), document.sentences.tolist(), document.words.tolist(), document.source]


@given(documents=st.lists(one(), max_size=6), cut=st.integers(0, 6))
def test_many_hold_what_each_holds(documents: list[Document], cut: int) -> None:
    together = Documents.of(documents)
    assert Documents.of(together) is together
    assert len(together) == len(documents)
    assert [plain(document) for document in together] == [plain(document) for document in documents]
    joined = Documents.concatenate([Documents.of(documents[:cut]), Documents.of(documents[cut:])])
    assert [plain(document) for document in joined] == [plain(document) for document in documents]
    assert [plain(document) for document in joined[1:3]] == [plain(document) for document in documents[1:3]]
    with pytest.raises(IndexError):
        joined[len(documents)]


@given(documents=st.lists(one(), max_size=6))
def test_sources_count_parts_once_and_empty_documents_not_at_all(documents: list[Document]) -> None:
    filled = [document for document in documents if len(document)]
    alone = [document for document in filled if document.source is None]
    expected = len(alone) + len({document.source for document in filled if document.source is not None})
    assert sources(documents) == sources(Documents.of(documents)) == expected
