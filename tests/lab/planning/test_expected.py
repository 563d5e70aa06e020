"""The expected loss: near the runs it was fitted to, lower with more of everything, and never better than it should."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osbert_lab.planning.expected_loss import AS_NEW, MEASURED, UNCERTAIN, USELESS, predict_loss, worth_as_new

ENTROPY = 6.69
weights = st.floats(1e5, 1e9)
tokens = st.floats(1e4, 1e13)


@pytest.mark.parametrize(("size", "seen", "share"), MEASURED)
def test_the_runs_it_was_fitted_to_are_within_its_range(size: float, seen: float, share: float) -> None:
    found = predict_loss(weights=size, tokens=seen, corpus_tokens=1e12, unigram_entropy=ENTROPY)
    assert found.low <= share * ENTROPY <= found.high
    assert found.high - found.low <= 2 * UNCERTAIN * ENTROPY + 1e-9


def test_a_published_base_encoder_is_within_its_range() -> None:
    """RoBERTa, Table 3: BERT BASE at a batch of 256 for 1M steps, perplexity 3.99 (1.38 nats) on 16 GB of text."""
    found = predict_loss(weights=85e6, tokens=131e9, corpus_tokens=4e9, unigram_entropy=7.3)
    assert found.low <= 1.384 <= found.high
    assert found.high - found.low > 1, "so far from what was measured it must say that it does not know"


@given(weights, tokens, tokens)
def test_more_text_is_never_worse(size: float, one: float, other: float) -> None:
    fewer, more = sorted((one, other))
    low, high = (
        predict_loss(weights=size, tokens=seen, corpus_tokens=1e14, unigram_entropy=ENTROPY) for seen in (fewer, more)
    )
    assert high.middle <= low.middle * (1 + 1e-12)
    assert 0 <= high.low <= high.high <= ENTROPY


@given(weights, tokens, st.floats(1e3, 1e13))
def test_repeated_text_is_worth_less_than_new(size: float, seen: float, corpus: float) -> None:
    worth = worth_as_new(seen, corpus)
    assert min(seen, corpus) * 0.999 <= worth <= seen * 1.001


def test_epochs_fade() -> None:
    corpus = 1e6
    assert worth_as_new(AS_NEW * corpus, corpus) > 0.9 * AS_NEW * corpus
    assert worth_as_new(2 * USELESS * corpus, corpus) < 1.1 * worth_as_new(USELESS * corpus, corpus)


def test_no_training_is_guessing() -> None:
    found = predict_loss(weights=1e6, tokens=0, corpus_tokens=1e6, unigram_entropy=ENTROPY)
    assert (found.low, found.high, found.middle) == (ENTROPY, ENTROPY, ENTROPY)


def test_sizes_that_learn_nothing_still_differ() -> None:
    small, large = (
        predict_loss(weights=size, tokens=1e4, corpus_tokens=1e4, unigram_entropy=ENTROPY) for size in (1e5, 1e6)
    )
    assert small.high == large.high == ENTROPY
    assert large.middle < small.middle
