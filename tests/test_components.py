"""Components are found by folder and file name; a dotted name reaches one's own code."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from osbert import components
from osbert.errors import UserError
from osbert.objectives import Objective
from refusals import refusal


def test_the_folder_is_the_registry() -> None:
    assert {"mlm", "nsp"} <= set(components.names("objectives"))
    found = components.find("objectives", "mlm", base=Objective)
    assert issubclass(found, Objective)
    assert found.__module__ == "osbert.objectives.mlm"


def test_an_unknown_name_gets_the_nearest() -> None:
    with refusal("unknown-component", "mln", "mlm"):
        components.find("objectives", "mln", base=Objective)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Write a module of one's own and return its dotted name."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_pieces").mkdir()
    (tmp_path / "own_pieces" / "__init__.py").touch()

    def write(name: str, text: str) -> str:
        (tmp_path / "own_pieces" / f"{name}.py").write_text(text)
        return f"own_pieces.{name}"

    yield write
    for name in [name for name in sys.modules if name.startswith("own_pieces")]:
        del sys.modules[name]


HEAD = "from osbert.objectives import Objective\n"


def test_a_dotted_name_reaches_ones_own_code(module) -> None:
    name = module("good", f"{HEAD}class Mine(Objective): pass\nclass _Hidden(Objective): pass\n")
    assert components.find("objectives", name, base=Objective, trust=True).__name__ == "Mine"


def test_what_is_imported_into_a_module_does_not_count(module) -> None:
    name = module("both", f"{HEAD}from osbert.objectives.mlm import *\nclass Mine(Objective): pass\n")
    assert components.find("objectives", name, base=Objective, trust=True).__name__ == "Mine"


@pytest.mark.parametrize(("text", "count"), [("", 0), ("class A(Objective): pass\nclass B(Objective): pass\n", 2)])
def test_a_file_defines_exactly_one(module, text, count) -> None:
    name = module(f"with{count}", HEAD + text)
    with refusal("invalid-component", count):
        components.find("objectives", name, base=Objective, trust=True)


def test_a_module_that_is_not_there() -> None:
    with refusal("component-not-importable", "nowhere"):
        components.find("objectives", "nowhere.at_all", base=Objective, trust=True)


def test_a_module_missing_in_its_package(module) -> None:
    module("good", "")
    with refusal("component-not-importable", "own_pieces.bad"):
        components.find("objectives", "own_pieces.bad", base=Objective, trust=True)


def test_what_a_module_itself_fails_to_import_is_not_hidden(module) -> None:
    name = module("broken", "import something_that_is_not_there\n")
    with pytest.raises(ModuleNotFoundError, match="something_that_is_not_there"):
        components.find("objectives", name, base=Objective, trust=True)


def test_a_dotted_name_is_not_imported_without_trust(module) -> None:
    name = module("good", f"{HEAD}class Mine(Objective): pass\n")
    with refusal("untrusted-code", name, "--trust"):
        components.find("objectives", name, base=Objective)
    assert name not in sys.modules


@pytest.mark.parametrize("name", ["", "mlm.", ".mlm"])
def test_names_that_are_none(name) -> None:
    with pytest.raises(UserError):
        components.find("objectives", name, base=Objective)
