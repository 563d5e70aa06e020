"""The wrapper of the page on vectors, by which the package mteb measures a model, on a task that is made here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import osbert

PAGE = Path(__file__).parents[2] / "docs" / "vectors.md"


@pytest.mark.filterwarnings("ignore")
def test_mteb_measures_a_model(runs: dict[str, Path]) -> None:
    mteb = pytest.importorskip("mteb", reason="needs the package mteb")
    datasets = pytest.importorskip("datasets")
    (source,) = re.findall(r"```python\n(import numpy[^`]*class OsbertModel.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(source, names)
    model = names["OsbertModel"](runs["encoder"])
    rows = [{"text": text, "label": label} for text, label in (("a good film", 0), ("bad", 1))] * 9
    task = mteb.get_task("Banking77Classification")
    task.dataset = datasets.DatasetDict(train=datasets.Dataset.from_list(rows), test=datasets.Dataset.from_list(rows))
    task.data_loaded, task.n_experiments = True, 2
    (result,) = mteb.evaluate(model, task, cache=None, co2_tracker=False).task_results
    assert result.scores["test"][0]["accuracy"] == 1
    vectors = model.encode([{"text": ["a good film", "bad"]}])
    np.testing.assert_array_equal(vectors, osbert.load(runs["encoder"]).embed(["a good film", "bad"], normalize=True))
    np.testing.assert_allclose(np.diag(model.similarity(vectors, vectors)), model.similarity_pairwise(vectors, vectors))
