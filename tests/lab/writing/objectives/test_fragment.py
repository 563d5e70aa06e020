"""Fragments: where they lie, what both sides read of them, and at which positions."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from scipy.stats import chisquare

from osbert.data.example import Example
from osbert.data.pack import Packer
from osbert.models.architecture import Architecture
from osbert.text.tokenizer import SPECIALS, Tokenizer
from osbert_lab.writing.decoder_inputs import decoder_prompt
from osbert_lab.writing.objectives.fragment import Fragment

TOKENIZER = Tokenizer([*SPECIALS, *(f"w{number}" for number in range(400))])
PACKER = Packer(tokenizer=TOKENIZER, length=402)
FIRST = len(SPECIALS)


def text(pieces: int) -> Example:
    return PACKER.single(np.arange(FIRST, FIRST + pieces), np.ones(pieces, np.bool_))


def test_the_decoder_reads_what_is_before_each_piece_where_it_stands() -> None:
    for pieces in (1, 2, 9, 400):
        whole = text(pieces)
        for seed in range(8):
            found = Fragment(mask=1.0, random=0.0).corrupt(whole, PACKER, np.random.default_rng(seed))
            assert found.source is not None and found.positions is not None
            hidden = np.flatnonzero(found.source.ids == TOKENIZER.mask)
            assert len(hidden) == Fragment().size(pieces) == max(1, round(pieces / 2))
            assert hidden.tolist() == [*range(hidden[0], hidden[-1] + 1)] and len(found.source) == len(whole)
            target = found.targets["fragment"]
            ends = hidden[-1] == len(whole) - 2
            asked = np.append(hidden, len(whole) - 1) if ends else hidden  # with the end of the text
            assert target.labels.tolist() == whole.ids[asked].tolist()
            begun = (
                decoder_prompt(found.source, TOKENIZER).ids.tolist() if hidden[0] == 1 else [whole.ids[hidden[0] - 1]]
            )
            assert found.ids.tolist() == [*begun, *whole.ids[asked[1:] - 1]]
            assert found.positions.tolist() == (asked - 1).tolist()
            assert target.index is not None and target.index.tolist() == [*range(len(asked))]
            rest = np.delete(np.arange(len(whole)), hidden)
            assert found.source.ids[rest].tolist() == whole.ids[rest].tolist()


def test_a_fifth_begins_a_text_a_fifth_ends_it_and_the_rest_is_anywhere() -> None:
    rng = np.random.default_rng(0)
    places = Counter(int(Fragment().corrupt(text(10), PACKER, rng).targets["fragment"].labels[0]) for _ in range(6000))
    shares = np.array([0.2 + 0.1, 0.1, 0.1, 0.1, 0.1, 0.2 + 0.1]) * 6000
    assert chisquare([places[FIRST + place] for place in range(6)], shares).pvalue > 0.01
    even = Counter(
        int(Fragment(edges=0.0).corrupt(text(8), PACKER, rng).targets["fragment"].labels[0]) for _ in range(3000)
    )
    assert len(even) == 5 and chisquare([*even.values()]).pvalue > 0.01


def test_pieces_are_masked_replaced_and_kept_as_often_as_in_bert() -> None:
    rng = np.random.default_rng(1)
    masked = kept = total = 0
    for _ in range(40):
        found = Fragment().corrupt(text(400), PACKER, rng)
        assert found.source is not None and found.positions is not None
        places = found.positions[found.positions < 400] + 1  # without the end
        shown, labels = found.source.ids[places], found.targets["fragment"].labels[: len(places)]
        masked += int((shown == TOKENIZER.mask).sum())
        kept += int((shown == labels).sum())
        total += len(labels)
    assert chisquare([masked, kept, total - masked - kept], np.array([0.8, 0.1, 0.1]) * total).pvalue > 0.01


def test_a_fragment_of_all_begins_and_ends_as_every_written_text() -> None:
    found = Fragment(share=1.0).corrupt(text(5), PACKER, np.random.default_rng(0))
    assert found.ids.tolist() == [TOKENIZER.sep, *range(FIRST, FIRST + 5)]
    assert found.targets["fragment"].labels.tolist() == [*range(FIRST, FIRST + 5), TOKENIZER.sep]


def test_what_cannot_be_is_refused() -> None:
    (objection,) = Fragment().objections(Architecture(vocabulary=9))
    assert "pair" in objection
    for settings in ({"share": 0.0}, {"edges": 0.6}, {"mask": 0.95}):
        with pytest.raises(ValueError, match=next(iter(settings))):
            Fragment(**settings)
    ((_, found, _),) = Fragment().rates([Fragment(edges=0.0).corrupt(text(98), PACKER, np.random.default_rng(0))])
    assert found == "49.0%"
