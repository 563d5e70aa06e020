"""Masked language modelling: rates, the mix, the labels and the limit, by law and by count."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from osbert.data.example import Example
from osbert.data.examples import Examples
from osbert.data.noise import Noise
from osbert.data.pack import Packer
from osbert.objectives.mlm import MaskedLanguage
from osbert.text.document import Document


@pytest.fixture(scope="module")
def spans(packer: Packer, text: list[Document]) -> list[Example]:
    return list(packer.spans(text, np.random.default_rng(0)))


def corrupted(objective: MaskedLanguage, spans: list[Example], packer: Packer, seed: int = 0) -> list[Example]:
    return [*objective.corrupt_all(Examples.of(spans), packer, Noise.from_rng(np.random.default_rng(seed), len(spans)))]


@given(
    lengths=st.lists(st.integers(1, 20), min_size=1, max_size=6),
    rate=st.floats(0.01, 1.0),
    limit=st.integers(0, 12),
    seed=st.integers(0, 9),
)
def test_only_chosen_positions_change_and_the_labels_are_what_stood_there(
    packer: Packer,
    make_documents: Callable[..., list[Document]],
    lengths: list[int],
    rate: float,
    limit: int,
    seed: int,
) -> None:
    objective, rng = MaskedLanguage(rate=rate, limit=limit), np.random.default_rng(seed)
    for span in packer.spans(make_documents([lengths]), rng):
        before = span.ids.copy()
        example = objective.corrupt(span, packer, rng)
        target = example.targets["mlm"]
        assert (span.ids == before).all() and not span.targets
        kept = {field.name for field in fields(Example)} - {"ids", "targets"}
        assert all(np.array_equal(getattr(example, name), getattr(span, name)) for name in kept)
        assert target.index is not None
        assert (target.labels == before[target.index]).all()
        assert not example.special[target.index].any()
        untouched = np.delete(np.arange(len(before)), target.index)
        assert (example.ids[untouched] == before[untouched]).all()
        expected = max(1, round(len(before) * rate))
        assert len(target.index) == min(expected, limit or expected, len(before) - 2)


def test_fifteen_percent_are_chosen_and_mixed_80_10_10(packer: Packer, spans: list[Example]) -> None:
    examples = corrupted(MaskedLanguage(), spans, packer) + corrupted(MaskedLanguage(), spans, packer, seed=1)
    shown = np.concatenate([example.ids[example.targets["mlm"].index] for example in examples])
    labels = np.concatenate([example.targets["mlm"].labels for example in examples])
    tokens = sum(map(len, examples))
    # The quota is rounded in each sequence, so over many the share is 15% to within half a token a sequence.
    assert abs(len(labels) / tokens - 0.15) < 0.005
    assert len(labels) > 15_000
    for share, hits in ((0.8, shown == packer.tokenizer.mask), (0.1, shown == labels)):
        assert abs(hits.mean() - share) < 4 * np.sqrt(share * (1 - share) / len(labels))


def test_masks_are_drawn_anew_and_repeat_for_the_same_generator(packer: Packer, spans: list[Example]) -> None:
    first, again, other = (corrupted(MaskedLanguage(), spans[:50], packer, seed) for seed in (0, 0, 1))
    for one, same in zip(first, again):
        assert (one.ids == same.ids).all()
        assert one.targets["mlm"].index.tolist() == same.targets["mlm"].index.tolist()
    assert any(o.targets["mlm"].index.tolist() != d.targets["mlm"].index.tolist() for o, d in zip(first, other))


TABLE_8 = [(0.8, 0.1), (1.0, 0.0), (0.8, 0.0), (0.8, 0.2), (0.0, 0.8), (0.0, 1.0)]
"""MASK and RND of BERT's Table 8: 80/10/10, 100/0/0, 80/20/0, 80/0/20, 0/20/80, 0/0/100 (MASK/SAME/RND)."""


