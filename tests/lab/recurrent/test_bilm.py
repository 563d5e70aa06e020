"""The bidirectional language model beside a plain one, written here word by word and step by step."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from osbert.data.batch import Batch
from osbert.text.tokenizer import SPECIALS, Tokenizer
from osbert_lab.recurrent.bilm import Bilm
from osbert_lab.recurrent.bilm_architecture import BilmArchitecture

WORDS = ["a", "naïve", "film", "of", "extraordinarily", "long", "words"]
TOKENIZER = Tokenizer([*SPECIALS, *WORDS], lowercase=False)
SIZES = BilmArchitecture(
    width=12, cells=9, characters=5, filters=64, spelling=12, vocabulary=len(TOKENIZER), length=16, dropout=0.0
)
CLOSE = {"atol": 1e-5, "rtol": 1e-5}


@pytest.fixture(scope="module")
def model() -> Bilm:
    torch.manual_seed(0)
    made = SIZES.replace(clip=0.1).build().eval()
    made.read_vocabulary(TOKENIZER)
    with torch.no_grad():  # large enough to meet the limits
        for parameter in (made.words.projection.weight, *made.blocks.parameters()):
            parameter *= 5
    return made


@pytest.fixture(scope="module")
def batch(make_batch: Callable[..., Batch]) -> Batch:
    made = make_batch([9, 4, 4, 1])
    return made.replace_columns(ids=made.ids % len(TOKENIZER))


def unlimited(model: Bilm) -> Bilm:
    """Return a model of the same weights whose cells have no limits."""
    made = Bilm(model.architecture.replace(clip=0.0)).eval()
    made.load_state_dict(model.state_dict())
    return made


def plain_word(model: Bilm, piece: str) -> Tensor:
    """Return the vector (D / 2) of a word, by bilm-tf's steps."""
    letters = {"[CLS]": [256], "[SEP]": [257]}.get(piece, [*piece.encode()])[:10]
    ids = [258, *letters, 259] + [260] * 12
    rows = model.words.rows.weight[ids[:12]]  # (longest, characters)
    found = []
    for width, convolution in enumerate(model.words.convolutions, start=1):
        windows = [rows[start : start + width].T for start in range(12 - width + 1)]
        scores = [(convolution.weight * window).sum((1, 2)) + convolution.bias for window in windows]
        found.append(torch.stack(scores).relu().max(0).values)
    values = torch.cat(found)
    for highway in model.words.highways:
        gate = torch.sigmoid(highway.carry.weight @ values + highway.carry.bias)
        new = torch.relu(highway.transform.weight @ values + highway.transform.bias)
        values = gate * new + (1 - gate) * values
    return model.words.projection.weight @ values + model.words.projection.bias


def plain_lstm(lstm: torch.nn.LSTM, words: list[Tensor], clip: float) -> list[Tensor]:
    """Return the states of a sequence, one step after the other; `clip` 0 for no limits."""
    limit = clip or float("inf")
    state, cell, found = torch.zeros(lstm.proj_size), torch.zeros(lstm.hidden_size), []
    for word in words:
        parts = lstm.weight_ih_l0 @ word + lstm.bias_ih_l0 + lstm.weight_hh_l0 @ state + lstm.bias_hh_l0
        into, forget, new, out = parts.view(4, -1)
        cell = torch.sigmoid(forget) * cell + torch.sigmoid(into) * torch.tanh(new)
        cell = torch.clip(cell, -limit, limit)
        state = torch.clip(lstm.weight_hr_l0 @ (torch.sigmoid(out) * torch.tanh(cell)), -limit, limit)
        found.append(state)
    return found


def plain_layers(model: Bilm, ids: list[int]) -> list[Tensor]:
    """Return the three layers (T, D) of a sequence."""
    words = [plain_word(model, piece) for piece in TOKENIZER.tokens(ids)]
    left, right = words, words
    found = [torch.stack([torch.cat(both) for both in zip(left, right)])]
    for number, block in enumerate(model.blocks):
        new_left = plain_lstm(block.forth.lstm, left, model.architecture.clip)
        new_right = plain_lstm(block.back.lstm, right[::-1], model.architecture.clip)[::-1]
        if number:
            new_left = [new + old for new, old in zip(new_left, left)]
            new_right = [new + old for new, old in zip(new_right, right)]
        left, right = new_left, new_right
        found.append(torch.stack([torch.cat(both) for both in zip(left, right)]))
    return found


