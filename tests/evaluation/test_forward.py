"""Outputs come in the order given, whatever the batches, and the model is left as it was."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from osbert.data.batch import Batch, collate
from osbert.data.example import Example
from osbert.evaluation.forward import batches, evaluating, outputs
from osbert.models.architecture import Architecture
from osbert.models.contract import Head, Learner, States
from osbert.models.heads.predictions import SequenceHead


def example(length: int, seed: int = 0) -> Example:
    ids = np.random.default_rng(seed + length).integers(0, 20, length, dtype=np.int32)
    plain = np.zeros(length, np.bool_)
    return Example(ids=ids, segments=np.zeros(length, np.int8), words=plain, special=plain, record=99)


class TokenHead(Head):
    """The token states themselves, one row a token."""

    def outputs(self, states: States, batch: Batch) -> torch.Tensor:
        return states.hidden


@pytest.fixture(scope="module")
def learner() -> Learner:
    torch.manual_seed(0)
    backbone = Architecture(layers=1, heads=2, width=8, vocabulary=20, length=16).build()
    head = SequenceHead(backbone, target="sort", labels=3, dropout=0.5)
    return Learner(backbone, {"sort": head, "tokens": TokenHead()})


@settings(max_examples=20)
@given(lengths=st.lists(st.integers(1, 16), max_size=12), tokens=st.integers(1, 40))
def test_outputs_equal_one_example_at_a_time(learner: Learner, lengths: list[int], tokens: int) -> None:
    examples = [example(length, place) for place, length in enumerate(lengths)]
    found = outputs(learner, "sort", examples, tokens=tokens)
    per_token = outputs(learner, "tokens", examples, tokens=tokens, per_token=True)
    for one, row, rows in zip(examples, found, per_token, strict=True):
        with evaluating(learner):
            batch = collate([one])
            states = learner.backbone(batch)
            expected = learner.heads["sort"].outputs(states, batch)[0]
        np.testing.assert_allclose(row, expected.numpy(), atol=1e-5)
        np.testing.assert_allclose(rows, states.hidden.numpy(), atol=1e-5)


@given(lengths=st.lists(st.integers(1, 16), max_size=30), tokens=st.integers(1, 40))
def test_batches_keep_to_their_tokens_and_hold_everything_once(lengths: list[int], tokens: int) -> None:
    made = list(batches([example(length) for length in lengths], tokens=tokens))
    assert all(batch.tokens <= tokens or len(batch.lengths) == 1 for batch in made)
    places = [place for batch in made for place in batch.records.tolist()]
    assert sorted(places) == list(range(len(lengths)))
    assert [lengths[place] for place in places] == [length for batch in made for length in batch.lengths]


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_comes_back_even_after_an_error(learner: Learner, training: bool) -> None:
    learner.train(training)
    with pytest.raises(RuntimeError, match="stop"), evaluating(learner):
        assert not learner.training and not torch.is_grad_enabled()
        raise RuntimeError("stop")
    assert learner.training is training and torch.is_grad_enabled()
