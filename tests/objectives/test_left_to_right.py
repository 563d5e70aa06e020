"""Left-to-right language modelling: every piece from those before it, and from nothing else."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
import torch

from osbert.data.batch import collate
from osbert.data.example import Example
from osbert.data.examples import Examples
from osbert.data.noise import Noise
from osbert.data.pack import Packer
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.objectives.left_to_right import LeftToRight
from osbert.objectives.nsp import NextSentence
from osbert.text.document import Document
from osbert.text.tokenizer import Form

SIZES = Architecture(
    layers=2, heads=2, width=16, vocabulary=60_000, length=64, direction="left_to_right", dropout=0.0, deviation=0.5
)


@pytest.fixture(scope="module")
def spans(packer: Packer, text: list[Document]) -> list[Example]:
    return list(packer.spans(text[:20], np.random.default_rng(0)))


def labelled(example: Example, packer: Packer) -> Example:
    return LeftToRight().corrupt(example, packer, np.random.default_rng(0))


def test_every_piece_is_asked_for_once_at_the_token_before_it(packer: Packer, spans: list[Example]) -> None:
    for span in spans:
        example = labelled(span, packer)
        target = example.targets["left_to_right"]
        assert target.index is not None
        assert target.index.tolist() == list(range(len(span) - 2))
        assert target.labels.tolist() == span.ids[1:-1].tolist()
        kept = {field.name for field in fields(Example)} - {"targets"}
        assert all(np.array_equal(getattr(example, name), getattr(span, name)) for name in kept)


def test_in_pairs_the_first_piece_of_b_is_asked_for_at_the_sep_before_it(packer: Packer, text: list[Document]) -> None:
    pairs = NextSentence().examples(text[:9], packer, np.random.default_rng(0))
    assert pairs is not None
    for pair in pairs:
        example = labelled(pair, packer)
        target = example.targets["left_to_right"]
        assert target.index is not None
        asked = np.zeros(len(pair), bool)
        asked[target.index + 1] = True
        assert (asked == ~pair.special).all()
        assert (target.labels == pair.ids[target.index + 1]).all()


def test_no_first_piece_is_asked_for_at_the_end_of_another_text(
    packer: Packer, text: list[Document], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With GPT-2's form nothing is before a text."""
    monkeypatch.setattr(packer.tokenizer, "form", Form(between=(3,), after=(3,)))
    spans = Examples.of(list(packer.spans(text[:9], np.random.default_rng(0))))
    noise = Noise.from_rng(np.random.default_rng(0), len(spans))
    for example in LeftToRight().corrupt_all(spans, packer, noise):
        target = example.targets["left_to_right"]
        assert target.index is not None
        assert target.index.tolist() == list(range(len(example) - 2))
        assert target.labels.tolist() == example.ids[1:-1].tolist()


def test_no_prediction_sees_its_label_or_what_follows(packer: Packer, spans: list[Example]) -> None:
    torch.manual_seed(0)
    backbone = SIZES.build()
    learner = Learner(backbone, {"left_to_right": LeftToRight().head(backbone)}).eval()
    example = labelled(spans[0], packer)

    def scores(ids: np.ndarray) -> torch.Tensor:
        batch = collate([replace(example, ids=ids)])
        return learner.heads["left_to_right"].outputs(learner.backbone(batch), batch)

    before = scores(example.ids)
    for place in (1, 7, len(example) - 2):
        ids = example.ids.copy()
        ids[place] = 5 if ids[place] != 5 else 6
        after = scores(ids)
        assert torch.equal(before[:place], after[:place])  # row i predicts token i + 1: its label is one of the same
        assert not torch.allclose(before[place:], after[place:]) or place == len(example) - 2


@pytest.mark.parametrize(
    ("change", "advice"),
    [({"direction": "both"}, 'model.direction = "left_to_right"'), ({"recurrent": 1}, "model.recurrent = 0")],
)
def test_an_encoder_that_sees_the_answer_is_refused(change: dict[str, object], advice: str) -> None:
    sizes = replace(SIZES, **change)  # type: ignore[arg-type]
    (objection,) = LeftToRight().objections(sizes)
    assert advice in objection
    with pytest.raises(ValueError, match="predicts the next piece"):
        LeftToRight().head(sizes.empty())
