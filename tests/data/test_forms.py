"""Sequences by the form of their tokenizer: BERT's, RoBERTa's, GPT's, T5's and XLNet's, one by one and many at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from osbert.data.pack import Packer, PieceRun
from osbert.data.pairs import pairs
from osbert.text.document import Document, Documents
from osbert.text.tokenizer import Form, Tokenizer

FORMS = {
    "bert": Form(before=(2,), between=(3,), after=(3,)),
    "roberta": Form(before=(2,), between=(3, 3), after=(3,), second_segment=0),
    "gpt": Form(before=(0,), between=(1,), after=(4,), second_segment=0, summary="last"),
    "t5": Form(between=(3,), after=(3,), second_segment=0),
    "xlnet": Form(between=(3,), after=(3, 2), last_segment=2, summary="last"),
}


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> Form:
    return FORMS[request.param]


@pytest.fixture
def packer(tokenizer: Tokenizer, form: Form, monkeypatch: pytest.MonkeyPatch) -> Packer:
    monkeypatch.setattr(tokenizer, "form", form)
    return Packer(tokenizer=tokenizer, length=16, short=0.0)


def run(first: int, size: int) -> PieceRun:
    ids = np.arange(first, first + size)
    return PieceRun(ids, ids % 3 == 0)


def test_one_text_and_two_stand_between_their_special_pieces(packer: Packer, form: Form) -> None:
    a, b = run(10, 4), run(100, 3)
    single, pair = packer.single(*a), packer.pair(a, b)
    assert single.ids.tolist() == [*form.before, *a.ids, *form.after]
    assert pair.ids.tolist() == [*form.before, *a.ids, *form.between, *b.ids, *form.after]
    assert pair.ids[form.second(4)] == 100 and len(pair) == 7 + form.specials(2)
    for example in (single, pair):
        assert (example.ids < 5).tolist() == example.special.tolist()
        assert not example.words[example.special].any()
    second = form.second(4)
    for example, first in ((pair, second), (single, len(single))):
        expected = [0] * first + [form.second_segment] * (len(example) - first)
        assert example.segments[:-1].tolist() == expected[:-1]
        assert example.segments[-1] == (expected[-1] if form.last_segment is None else form.last_segment)


def test_long_texts_leave_room_for_the_special_pieces(packer: Packer, form: Form) -> None:
    assert len(packer.single(*run(10, 50))) == len(packer.pair(run(10, 50), run(100, 50))) == 16
    with pytest.raises(ValueError, match="length"):
        Packer(tokenizer=packer.tokenizer, length=form.specials(2) + 1)


def test_pairs_laid_out_together_are_those_packed_one_by_one(
    packer: Packer, form: Form, make_documents: Callable[..., list[Document]]
) -> None:
    documents = Documents.of(make_documents([[30]]))
    texts = tuple(np.array(column) for column in ([0, 9], [5, 12], [5, 20], [9, 24]))
    sequences = pairs(documents, texts, packer, np.random.default_rng(0), {})  # type: ignore[arg-type]
    piece = [PieceRun(documents.ids[k : k + 1], documents.words[k : k + 1]) for k in range(30)]
    for example, (start, end, second, last) in zip(sequences, zip(*(column.tolist() for column in texts)), strict=True):
        runs = [PieceRun(*map(np.concatenate, zip(*piece[i:j]))) for i, j in ((start, end), (second, last))]
        assert plain(example) == plain(packer.pair(*runs))
    assert sequences.lengths.tolist() == [len(example) for example in sequences]


def test_spans_across_documents_have_between_them_what_is_between_two_texts(
    packer: Packer, form: Form, make_documents: Callable[..., list[Document]]
) -> None:
    documents = make_documents([[3], [2], [40]])
    across = Packer(tokenizer=packer.tokenizer, length=16, short=0.0, cross_documents=True)
    first, *others = across.spans(documents, np.random.default_rng(0))
    ids = [document.ids.tolist() for document in documents]
    head = [*form.before, *ids[0], *form.between, *ids[1], *form.between]
    assert first.ids.tolist()[: len(head)] in (head, [*head[: len(head) - len(form.between)], *form.after])
    assert all(len(example) <= 16 and example.truncated == 0 for example in (first, *others))
    kept = np.concatenate([example.ids[~example.special] for example in (first, *others)])
    assert kept.tolist() == [piece for document in ids for piece in document]


def plain(example: Any) -> list[Any]:
    return [column.tolist() for column in (example.ids, example.words, example.segments, example.special)]
