"""Query blocks: the same states as all queries at once, and tensors that grow with the length, not with its square."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from osbert.data.batch import Batch
from osbert.models.architecture import Architecture
from osbert.models.families.transformer import Transformer
from osbert.models.memory import Past
from osbert.models.transformer import layout
from osbert.models.transformer.kernels import fastest, reference

SMALL: dict[str, Any] = {"layers": 2, "heads": 2, "width": 16, "vocabulary": 50, "deviation": 0.3, "dropout": 0.0}
KINDS: dict[str, dict[str, Any]] = {
    "deberta": {"positions": "disentangled", "buckets": 4, "farthest": 7},
    "deberta-own-projections": {"positions": "disentangled", "buckets": 0, "farthest": 3, "distance_projections": True},
    "xlnet": {"positions": "distances", "farthest": 9, "segment_scores": True, "segments": 0},
    "transformer-xl": {"positions": "distances", "farthest": 100, "segments": 0, "direction": "left_to_right"},
    "t5": {"positions": "none", "distance_scores": 8},
    "mpnet": {"positions": "learned", "distance_scores": 8, "window": 3, "global_every": 2},
}
FEW = 5
"""Most tokens of a sequence that is not long, in these tests."""


def backbone_of(kind: str) -> Transformer:
    torch.manual_seed(0)
    backbone = Architecture(**SMALL | KINDS[kind], attention_dropout=0.0).build().eval()
    backbone.initialise()
    return backbone


@pytest.fixture(scope="module", autouse=True)
def short_sequences() -> Any:
    """Make a sequence of a few tokens long, and blocks so small that it has several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "LONG", FEW)
        patch.setattr(layout, "SCORES", 60)
        yield


@settings(deadline=None, max_examples=60)
@given(
    kind=st.sampled_from(sorted(KINDS)),
    lengths=st.lists(st.integers(1, 14), min_size=1, max_size=6),
    order=st.sampled_from(["none", "causal", "random"]),
    gaps=st.booleans(),
    unseen=st.booleans(),
    read=st.booleans(),
    kernel=st.sampled_from([fastest, reference]),
)
def test_blocks_give_what_all_queries_at_once_give(
    make_batch, kind, lengths, order, gaps, unseen, read, kernel
) -> None:
    """With gradients all queries are computed at once."""
    backbone, batch = backbone_of(kind), make_batch(lengths, order=order, masked=1)
    if gaps:
        batch = replace(batch, positions=batch.positions * 2 % 11)
    if unseen:
        batch = replace(batch, unseen=torch.rand(batch.tokens) < 0.3)
    for block in backbone.blocks:
        block.attention.kernel = kernel
    at = batch.read if read else None
    expected = backbone(batch, at).hidden.detach()
    with torch.no_grad():
        found = backbone(batch, at).hidden
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize("kind", ["transformer-xl", "xlnet"])
def test_also_after_remembered_tokens(make_batch, kind: str) -> None:
    backbone, batches = backbone_of(kind), [make_batch([11, 3, 8]), make_batch([4, 12, 2])]

    def states() -> list[torch.Tensor]:
        past, found = Past(layers=[torch.zeros(0, SMALL["width"])] * SMALL["layers"], lengths=(0, 0, 0), most=6), []
        for batch in batches:
            own, past = backbone.forward_with_past(batch, past)
            found.append(own.hidden.detach())
        return found

    expected = states()
    with torch.no_grad():
        for one, other in zip(states(), expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_weights_are_those_of_each_query_and_key(make_batch, kind: str) -> None:
    """They are whole by their nature, with and without gradients."""
    backbone, batch = backbone_of(kind), make_batch([12, 3])
    expected = [one.detach() for layer in backbone.weights(batch) for one in layer]
    with torch.no_grad():
        found = [one for layer in backbone.weights(batch) for one in layer]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


class Largest(TorchDispatchMode):
    """Notes the largest storage that an operation returns, in bytes."""

    def __init__(self) -> None:
        """Begin at 0."""
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, function: Any, kinds: Any, given: Any = (), named: Any = None) -> Any:
        """Run an operation."""
        found = function(*given, **(named or {}))
        for one in found if isinstance(found, tuple | list) else [found]:
            if isinstance(one, torch.Tensor):
                self.bytes = max(self.bytes, one.untyped_storage().nbytes())
        return found


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_no_tensor_grows_with_the_square_of_the_length(make_batch, monkeypatch, kind: str) -> None:
    monkeypatch.setattr(layout, "SCORES", 2**12)
    backbone = backbone_of(kind)

    def largest(length: int) -> int:
        batch: Batch = make_batch([length])
        with torch.no_grad(), Largest() as seen:
            backbone(batch)
        return seen.bytes

    # The learned positions of the tests end at 512.
    short, long = largest(240), largest(480)
    assert long <= 2.2 * short
    assert long < 480**2