@pytest.mark.parametrize("limited", [True, False])
def test_its_layers_are_those_of_a_plain_model(model: Bilm, batch: Batch, *, limited: bool) -> None:
    chosen = model if limited else unlimited(model)
    with torch.no_grad():
        layers = list(chosen.layers(batch))
        plain = [plain_layers(chosen, ids.tolist()) for ids in batch.ids.split(list(batch.lengths))]
    for found, parts in zip(layers, zip(*plain, strict=True), strict=True):
        torch.testing.assert_close(found, torch.cat(parts), **CLOSE)


def test_limits_change_states_only_if_they_are_met(model: Bilm, batch: Batch) -> None:
    free, far = unlimited(model), unlimited(model)
    for block in far.blocks:
        block.forth.clip = block.back.clip = 1e9
    with torch.no_grad():
        none, wide, narrow = (one(batch).hidden for one in (free, far, model))
    torch.testing.assert_close(none, wide, **CLOSE)
    assert (none - narrow).abs().max() > 0.01


def test_gradients_of_both_ways_to_step_are_equal(model: Bilm, batch: Batch) -> None:
    free, far = unlimited(model), unlimited(model)
    for block in far.blocks:
        block.forth.clip = block.back.clip = 1e9
    for one in (free, far):
        one(batch).hidden.square().sum().backward()
    for (name, first), second in zip(free.named_parameters(), far.parameters(), strict=True):
        assert first.grad is not None and second.grad is not None, name
        torch.testing.assert_close(first.grad, second.grad, **CLOSE)


def test_each_half_of_a_state_depends_on_one_side_and_words_on_themselves(model: Bilm, batch: Batch) -> None:
    place = 5  # in the first sequence, of 9 tokens
    ids = batch.ids.clone()
    ids[place] = (ids[place] + 1) % len(TOKENIZER)
    with torch.no_grad():
        before, after = (list(model.layers(one)) for one in (batch, batch.replace_columns(ids=ids)))
    moved = [~torch.isclose(one, other, atol=1e-7).all(1) for one, other in zip(before, after)]
    assert moved[0].nonzero().flatten().tolist() == [place]
    side = model.architecture.side
    for one, other in zip(before[1:], after[1:]):
        same = torch.isclose(one, other, atol=1e-7)
        assert same[:place, :side].all() and same[place + 1 :, side:].all()
        assert not same[place:9, :side].all(1).any() and not same[: place + 1, side:].all(1).any()


def test_the_summary_has_read_the_text_from_both_sides(model: Bilm, batch: Batch) -> None:
    with torch.no_grad():
        states = model(batch)
    side, start = model.architecture.side, 0
    for length, summary in zip(batch.lengths, states.summary):
        own = states.hidden[start : start + length]
        assert torch.equal(summary, torch.cat([own[-1, :side], own[0, side:]]))
        start += length


def test_a_word_is_read_once_however_often_it_stands_in_a_batch(model: Bilm, batch: Batch) -> None:
    read = []
    hook = model.words.projection.register_forward_hook(lambda module, given, found: read.append(len(found)))
    with torch.no_grad():
        model(batch)
    hook.remove()
    assert read == [len(batch.ids.unique())] and read[0] < batch.tokens


def test_settings_that_cannot_be_are_all_named() -> None:
    bad = SIZES.replace(width=13, filters=8, clip=-1.0)
    problems = bad.problems()
    assert len(problems) == 3 and all(name in "; ".join(problems) for name in ("width", "filters", "clip"))
    assert SIZES.replace(cells=6).problems() and not SIZES.problems()
    half = BilmArchitecture().resize(2, 512)
    assert (half.cells, half.filters, sum(half.counts)) == (2048, 1024, 1024)
