"""The score after the last epoch is that of the saved model, with a model large enough for every kept product."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import osbert
from osbert.models.fast import linear
from osbert.models.fast.linear import LARGE
from tiny_runs import write_run

WIDTH = 256
ROWS = [(f"the {word} film {'a ' * number}".strip(), value) for number in range(6) for word, value in
        (("good", 1.0 + number / 6), ("bad", -1.0 - number / 5), ("fine", 0.5 * number), ("poor", -0.3))]  # fmt: skip


@pytest.mark.skipif(not hasattr(torch.ops.mkldnn, "_linear_pointwise"), reason="torch is built without oneDNN")
@pytest.mark.parametrize("few_shot", ["none", "linear-first"])
def test_the_last_score_is_that_of_the_saved_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few_shot: str
) -> None:
    # As on an AMD CPU with AVX-512, where products of few rows keep rearranged weights.
    monkeypatch.setattr(linear, "spares_time", lambda: True)
    encoder = write_run(tmp_path / "encoder", None, width=WIDTH)
    assert WIDTH * WIDTH >= LARGE
    call = {"epochs": 3, "batch": 8, "learning_rate": 1e-3, "precision": "fp32", "keep": "last", "few_shot": few_shot}
    data = {"train": ROWS, "dev": ROWS[:4]}
    run = osbert.finetune("regress", model=encoder, data=data, out=tmp_path / "run", **call)
    saved = osbert.evaluate(run, data=ROWS[:4])
    assert run.metrics == pytest.approx(dict(saved), rel=1e-3)