@pytest.mark.parametrize("unit", ["pieces", "words", "ngrams"])
@pytest.mark.parametrize(("mask", "random"), TABLE_8)
def test_every_mix_and_rate_is_counted_as_asked(
    packer: Packer, spans: list[Example], mask: float, random: float, unit: Any
) -> None:
    objective = MaskedLanguage(rate=0.25, mask=mask, random=random, unit=unit)
    examples = corrupted(objective, spans, packer)
    shown = np.concatenate([example.ids[example.targets["mlm"].index] for example in examples])
    labels = np.concatenate([example.targets["mlm"].labels for example in examples])
    assert abs(len(labels) / sum(map(len, examples)) - 0.25) < 0.005
    kinds = {"mask": shown == packer.tokenizer.mask, "same": shown == labels}
    kinds["random"] = ~kinds["mask"] & ~kinds["same"]
    for kind, share in (("mask", mask), ("random", random), ("same", max(0.0, 1 - mask - random))):
        assert abs(kinds[kind].mean() - share) <= 4 * np.sqrt(share * (1 - share) / len(labels)) + 2e-4


@pytest.mark.parametrize("unit", ["words", "ngrams"])
def test_words_are_masked_whole_and_each_piece_draws_what_it_shows(
    packer: Packer, spans: list[Example], unit: Any
) -> None:
    both = {True: 0, False: 0}  # of two neighbouring pieces of a word, whether both show [MASK]
    for span, example in zip(spans, corrupted(MaskedLanguage(unit=unit), spans, packer)):
        index = example.targets["mlm"].index
        assert index is not None and 0 < len(index) <= max(2, round(0.15 * len(span)))
        chosen = np.zeros(len(span), dtype=bool)
        chosen[index] = True
        within = ~span.words & ~span.special & ~np.concatenate([[True], span.special[:-1]])
        inside = np.flatnonzero(within)
        assert (chosen[inside] == chosen[inside - 1]).all()
        for place in inside[chosen[inside]].tolist():
            both[bool((example.ids[place - 1 : place + 1] == packer.tokenizer.mask).all())] += 1
    total = sum(both.values())
    assert abs(both[True] / total - 0.64) < 4 * np.sqrt(0.64 * 0.36 / total)


@pytest.mark.parametrize(
    "change",
    [{"rate": 0.4}, {"mask": 0.2}, {"random": 0.2}, {"limit": 2}, {"unit": "words"}, {"unit": "ngrams"}],
    ids=lambda change: "-".join(map(str, next(iter(change.items())))),
)
def test_every_setting_of_the_noise_changes_the_noise(
    packer: Packer, spans: list[Example], change: dict[str, Any]
) -> None:
    usual = corrupted(MaskedLanguage(), spans[:200], packer)
    changed = corrupted(MaskedLanguage(**change), spans[:200], packer)
    assert any(a.ids.tolist() != b.ids.tolist() for a, b in zip(usual, changed))


def test_the_shares_of_runs_change_the_runs(packer: Packer, spans: list[Example]) -> None:
    one, other = (
        corrupted(MaskedLanguage(unit="ngrams", ngrams=shares), spans[:50], packer) for shares in ((1.0,), (0.0, 1.0))
    )
    assert any(a.ids.tolist() != b.ids.tolist() for a, b in zip(one, other))


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"rate": 0.0}, "rate"),
        ({"mask": 0.8, "random": 0.3}, "random"),
        ({"limit": -1}, "limit"),
        ({"ngrams": ()}, "ngrams"),
        ({"ngrams": (0.5, 0.4)}, "ngrams"),
        ({"ngrams": (1.5, -0.5)}, "ngrams"),
        ({"unit": "words", "ngrams": (0.5, 0.5)}, 'ngrams have no effect with unit = "words"'),
    ],
)
def test_impossible_settings_are_refused(wrong: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        MaskedLanguage(**wrong)
