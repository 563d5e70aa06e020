"""docs/output.md lists every event with the fields that --json prints, and the exit codes that there are."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from osbert.runs.contract import WorkProgress
from osbert.runs.json_lines import event_name, json_keys

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "output.md").read_text(encoding="utf-8")


@cache
def trees() -> dict[Path, ast.Module]:
    """Return the source by its files: parsed by the worker that runs these tests, not by each that collects them."""
    return {path: ast.parse(path.read_text("utf-8")) for path in sorted((ROOT / "src").rglob("*.py"))}


@cache
def callables() -> dict[str, ast.FunctionDef]:
    nodes = (node for tree in trees().values() for node in ast.walk(tree))
    return {node.name: node for node in nodes if isinstance(node, ast.FunctionDef)}


def listed() -> dict[str, tuple[str, ...]]:
    """Return the fields of each event on the page."""
    table = PAGE.partition("### Events")[2].partition("### Results")[0]
    return {
        name: (*re.findall("`([a-z_]+)`", cells),)
        for name, cells in re.findall(r"^\| `([a-z-]+)` \|([^|]*)\|", table, re.M)
    }


def classes() -> Iterator[tuple[Path, ast.ClassDef]]:
    """Yield the classes of the source with their files."""
    for path, tree in trees().items():
        yield from ((path, node) for node in tree.body if isinstance(node, ast.ClassDef))


def loaded(path: Path, name: str) -> type:
    place = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
    found: type = getattr(importlib.import_module(place), name)
    return found


def event_name_of(name: str) -> str:
    return event_name(type(name, (), {}))


def reports() -> Iterator[str]:
    """Yield the classes of the events that the source reports, as far as its text shows them."""
    for tree in trees().values():
        for scope in ast.walk(tree):
            if not isinstance(scope, ast.FunctionDef) or not (given := [*watched(scope)]):
                continue
            made = {
                ast.unparse(node.targets[0]): node.value for node in ast.walk(scope) if isinstance(node, ast.Assign)
            }
            for argument in given:
                yield from named(made.get(ast.unparse(argument), argument))


def watched(scope: ast.FunctionDef) -> Iterator[ast.expr]:
    """Yield what a function gives to `watch` or `self.watch`."""
    for node in ast.walk(scope):
        match node:
            case ast.Call(ast.Name("watch") | ast.Attribute(ast.Name("self"), "watch"), args=[argument, *_]):
                yield argument


def named(value: ast.expr) -> Iterator[str]:
    """Yield the class that a call makes or, by its annotation, returns; for a WorkProgress that of its own name."""
    if isinstance(value, ast.Call) and ast.unparse(value.func) == WorkProgress.__name__:
        yield from (
            work_progress(keyword.value.value)
            for keyword in value.keywords
            if keyword.arg == "of" and isinstance(keyword.value, ast.Constant)
        )
    elif isinstance(value, ast.Call):
        name = ast.unparse(value.func).rpartition(".")[2]
        returns = callables()[name].returns if name in callables() else value.func
        if re.fullmatch("[A-Z][A-Za-z]+", said := ast.unparse(returns) if returns else ""):
            yield said


def work_progress(of: Any) -> str:
    """Return the name of a class whose event in JSON would be that of a WorkProgress."""
    return "".join(map(str.title, of.split("-"))) + "Progress"


def works_reported() -> Iterator[Any]:
    """Yield the work of each WorkProgress in the source, and of each RowJob, which the machine reports."""
    for tree in trees().values():
        for node in ast.walk(tree):
            match node:
                case ast.Call(ast.Name("WorkProgress"), keywords=keywords):
                    literals = (keyword.value for keyword in keywords if keyword.arg == "of")
                    yield from (one.value for one in literals if isinstance(one, ast.Constant))
                case ast.ClassDef(body=[*statements]) if node.name.endswith("Job"):
                    yield from (
                        one.value.value
                        for one in statements
                        if isinstance(one, ast.Assign)
                        and ast.unparse(one.targets[0]) == "work"
                        and isinstance(one.value, ast.Constant)
                    )


def test_the_page_lists_every_event_that_the_source_reports() -> None:
    works = {event_name_of(work_progress(of)) for of in works_reported()}
    assert {event_name_of(name) for name in reports()} | works <= {*listed()}


def test_the_page_lists_the_fields_of_every_event() -> None:
    kinds = [loaded(path, node.name) for path, node in classes() if event_name_of(node.name) in listed()]
    works = {WorkProgress(of=name, done=0, count=1).event: json_keys(WorkProgress) for name in works_reported()}
    assert works
    assert {event_name(kind): json_keys(kind) for kind in kinds} | works == listed()


def test_every_reported_name_is_an_attribute() -> None:
    for path, node in classes():
        if any(isinstance(one, ast.AnnAssign) and ast.unparse(one.target) == "reported" for one in node.body):
            kind = loaded(path, node.name)
            assert {*json_keys(kind)} <= {*dir(kind), *kind.__dataclass_fields__}, kind
