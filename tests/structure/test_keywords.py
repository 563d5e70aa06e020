"""The keywords of the public functions are their settings: for type checkers, for help and for inspect.signature."""

from __future__ import annotations

import ast
import importlib.util
import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import osbert
from osbert.inference.engine import Engine
from osbert.signatures import SettingsSignature

ROOT = Path(__file__).resolve().parents[2]
WITHOUT_SETTINGS = ("load", "mix_corpora")


def keywords_tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("api_keywords", ROOT / "tools" / "api_keywords.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_keywords_are_the_settings() -> None:
    for path, text in keywords_tool().texts().items():
        written = ast.parse(path.read_text(encoding="utf-8"))
        assert ast.dump(written) == ast.dump(ast.parse(text)), f"{path} is stale: run `make keywords`"


@pytest.mark.parametrize("name", [name for name in osbert.__all__ if not name.startswith("_")])
def test_a_public_function_has_a_signature(name: str) -> None:
    function: Any = getattr(osbert, name)
    if name in WITHOUT_SETTINGS:
        return
    assert isinstance(inspect.signature(function), SettingsSignature)
    parameters = inspect.signature(function).parameters.values()
    assert all(parameter.kind is not inspect.Parameter.VAR_KEYWORD for parameter in parameters)
    document = f"{inspect.signature(function)}"
    assert "Unpack" not in document


def test_a_signature_has_the_types_and_defaults() -> None:
    parameters = inspect.signature(osbert.predict).parameters
    assert [*parameters][:4] == ["run", "file", "out", "watch"]
    assert (parameters["top_k"].annotation, parameters["top_k"].default) == (int, 0)
    assert parameters["trust"].default is False
    bound = inspect.signature(osbert.predict).bind("run", "rows.csv", out="predicted.csv", abstain=0.6)
    assert bound.kwargs == {"out": "predicted.csv", "abstain": 0.6}
    assert inspect.signature(osbert.finetune).parameters["epochs"].default == 3


def test_a_bound_method_has_the_settings_too() -> None:
    parameters = inspect.signature(Engine.explain.__get__(object())).parameters
    assert [*parameters][:4] == ["text", "label", "method", "baseline"]
