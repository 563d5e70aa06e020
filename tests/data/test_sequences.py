"""Sequences written out are the runs that stand in them, with the specials between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from osbert.data.sequences import Sequences
from osbert.text.document import Document, Documents
from osbert.text.tokenizer import Tokenizer

SIZE = 40


@given(
    plan=st.lists(
        st.lists(st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)), min_size=1, max_size=4), min_size=1, max_size=5
    ),
    data=st.data(),
)
def test_sequences_are_their_runs_between_specials(
    tokenizer: Tokenizer,
    make_documents: Callable[..., list[Document]],
    plan: list[list[tuple[int, int]]],
    data: st.DataObject,
) -> None:
    documents = Documents.of(make_documents([[15], [SIZE - 15]]))
    runs = [(min(run), max(run) - min(run), number % 2) for sequence in plan for number, run in enumerate(sequence)]
    firsts, sizes, segments = np.array(runs).T
    sequences = Sequences(
        documents=documents,
        tokenizer=tokenizer,
        firsts=firsts,
        sizes=sizes,
        segments=segments.astype(np.int8),
        counts=np.array([*map(len, plan)]),
        truncated=np.arange(len(plan)),
        labels={"x": np.arange(len(plan)) * 2},
    )
    places = data.draw(st.lists(st.integers(0, len(plan) - 1), max_size=6))
    taken = sequences.take(np.array(places, np.int64))
    assert taken.lengths.tolist() == sequences.lengths[places].tolist()
    assert [plain(example) for example in taken] == [plain(list(sequences)[place]) for place in places]
    for place, example in zip(places, taken):
        ids, words, numbers = [tokenizer.cls], [False], [0]
        for number, (one, other) in enumerate(plan[place]):
            run = slice(min(one, other), max(one, other))
            ids += [*documents.ids[run].tolist(), tokenizer.sep]
            words += [*documents.words[run].tolist(), False]
            numbers += [number % 2] * (run.stop - run.start + 1)
        assert plain(example) == [ids, words, numbers, place, [place * 2]]
        assert example.special.tolist() == [piece in (tokenizer.cls, tokenizer.sep) for piece in ids]


def plain(example: Any) -> list[Any]:
    columns = [example.ids, example.words, example.segments]
    return [*(column.tolist() for column in columns), example.truncated, example.targets["x"].labels.tolist()]
