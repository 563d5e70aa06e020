"""The examples in docstrings run as they stand, each in a folder of its own; so do those of some pages of docs/."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import re
import shutil
from pathlib import Path
from types import ModuleType

import pytest
import torch

import osbert
from api_folder import write_api_folder

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
FILES = [path for path in sorted(SOURCE.rglob("*.py")) if ">>> " in path.read_text(encoding="utf-8")]
PAGES = {"python.md": 30, "reranking.md": 5, "read-your-model.md": 10, "coming-from-transformers.md": 15}
"""Pages of docs/ whose examples run, and how many they have at least."""
NEEDED = {
    "coming-from-transformers.md": "transformers",
    "osbert.sklearn": "sklearn",
    "osbert.server.access": "fastapi",
    "osbert.server.intake": "fastapi",
}
"""The libraries without which the examples of a module or a page cannot run; other pages need scikit-learn."""


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


def needs(name: str, library: str) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"the examples of {name} need {library}, of an extra")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_api_folder(tmp_path_factory.mktemp("api"))


def run_in_copy(example: doctest.DocTest, folder: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = re.findall(r'out="(\w+)"', "".join(one.source for one in example.examples))
    shutil.copytree(folder, place, ignore=shutil.ignore_patterns(*made))
    monkeypatch.chdir(place)
    torch.manual_seed(0)  # some draw fresh weights, whatever ran before them
    report: list[str] = []
    assert doctest.DocTestRunner().run(example, out=report.append).failed == 0, "".join(report)


def examples_of(module: ModuleType) -> list[doctest.DocTest]:
    tests = doctest.DocTestFinder(exclude_empty=True).find(module, extraglobs={"osbert": osbert})
    return [test for test in tests if test.examples]


@pytest.mark.parametrize("name", [module_name(path) for path in FILES])
def test_the_examples_of_a_module_run(name: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name in NEEDED:
        needs(name, NEEDED[name])
    for number, example in enumerate(examples_of(importlib.import_module(name))):
        if example.name == "osbert.export":
            needs(example.name, "onnxruntime")
        run_in_copy(example, folder, tmp_path / str(number), monkeypatch)


@pytest.mark.lab
@pytest.mark.parametrize(("page", "least"), [*PAGES.items()])
def test_the_examples_of_a_page_run(
    page: str, least: int, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs(page, NEEDED.get(page, "sklearn"))
    text = (ROOT / "docs" / page).read_text(encoding="utf-8").replace("```", "")
    example = doctest.DocTestParser().get_doctest(text, {}, page, f"docs/{page}", 0)
    assert len(example.examples) > least
    run_in_copy(example, folder, tmp_path / "page", monkeypatch)
