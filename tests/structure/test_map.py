"""The pages tell the truth: the code map and the tree have every file and folder; commands that pages show exist."""

from __future__ import annotations

import importlib.util
import inspect
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import cyclopts
import pytest

from osbert import cli
from osbert.console.output import OPTIONS
from osbert.recipe import recipe_names

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "README.zh.md", *sorted((ROOT / "docs").rglob("*.md"))]
READMES = PAGES[:2]


def _map_tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("code_map", ROOT / "tools" / "code_map.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_code_map_has_a_line_with_a_phrase_for_every_file() -> None:
    tool = _map_tool()
    text = tool.page(ROOT)
    for folder in tool.FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            if path.name[0] not in "_.":
                assert re.search(rf"^ *{re.escape(path.name)} +\S", text, re.MULTILINE), path


@pytest.mark.parametrize("readme", READMES, ids=lambda page: page.name)
def test_the_readmes_are_short_and_begin_with_code(readme: Path) -> None:
    text = readme.read_text(encoding="utf-8")
    assert len(text.encode()) <= 9_216
    assert len(text.partition("```")[0].split()) < 80
    assert text.count("](") <= 20
    assert all(f"make {target}" in text for target in ("demo", "test"))


def test_the_tree_has_every_folder_of_the_code_and_no_other() -> None:
    tree = READMES[0].read_text(encoding="utf-8").partition("## The code\n\n```text\n")[2].partition("```")[0]
    folders = re.findall(r"^ *([\w/]+)/ +\S", tree, re.MULTILINE)
    packages = {path.parent.name for path in (ROOT / "src" / "osbert").glob("*/__init__.py")}
    data = {path.parent.name for path in (ROOT / "src" / "osbert").glob("*/*.toml")}
    assert {*folders} == {*_map_tool().FOLDERS} | packages | data | {"tests"}


def test_the_page_of_recipes_names_every_recipe() -> None:
    text = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    assert [name for name in recipe_names() if f"`{name}`" not in text] == []


def commands(page: Path) -> Iterator[list[str]]:
    """Yield the words of every `osbert ...` line in the page's shell blocks, continued lines joined.

    In a console block the lines that begin with "$ " are commands, the others are output.
    """
    text = page.read_text(encoding="utf-8")
    for kind, block in re.findall(r"```(sh|bash|shell|console)\n(.*?)```", text, re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            if kind == "console" and not line.startswith("$ "):
                continue
            words = shlex.split(line.removeprefix("$ "), comments=True)
            if words and words[0].rpartition("/")[2] == "osbert":
                yield words[1:]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_in_the_pages_exist(page: Path) -> None:
    for words in commands(page):
        app = cli.application(words)  # a subverb is there if its verb is called
        node, rest = app, words
        while rest and not rest[0].startswith("-") and rest[0] in list(node):
            node, rest = node[rest[0]], rest[1:]
        if node is app:
            assert set(words) <= {"--help", "--version"}, f"no such verb: osbert {' '.join(words)}"
            continue
        assert node.default_command is not None, f"osbert {' '.join(words)} stops before a verb"
        known = options(node)
        for word in rest:
            if word.startswith("--") and known is not None:
                assert word.partition("=")[0] in known, f"osbert {' '.join(words)}: no option {word}"


def options(verb: cyclopts.App) -> set[str] | None:
    """Return the options of a command; None when it takes any recipe setting, which its own tests check."""
    parameters = inspect.signature(verb.default_command).parameters.values()
    if any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters):
        return None
    own = {name for argument in verb.assemble_argument_collection() for name in argument.names}
    return own | {"--help", *(f"--{name}" for name in OPTIONS)}


@pytest.mark.parametrize("page", READMES, ids=lambda page: page.name)
def test_the_output_shown_is_there_and_the_same_in_both_languages(page: Path) -> None:
    blocks = [re.findall(r"```console\n(.*?)```", readme.read_text(encoding="utf-8"), re.DOTALL) for readme in READMES]
    assert blocks[0] == blocks[1] != []
    for block in re.findall(r"```console\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        assert [line for line in block.splitlines() if not line.startswith("$ ")], f"no output is shown below {block}"
