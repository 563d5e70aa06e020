"""Rows whose labels the others contradict are left out with --robust and listed, and the same after a stop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import osbert
from osbert.interop.files.weight_files import read_file
from osbert.runs.events import Epoch
from osbert_lab.doubted_labels.cross_fitting import cross_fit
from tiny_runs import write_run

QUICK: dict[str, Any] = {"epochs": 2, "batch": 8, "precision": "fp32", "device": "cpu", "few_shot": "none"}
WRONG = (11, 40, 73)


def rows(*, pairs: bool = False) -> list[tuple[Any, ...]]:
    words = [("good", "pos"), ("bad", "neg")] * 60
    made = []
    for number, (word, label) in enumerate(words):
        text = f"the {word} film{' a' * (number % 3)}"
        other = {"pos": "neg", "neg": "pos"}[label]
        made.append((text, *(["the film"] if pairs else []), other if number in WRONG else label))
    return made


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("encoder") / "encoder", None, deviation=0.3)


def finetune(encoder: Path, out: Path, *, pairs: bool = False, **more: Any) -> Any:
    made = rows(pairs=pairs)
    return osbert.finetune("classify", model=encoder, data=made, dev=made[:12], out=out, **QUICK, **more)


@pytest.mark.parametrize("pairs", [False, True])
def test_wrong_labels_are_left_out_and_listed(encoder: Path, tmp_path: Path, pairs: bool) -> None:
    said: list[str] = []
    run = finetune(encoder, tmp_path / "run", pairs=pairs, robust=0.7, watch=lambda event: said.append(str(event)))
    [line] = [line for line in said if "left out" in line]
    # A row is confidently of the other label only if that is likelier for it than for the mean row of that label.
    assert line.startswith("classify: 2 of 120 training rows are left out")
    remarks = (run.folder / "remarks.txt").read_text().splitlines()
    listed = [remark for remark in remarks if "left out" in remark]
    assert len(listed) == 2
    assert {remark.partition(":")[0] for remark in listed} <= {f"train, row {number + 1}" for number in WRONG}
    assert all("is probably wrong: by the other rows '" in remark for remark in listed)


def test_nothing_is_left_out_unless_asked(encoder: Path, tmp_path: Path) -> None:
    run = finetune(encoder, tmp_path / "run")
    remarks = run.folder / "remarks.txt"
    assert not remarks.exists() or "left out" not in remarks.read_text()
    few = [("good film", "pos"), ("bad film", "neg"), ("the good film", "neg"), ("the bad film", "neg")]
    said: list[str] = []
    osbert.finetune(
        "classify", model=encoder, data=few, dev=few, out=tmp_path / "few", robust=0.7, **QUICK,
        watch=lambda event: said.append(str(event)),
    )  # fmt: skip
    assert not any("left out" in line for line in said)


def test_a_stopped_run_goes_on_with_the_same_rows(encoder: Path, tmp_path: Path) -> None:
    def stop(event: object) -> None:
        if isinstance(event, Epoch):
            raise KeyboardInterrupt

    whole = finetune(encoder, tmp_path / "whole", robust=0.7)
    with pytest.raises(KeyboardInterrupt):
        finetune(encoder, tmp_path / "stopped", robust=0.7, watch=stop)
    finetune(encoder, tmp_path / "stopped", robust=0.7)
    one, other = (read_file(path / "model.safetensors") for path in (whole.folder, tmp_path / "stopped"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_each_row_is_predicted_by_the_other_folds() -> None:
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, 60)
    features = torch.from_numpy(np.eye(3)[labels] + generator.normal(0, 0.1, (60, 3))).float()
    folds = np.arange(60) % 5
    before = cross_fit(features, labels, 3, folds)
    assert (before.argmax(axis=1) == labels).mean() > 0.95
    changed = labels.copy()
    changed[folds == 2] = 0  # the labels of a fold do not change its own predictions
    np.testing.assert_array_equal(cross_fit(features, changed, 3, folds)[folds == 2], before[folds == 2])
