"""The examples run as they stand, and so does the code on the pages."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from osbert import components
from osbert.data.pack import Packer
from osbert.interop.huggingface.folders import write_model
from osbert.interop.tokenizer_files import write_tokenizer
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.objectives import Objective
from osbert.objectives.mlm import MaskedLanguage
from osbert.recipe import dump
from osbert.tasks import Task
from osbert.tasks.kinds.classify import Classify
from osbert.text.tokenizer import SPECIALS, Tokenizer

ROOT = Path(__file__).resolve().parents[2]
TEXT = "red green blue red green blue red green"
TOKENIZER = Tokenizer([*SPECIALS, "red", "green", "blue", "##s"])


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("encoder"), MaskedLanguage())


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = written(tmp_path_factory.mktemp("classifier"), Classify(labels=("warm", "cold")))
    (folder / "recipe.toml").write_text(dump({"task": "classify", "classify": {"labels": ["warm", "cold"]}}))
    return folder


def written(folder: Path, objective: Objective) -> Path:
    torch.manual_seed(0)
    sizes = Architecture(layers=1, heads=1, width=8, length=32, vocabulary=len(TOKENIZER))
    backbone = sizes.build()
    write_tokenizer(TOKENIZER, folder, length=32)
    write_model(
        Learner(backbone, {objective.name: objective.head(backbone)}), folder, labels=getattr(objective, "labels", None)
    )
    return folder


def run(name: str, *arguments: object) -> list[str]:
    command = [sys.executable, str(ROOT / "examples" / f"{name}.py"), *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    (tmp_path / "lines.txt").write_text("red green\nblue blue\n\nred greens\n")
    return tmp_path / "lines.txt"


def test_similar_sentences(encoder: Path, lines: Path) -> None:
    found = run("similar_sentences", encoder, lines)
    assert len(found) == 3
    values = [float(line.split()[0]) for line in found]
    assert values == sorted(values, reverse=True)


def test_unsure_predictions(classifier: Path, lines: Path) -> None:
    found = run("unsure_predictions", classifier, lines)
    assert len(found) == 3
    assert all(line.split()[1] in ("warm", "cold") for line in found)


def test_fill_mask(encoder: Path) -> None:
    (found, other) = run("fill_mask", encoder, "red [MASK] blue [MASK]")
    assert found.count("%") == other.count("%") == 5


def test_watch_masking(encoder: Path) -> None:
    epochs = run("watch_masking", encoder, TEXT)
    assert len(epochs) == 3
    assert all("<" in epoch for epoch in epochs)
    assert len(set(epochs)) > 1


def test_every_example_is_tested() -> None:
    tested = re.findall(r"run\(\"(\w+)\"", Path(__file__).read_text(encoding="utf-8"))
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == set(tested)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that writes a page's first Python block into a package of its own and gives its dotted name."""

    def write(page: str, name: str) -> str:
        code = re.search(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.DOTALL)
        assert code is not None
        package = f"from_{page.replace('-', '_').removesuffix('.md')}"
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
        (tmp_path / package / f"{name}.py").write_text(code[1], encoding="utf-8")
        monkeypatch.syspath_prepend(tmp_path)
        importlib.invalidate_caches()
        return f"{package}.{name}"

    return write


def test_the_objective_on_its_page(module) -> None:
    objective = components.find("objectives", module("add-an-objective.md", "one_run"), base=Objective, trust=True)()
    packer = Packer(tokenizer=TOKENIZER, length=32)
    ids = TOKENIZER.encode(TEXT)
    example = packer.single(ids, ~TOKENIZER.continuation[ids])
    hidden = objective.corrupt(example, packer, np.random.default_rng(0))
    target = hidden.targets["one_run"]
    assert len(target.index) == 2  # 15% of ten tokens
    assert np.all(np.diff(target.index) == 1)
    assert np.all(hidden.ids[target.index] == TOKENIZER.mask)
    assert np.array_equal(example.ids[target.index], target.labels)
    backbone = Architecture(layers=1, heads=1, width=8, length=32, vocabulary=len(TOKENIZER)).build()
    assert objective.head(backbone).form == "mlm"


def test_the_task_on_its_page(module, tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("text\tlabel\ncome to dinner\t0\nbuy now\t1\n")
    (tmp_path / "dev.tsv").write_text("text\tlabel\nbuy dinner\t1\n")
    from osbert.tasks import load

    task = components.find("tasks", module("add-a-task.md", "spam"), base=Task, trust=True)(data=str(tmp_path))
    _, records = load(task, ("train", "dev"))
    assert [record.label for record in records["train"]] == ["wanted", "spam"]
