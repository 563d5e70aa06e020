"""Components are found by folder and file name; a dotted name reaches one's own code."""

from __future__ import annotations

import errno
import importlib.util
import resource
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from osbert import components, recipe
from osbert.errors import UserError
from osbert.interop.huggingface import configs
from osbert.objectives import Objective
from osbert.tasks import Task
from osbert.tasks.kinds.classify import Classify
from refusals import refusal


def test_the_folder_is_the_registry() -> None:
    assert {"mlm", "nsp"} <= set(components.names("objectives"))
    found = components.find("objectives", "mlm", base=Objective)
    assert issubclass(found, Objective)
    assert found.__module__ == "osbert.objectives.mlm"


def test_what_is_listed_is_selected_by_its_name_and_all_else_by_its_module() -> None:
    assert components.name_in("tasks", Classify()) == "classify"

    @dataclass(frozen=True, kw_only=True)
    class Own(Classify):
        component = "classify"

    assert Own.__module__ == __name__ and components.name_in("tasks", Own()) == __name__


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


def test_messages_on_unknown_names_say_that_the_lab_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with refusal("unknown-component", "osbert_lab", "pip install osbert"):
        components.find("tasks", "generates", base=Task)
    with refusal("unsupported-model", "t6", "osbert_lab"):
        configs.architecture({"model_type": "t6"}, where="config.json")
    with refusal("unknown-recipe", "t6-small", "osbert_lab"):
        recipe.read("t6-small")


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


def test_a_folder_that_cannot_be_read_is_no_empty_one(capsys: pytest.CaptureFixture[str]) -> None:
    """At the limit of open files, pkgutil finds nothing, and every name would be unknown."""
    components.names("tasks")  # imports the packages, which stay
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
        with pytest.raises(OSError, match="Too many open files") as caught:
            components.names("tasks")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert caught.value.errno == errno.EMFILE


def test_at_the_limit_of_open_files_a_command_names_it() -> None:
    script = (
        "import resource, sys\n"
        "from osbert import cli, components\n"
        "from osbert.commands import finetune\n"
        "components.names('tasks')\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))\n"
        "sys.exit(cli.main(['finetune', 'classify', '--data', 'rows.csv', '--model', 'model', '--out', 'run']))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1 and "ulimit -n" in done.stderr, done.stderr
    assert "unknown-component" not in done.stderr and "Traceback" not in done.stderr
