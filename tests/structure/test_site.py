"""The documentation site has a place for every page, and its reference comes of the code."""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import inspect
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import osbert
import osbert_lab
from osbert.console.verbs import verb_packages

ROOT = Path(__file__).resolve().parents[2]
MADE = ("index", "index.zh", "contributing", "changelog", "map")
"""Pages that tools/site.py makes of files above docs/ and of the code."""


def navigation() -> list[str]:
    """Return the pages of docs/ that mkdocs.yml gives a place; its tags are mkdocs' own, so it is read as text."""
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    return [name for name in re.findall(r": ([\w./-]+)\.md$", nav, re.MULTILINE) if not name.startswith("reference/")]


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "tools" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_has_a_place_in_the_navigation() -> None:
    pages = {str(path.relative_to(ROOT / "docs"))[:-3] for path in (ROOT / "docs").rglob("*.md")}
    without = sorted(pages - {*navigation()})
    assert not without, f"add {', '.join(f'docs/{name}.md' for name in without)} to the nav of mkdocs.yml"


def test_the_navigation_leads_to_pages_once() -> None:
    found = navigation()
    assert len(found) == len({*found})
    assert {name for name in found if not (ROOT / "docs" / f"{name}.md").is_file()} == {*MADE}


def test_every_verb_has_a_page_with_its_options(reference: ModuleType) -> None:
    verbs = [*reference.every_verb()]
    assert {words[0] for words in verbs} == {words[0] for package in verb_packages() for words in package.names()}
    page = reference.verb_page(("tokenizer", "train"))
    assert "osbert tokenizer train" in page
    assert "`--vocabulary` <small>INTEGER, default `30522`</small>" in page


def test_the_reference_has_every_result_and_every_member(reference: ModuleType) -> None:
    """The build of the site looks for each member on its page; it shows those that have a docstring."""
    assert "inherited_members: true" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    classes = {name.rpartition(".")[2]: name for _, name in reference.shown_classes()}
    functions = [getattr(osbert, name) for name in osbert.__all__ if not name.startswith("_")]
    functions += [getattr(osbert_lab, name) for name in osbert_lab.__all__]
    returned = {word for one in functions for word in re.findall(r"\w+", inspect.signature(one).return_annotation)}
    known = {*dir(builtins), "Path", "AnyTokenizer"}  # AnyTokenizer: Tokenizer | FileTokenizer
    assert returned - known <= {*classes}, "add what a public function returns to CLASSES of tools/reference.py"
    assert {"fill", "score"} <= {*reference.members(classes["Engine"])}
    assert "::: osbert_lab.writing.calls.generate\n" in reference.python_page()
    for name in classes.values():
        module, _, attribute = name.rpartition(".")
        kind = getattr(importlib.import_module(module), attribute)
        assert all(inspect.getdoc(getattr(kind, member)) for member in reference.members(name)), name


def test_the_settings_of_every_recipe_are_described(reference: ModuleType) -> None:
    page = reference.recipe_settings_page()
    assert "`learning_rate`" in page
    for path in (ROOT / "src").glob("*/recipes/*.toml"):
        assert f"### Recipe {path.stem}\n" in page
        for table, settings in tomllib.loads(path.read_text(encoding="utf-8")).items():
            if isinstance(settings, dict):
                section = page.partition(f"\n## {table}\n")[2].partition("\n## ")[0]
                assert all(f"`{name}`" in section for name in settings), (path.stem, table)


def test_a_help_text_is_escaped_outside_of_code(reference: ModuleType) -> None:
    assert reference.escaped("a*b, see --out and docs/output.md") == r"a\*b, see `--out` and [output](docs/output.md)"
    assert reference.escaped("`a*b` <x>") == r"`a*b` \<x>"


def test_the_search_works_from_the_disk_without_another_server() -> None:
    """The build of the site looks for scripts of other servers, and for what the search leaves out."""
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert "\n  - offline" in settings
    [script] = re.findall(r"\n  polyfills:\n    - (\S+)", settings)
    assert (ROOT / "docs" / script).is_file()
