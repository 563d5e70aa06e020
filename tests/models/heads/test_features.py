"""Features of a frozen encoder: the layers of Table 7, kept on disk exactly, and never worked out twice."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch

from osbert.data.batch import collate
from osbert.data.example import Example, Target
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.models.families.transformer import Transformer
from osbert.models.forms import Features, feature_layers
from osbert.models.heads.features import WIDTH, FeatureLSTM, FrozenEncoder, stand_on_features
from osbert.models.heads.tagging import TagHead

CHOICES = [choice for choice in get_args(Features) if choice != "none"]


def encoder(layers: int = 6) -> Transformer:
    torch.manual_seed(0)
    return Architecture(layers=layers, heads=2, width=8, vocabulary=30, length=12, deviation=0.5).build()


def examples() -> list[Example]:
    rng = np.random.default_rng(0)
    found = []
    for number, length in enumerate((5, 9, 3, 9)):
        flags = np.zeros(length, np.bool_)
        target = Target(labels=rng.integers(0, 3, size=2), index=np.array([1, 2]))
        found.append(
            Example(
                ids=rng.integers(0, 30, size=length),
                segments=np.zeros(length, np.int8),
                words=flags,
                special=flags,
                record=number,
                targets={"tag": target},
            )
        )
    return found


def test_the_choices_of_table_7() -> None:
    found = {choice: list(feature_layers(choice, 12)) for choice in CHOICES}
    assert found == {
        "last": [12],
        "second-to-last": [11],
        "sum-last-four": [9, 10, 11, 12],
        "concat-last-four": [9, 10, 11, 12],
        "concat-ends": [0, 12],
        "sum-all": [*range(1, 13)],
        "embeddings": [0],
        "mix": [*range(13)],
    }
    assert list(feature_layers("concat-last-four", 2)) == [1, 2]
    assert list(feature_layers("concat-ends", 2)) == [0, 2] and list(feature_layers("concat-ends", 0)) == [0]


@pytest.mark.parametrize("choice", CHOICES)
def test_features_are_the_layers_combined(choice: Features) -> None:
    backbone = encoder().eval()
    numbers = feature_layers(choice, 6)
    batch = collate(examples())
    with torch.no_grad():
        layers = [state for number, state in enumerate(backbone.layers(batch)) if number in numbers]
    states = FrozenEncoder(backbone.train(), numbers)(batch)
    assert backbone.training and not any(weight.requires_grad for weight in backbone.parameters())
    torch.testing.assert_close(states.hidden, torch.cat(layers, dim=1), rtol=1e-3, atol=1e-3)  # in half precision
    above = FeatureLSTM(backbone.architecture, choice).eval()
    if above.weights is None:
        expected = states.hidden
    else:
        with torch.no_grad():
            above.weights.copy_(torch.arange(len(layers)))
            if above.gamma is not None:
                above.gamma.fill_(3.0)
        shares = torch.arange(len(layers)).float().softmax(0) * (3 if choice == "mix" else 1)
        expected = sum(share * part for share, part in zip(shares, states.hidden.chunk(len(layers), dim=1)))
    torch.testing.assert_close(above.combine_layers(states.hidden), expected)
    assert above(states.hidden, batch).shape == (26, WIDTH)
    assert (above.recurrent.lstm.num_layers, above.recurrent.lstm.bidirectional) == (2, True)


def test_what_is_kept_is_the_same_to_the_last_bit_and_costs_no_encoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone = encoder()
    fresh, kept = FrozenEncoder(backbone, range(2, 5)), FrozenEncoder(backbone, range(2, 5))
    path = kept.keep(tmp_path, [*examples(), *examples()])
    assert path.stat().st_size == (5 + 9 + 3 + 9) * 3 * 8 * 2 + 64  # each sequence once, and a hash
    batch = collate(examples())
    expected = fresh(batch).hidden
    calls = []
    monkeypatch.setattr(Transformer, "layers", lambda self, batch: calls.append(batch) or iter(()))
    assert torch.equal(kept(batch).hidden, expected) and not calls
    again = FrozenEncoder(backbone, range(2, 5))
    assert again.keep(tmp_path, examples()) == path  # nothing is worked out anew
    assert torch.equal(again(collate(examples()[1:3])).hidden[:9], expected[:9]) and not calls
    monkeypatch.undo()
    other = FrozenEncoder(backbone, range(1, 4)).keep(tmp_path, examples())
    with torch.no_grad():
        backbone.embeddings.pieces.weight.add_(1)
    assert len({path, other, FrozenEncoder(backbone, range(2, 5)).keep(tmp_path, examples())}) == 3


def test_damaged_vectors_are_worked_out_anew(tmp_path: Path) -> None:
    backbone = encoder()
    content = (path := FrozenEncoder(backbone, range(2, 5)).keep(tmp_path, examples())).read_bytes()
    for damaged in (content[:100] + bytes([content[100] ^ 1]) + content[101:], content[:50], b""):
        path.write_bytes(damaged)
        assert FrozenEncoder(backbone, range(2, 5)).keep(tmp_path, examples()) == path
        assert path.read_bytes() == content


def test_what_is_not_kept_is_encoded(tmp_path: Path) -> None:
    backbone = encoder()
    frozen = FrozenEncoder(backbone, range(6, 7))
    frozen.keep(tmp_path, examples()[:2])
    batch = collate(examples())
    assert torch.equal(frozen(batch).hidden, FrozenEncoder(backbone, range(6, 7))(batch).hidden)


def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("osbert.files.os.fsync", full)
    frozen = FrozenEncoder(encoder(), range(6, 7))
    with pytest.raises(OSError, match="No space left"):
        frozen.keep(tmp_path, examples())
    assert not list(tmp_path.iterdir()) and frozen.vectors is None


def test_only_what_stands_on_the_encoder_learns() -> None:
    backbone = encoder()
    learner = Learner(
        backbone, {"tag": stand_on_features(backbone, "mix", lambda on: TagHead(on, target="tag", labels=3))}
    )
    loss = learner(collate(examples()))["tag"]
    loss.total.backward()
    assert all(weight.grad is None for weight in backbone.parameters())
    assert all(weight.grad is not None for weight in learner.heads.parameters())
    assert learner.heads["tag"].outputs(learner.states(collate(examples())), collate(examples())).shape == (26, 3)
