"""Folders that hold only what was tuned: whole again as they were, and told where a part is damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from osbert.interop.files.weight_files import write_tensors
from osbert.interop.huggingface import folders as huggingface
from osbert.interop.huggingface.names import PIECES
from osbert.interop.tuned_files import BASE, DOWN, TUNED, UP, keep_tuned, read_whole
from osbert.models.adapting.tuning import Factors
from osbert.models.contract import Learner
from refusals import refusal


@pytest.fixture
def tuned(tmp_path: Path, make_learner: Callable[..., Learner]) -> Path:
    for name in ("base", "tuned"):
        huggingface.write_model(make_learner(["classify"]), tmp_path / name)
    keep_tuned(tmp_path / "tuned", tmp_path / "base", {PIECES: Factors(up=torch.ones(60, 2), down=torch.ones(2, 16))})
    return tmp_path / "tuned"


def test_the_change_is_added(tuned: Path) -> None:
    before, after = read_whole(tuned.parent / "base"), read_whole(tuned)
    torch.testing.assert_close(after[PIECES] - before[f"bert.{PIECES}"], torch.full((60, 16), 2.0))
    assert torch.equal(after["classifier.weight"], before["classifier.weight"])


@pytest.mark.parametrize("base", [{}, {"path": 5, "fingerprint": "x"}, {"path": ".", "fingerprint": None}])
def test_a_base_that_is_not_told(tuned: Path, base: dict[str, object]) -> None:
    (tuned / BASE).write_text(json.dumps(base))
    with refusal("damaged-file", "base.json"):
        read_whole(tuned)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        (PIECES, {UP: torch.ones(60, 2)}),
        (PIECES, {UP: torch.ones(60, 2), DOWN: torch.ones(3, 16)}),
        (PIECES, {UP: torch.ones(7, 2), DOWN: torch.ones(2, 16)}),
        ("other.weight", {UP: torch.ones(60, 2), DOWN: torch.ones(2, 16)}),
    ],
)
def test_a_change_that_fits_nothing(tuned: Path, name: str, parts: dict[str, torch.Tensor]) -> None:
    write_tensors({name + part: tensor for part, tensor in parts.items()}, tuned / TUNED)
    with refusal("damaged-file", "tuned.safetensors", name):
        read_whole(tuned)
