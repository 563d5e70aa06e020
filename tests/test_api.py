"""The public names, as a list that changes only on purpose; each has a docstring with an example."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import osbert
from osbert.inference.engine import Engine
from osbert.runs.contract import Run
from osbert.runs.finetune.finetune import FinetuneRun

NAMES = """
osbert.__version__
osbert.build_corpus
osbert.compare
osbert.embed
osbert.evaluate
osbert.evaluate_retrieval
osbert.explain
osbert.export
osbert.extend_tokenizer
osbert.finetune
osbert.load
osbert.mix_corpora
osbert.predict
osbert.pretrain
osbert.score
osbert.search
osbert.train_tokenizer
osbert.errors.Problems
osbert.errors.UnknownSetting
osbert.errors.UserError
osbert.errors.differ_in_one_letter
osbert.errors.nearest
osbert.errors.not_json
osbert.models.Padded
osbert.models.PaddedStates
osbert.sklearn.TextClassifier
osbert.sklearn.TextEmbedder
osbert.sklearn.TextRegressor
"""
"""What users may import. Whoever adds, renames or removes a name changes this list, CHANGELOG.md and docs/python.md."""
LAB = """
osbert_lab.adapt
osbert_lab.analyse
osbert_lab.compare_encoders
osbert_lab.distil
osbert_lab.find_duplicates
osbert_lab.find_topics
osbert_lab.finetune_glue
osbert_lab.generate
osbert_lab.mine
osbert_lab.training_rows
"""
METHODS = {
    Engine: "attention embed embedder evaluate explain explains fill fine_tuned learner masks pieces "
    "predict predict_encoded predict_records remarks score sentence_model states states_of unusable_head writes",
    Run: "facts local_folder model reported",
    FinetuneRun: "errors facts interval local_folder metrics model predict reported tasks",
}
"""The public methods and properties of what the functions return."""
SHOWN = [
    Engine.embed,
    Engine.predict,
    Engine.fill,
    Engine.explain,
    Engine.attention,
    Engine.score,
    Engine.states,
    FinetuneRun,
]
"""What has an example besides the public names."""


def public(module: ModuleType) -> list[str]:
    """Return the names of `__all__`; without it those that the module defines."""
    defined = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
    return sorted(getattr(module, "__all__", [name for name in defined if not name.startswith("_")]))


def named(name: str) -> Any:
    module, _, last = name.rpartition(".")
    return getattr(importlib.import_module(module), last)


def test_the_public_names_are_these() -> None:
    modules = [importlib.import_module(name) for name in ("osbert", "osbert.errors", "osbert.models", "osbert.sklearn")]
    assert [f"{module.__name__}.{name}" for module in modules for name in public(module)] == NAMES.split()


@pytest.mark.lab
def test_the_public_names_of_the_lab_are_these() -> None:
    lab = importlib.import_module("osbert_lab")
    assert [f"osbert_lab.{name}" for name in public(lab)] == LAB.split()
    assert {name.removeprefix("osbert_lab.") for name in LAB.split()} <= {*dir(osbert)}
    typed = re.findall(r"^    (\w+): Callable", Path(osbert.__file__).read_text(encoding="utf-8"), re.MULTILINE)
    assert [f"osbert_lab.{name}" for name in typed] == LAB.split()  # those that type checkers know
    for name in LAB.split():
        assert ">>> " in (inspect.getdoc(named(name)) or "")


@pytest.mark.parametrize("kind", METHODS)
def test_the_public_methods_are_these(kind: type) -> None:
    assert sorted(name for name, _ in inspect.getmembers(kind) if not name.startswith("_")) == METHODS[kind].split()


@pytest.mark.parametrize("name", [name for name in NAMES.split() if not name.endswith("__version__")])
def test_a_public_name_has_an_example(name: str) -> None:
    assert ">>> " in (inspect.getdoc(named(name)) or "")


@pytest.mark.parametrize("shown", SHOWN, ids=lambda shown: shown.__qualname__)
def test_what_the_functions_return_has_an_example(shown: Any) -> None:
    assert ">>> " in (inspect.getdoc(shown) or "")
