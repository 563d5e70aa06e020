"""Files stay small and are named for what they hold; links and pages lead somewhere; nothing private is in the tree."""

from __future__ import annotations

import ast
import itertools
import re
import subprocess
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CODE = ("src", "tests", "benchmarks", "examples", "tools")
LINES = 600
EXAMPLE_LINES = 60
FUNCTION_LINES = 80
VERB_LINES = 120
COMMAND_LINES = 2_310
NAMELESS = {
    "utils",
    "util",
    "common",
    "helpers",
    "helper",
    "manager",
    "misc",
}  # a function without a home lacks a concept
OPENING = r"(<!doctype html>\n)?(//|/\*|<!--) \S.*"
"""How a file that a browser reads says what it is."""
PRIVATE = re.compile(
    "|".join(("/work" + "/", "/home" + r"/\w", "/root" + "/", "/tmp" + r"/\w+\.md", "/opt" + "/wheels"))
)


@cache
def tracked() -> list[Path]:
    """Return the files that are, or would be, part of the repository."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [path for name in listing.stdout.splitlines() if (path := ROOT / name).is_file()]


def code() -> list[Path]:
    return [path for folder in CODE for path in sorted((ROOT / folder).rglob("*.py"))]


def shown() -> list[Path]:
    """Return the files that a browser reads."""
    return [path for path in sorted((ROOT / "src").rglob("*")) if path.suffix in (".html", ".css", ".js")]


def pages() -> list[Path]:
    return [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


def test_files_are_at_most_600_lines() -> None:
    long = {
        str(path.relative_to(ROOT)): n for path in [*code(), *shown()] if (n := path.read_text().count("\n")) > LINES
    }
    assert not long


def test_verbs_are_options_a_call_and_prints() -> None:
    lines = {path: path.read_text().count("\n") for path in (ROOT / "src").glob("*/commands/**/*.py")}
    assert not {str(path.relative_to(ROOT)): n for path, n in lines.items() if n > VERB_LINES}
    assert sum(lines.values()) <= COMMAND_LINES


def test_functions_are_at_most_80_lines() -> None:
    assert not [
        f"{path.relative_to(ROOT)}:{found.lineno} {found.name}"
        for path in (ROOT / "src").rglob("*.py")
        for found in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(found, (ast.FunctionDef, ast.AsyncFunctionDef))
        and (found.end_lineno or 0) - found.lineno >= FUNCTION_LINES
    ]


def test_examples_are_at_most_60_lines() -> None:
    assert not {
        path.name: n for path in (ROOT / "examples").glob("*.py") if (n := path.read_text().count("\n")) > EXAMPLE_LINES
    }


def test_files_are_named_for_a_concept() -> None:
    assert not [str(path) for path in [*code(), *shown()] if NAMELESS & set(re.split(r"[_.]", path.stem.lower()))]


def test_every_file_of_the_map_says_what_it_is_in_one_phrase() -> None:
    without = [
        str(path.relative_to(ROOT))
        for path in code()
        if path.relative_to(ROOT).parts[0] != "tests"
        if path.stat().st_size and not (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0].strip()
    ]
    without += [str(path.relative_to(ROOT)) for path in shown() if not re.match(OPENING, path.read_text())]
    assert not without


def test_every_public_method_is_described_by_its_class_or_a_base() -> None:
    """An override needs a docstring only where it says more than that of the base."""
    classes: dict[str, list[tuple[str, ast.ClassDef]]] = {}
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, []).append((str(path.relative_to(ROOT)), node))

    def described(node: ast.ClassDef) -> set[str]:
        functions = [part for part in node.body if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef))]
        names = {function.name for function in functions if ast.get_docstring(function)}
        bases = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
        for name in (base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "") for base in bases):
            for _, base in classes.get(name, ()):
                names |= described(base) if base is not node else set()
        return names

    assert not [
        f"{path}:{function.lineno} {node.name}.{function.name}"
        for path, node in itertools.chain(*classes.values())
        if not node.name.startswith("_")
        for function in node.body
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        and not function.name.startswith("_")
        and function.name not in described(node)
        and not any(
            ast.unparse(decorator).endswith((".setter", "overload", "override"))
            for decorator in function.decorator_list
        )
    ]


def test_tests_stand_beside_no_init_file() -> None:
    assert not list((ROOT / "tests").rglob("__init__.py"))


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if re.match(r"https?://|mailto:", target):
            continue
        path, _, anchor = target.partition("#")
        other = (page.parent / path) if path else page
        assert other.exists(), f"{page.name} links to {target}, which is not there"
        if anchor and other.suffix == ".md":
            assert anchor in anchors(other), f"{page.name} links to {target}, which has no such heading"


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_nothing_private_is_in_the_tree() -> None:
    for path in tracked():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        assert not (match := PRIVATE.search(text)), f"{path.relative_to(ROOT)} holds {match[0]}"


def test_files_that_are_no_code_come_with_the_package() -> None:
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    packaged = {path for name, globs in patterns.items() for glob in globs for path in (ROOT / "src" / name).glob(glob)}
    others = {path for path in tracked() if path.is_relative_to(ROOT / "src") and path.suffix != ".py"}
    assert others <= packaged, sorted(others - packaged)
