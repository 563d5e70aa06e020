"""Span corruption: lengths and places as T5 draws them, its examples, and what keeps a run from beginning."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from scipy.stats import chisquare

from osbert.data.example import Example
from osbert.data.pack import Packer
from osbert.models.architecture import Architecture
from osbert.text.tokenizer import SPECIALS, Tokenizer
from osbert_lab.writing.objectives.spans import Spans, pieces_of, sentinels

WORDS = [f"w{number}" for number in range(700)]
MASKS = Packer(tokenizer=Tokenizer([*SPECIALS, *WORDS]), length=700)
NUMBERED = Packer(tokenizer=Tokenizer([*SPECIALS, *WORDS, *(f"<extra_id_{99 - k}>" for k in range(100))]), length=700)


def text(tokens: int, packer: Packer = NUMBERED) -> Example:
    return packer.single(np.arange(5, 5 + tokens), np.ones(tokens, np.bool_))


def both(found: Example) -> tuple[list[int], list[int]]:
    """Return what is read and what is to be written, without what stands around them."""
    assert found.source is not None
    return found.source.ids.tolist()[1:-1], found.targets["spans"].labels.tolist()[:-1]


@pytest.mark.parametrize("packer", [MASKS, NUMBERED], ids=["mask", "sentinels"])
def test_the_two_sides_together_are_the_text(packer: Packer) -> None:
    marks = sentinels(packer.tokenizer).tolist()
    tokenizer = packer.tokenizer
    for tokens in (1, 2, 3, 20, 180, 600):
        found = Spans().corrupt(text(tokens, packer), packer, np.random.default_rng(tokens))
        source, labels = both(found)
        assert found.ids.tolist() == [tokenizer.sep, *found.targets["spans"].labels.tolist()[:-1]]
        assert found.targets["spans"].labels[-1] == tokenizer.sep
        noise, count = Spans().cut(tokens)
        assert len(labels) == noise + count and len(source) == tokens - noise + count
        assert [piece for piece in source if piece in marks] == [piece for piece in labels if piece in marks]
        if len(marks) > 1:
            assert [piece for piece in labels if piece in marks] == marks[:count]
        spans: list[list[int]] = []
        for piece in labels:
            spans.append([]) if piece in marks else spans[-1].append(piece)
        whole = [one for piece in source for one in (spans.pop(0) if piece in marks else [piece])]
        assert whole == list(range(5, 5 + tokens))
        assert tokens < 2 or (source[0] == 5 and source[-1] in marks)  # the first is never cut out, the last always


def test_lengths_are_those_of_the_paper_and_the_longest_text_fits() -> None:
    for tokens in range(2, 601):
        noise, count = Spans().cut(tokens)
        assert noise == min(max(round(0.15 * tokens), 1), tokens - 1) and count == max(1, round(noise / 3))
    room = Spans().room(512, 1)
    sizes = [tokens - noise + count for tokens in (room - 1, room) for noise, count in [Spans().cut(tokens)]]
    assert sizes[0] <= 511 < sizes[1]
    packer = Packer(tokenizer=NUMBERED.tokenizer, length=Spans().room(64, 2))
    found = Spans().corrupt(text(packer.room(1), packer), packer, np.random.default_rng(0))
    assert found.source is not None and len(found.source) in (63, 64)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_no_two_spans_share_one_of_few_sentinels(count: int) -> None:
    tokenizer = Tokenizer([*SPECIALS, *WORDS, *(f"<extra_id_{count - 1 - k}>" for k in range(count))])
    packer = Packer(tokenizer=tokenizer, length=700)
    source, labels = both(Spans().corrupt(text(600, packer), packer, np.random.default_rng(0)))
    marks = sentinels(tokenizer).tolist()
    for side in (source, labels):
        assert [piece for piece in side if piece in marks] == marks
    assert len(labels) == Spans().cut(600)[0] + count


def test_every_composition_is_as_likely_as_any_other() -> None:
    rng = np.random.default_rng(0)
    found = Counter(tuple(pieces_of(7, 3, rng).tolist()) for _ in range(6000))
    assert len(found) == 15 and all(sum(one) == 7 and min(one) > 0 for one in found)
    assert chisquare([*found.values()]).pvalue > 0.01


def test_what_cannot_be_is_refused() -> None:
    (objection,) = Spans().objections(Architecture(vocabulary=9))
    assert "pair" in objection
    for settings in ({"rate": 0.0}, {"rate": 1.0}, {"span": 0.5}):
        with pytest.raises(ValueError, match=next(iter(settings))):
            Spans(**settings)
