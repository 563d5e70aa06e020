"""Recurrent layers: what torch's LSTM gives for each sequence alone, whatever lies beside it in the run."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from osbert.models.architecture import Architecture
from osbert.models.transformer.added_layers import Recurrent


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("lengths", [[7, 5, 5, 1], [2, 9, 4], [6]])
def test_each_sequence_gets_what_it_gets_alone_and_padded(make_batch, layers: int, lengths: list[int]) -> None:
    torch.manual_seed(0)
    top = Recurrent(16, layers, dropout=0.1).eval()
    batch = make_batch(lengths)
    hidden = torch.randn(batch.tokens, 16)
    found = top(hidden, batch).split(list(batch.lengths))
    theirs = torch.nn.LSTM(16, 8, num_layers=layers, bidirectional=True, batch_first=True)
    theirs.load_state_dict(top.lstm.state_dict())
    for state, mixed in zip(hidden.split(list(batch.lengths)), found, strict=True):
        alone, _ = theirs(state[None])
        torch.testing.assert_close(mixed, alone[0])
        padded = torch.nn.functional.pad(state, (0, 0, 0, 3))[None]
        packed = torch.nn.utils.rnn.pack_padded_sequence(padded, [len(state)], batch_first=True)
        unpadded, _ = torch.nn.utils.rnn.pad_packed_sequence(theirs(packed)[0], batch_first=True)
        torch.testing.assert_close(mixed, unpadded[0])


class WrittenNumbers(TorchDispatchMode):
    """Counts the numbers that operations write."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **kwargs or {})
        self.count += sum(value.numel() for value in torch.utils._pytree.tree_leaves(out) if torch.is_tensor(value))
        return out


def test_gradients_are_torchs_at_a_cost_that_grows_with_the_tokens(make_batch) -> None:
    torch.manual_seed(0)
    top, costs = Recurrent(16, 2, dropout=0.0), []
    for length in (40, 80):
        batch = make_batch([length, length - 3])
        top.zero_grad()
        hidden = torch.randn(batch.tokens, 16)
        with WrittenNumbers() as written:
            top(hidden, batch).square().sum().backward()
        costs.append(written.count)
    assert costs[1] < 2.5 * costs[0]  # that of torch's packed sequences is 3.4 times as high
    learnt = [weight.grad.clone() for weight in top.parameters()]
    top.zero_grad()
    sum(top.lstm(part[:, None])[0].square().sum() for part in hidden.split(list(batch.lengths))).backward()
    torch.testing.assert_close(learnt, [weight.grad for weight in top.parameters()])


def test_it_is_on_top_of_the_blocks_and_under_the_pooler(make_backbone, make_batch) -> None:
    plain, backbone, batch = make_backbone(), make_backbone(recurrent=1), make_batch([7, 5, 5])
    plain.load_state_dict(backbone.state_dict(), strict=False)
    states = backbone(batch)
    assert torch.equal(states.hidden, backbone.recurrent(plain(batch).hidden, batch))
    assert torch.equal(states.summary, states.hidden[batch.starts])
    assert torch.equal(list(backbone.layers(batch))[-1], states.hidden)
    assert len(list(backbone.weights(batch))) == 2


def test_it_learns_in_bfloat16_and_drops_in_training_alone(make_backbone, make_batch) -> None:
    backbone, batch = make_backbone(recurrent=1, dropout=0.3).train(), make_batch([7, 5])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = backbone(batch).hidden
    assert hidden.dtype == torch.float32 and (hidden == 0).float().mean() > 0.15
    hidden.sum().backward()
    for name, weight in backbone.recurrent.named_parameters():
        assert weight.grad is not None and weight.grad.abs().sum() > 0, name
    assert (backbone.eval()(batch).hidden != 0).all()


def test_fresh_weights_are_within_torchs_bounds_and_the_seed_decides_them() -> None:
    sizes = Architecture(width=16, heads=2, vocabulary=9, layers=1, length=8, recurrent=1)

    def weights(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return torch.cat([weight.flatten() for weight in sizes.build().recurrent.parameters()])

    drawn = weights(0)
    assert torch.equal(drawn, weights(0)) and not torch.equal(drawn, weights(1))
    assert 0.3 < drawn.abs().max() <= 8**-0.5
