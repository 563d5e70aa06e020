"""Docstrings of methods: each public one has its own, or overrides one that has, and means the same."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src"


def read_classes() -> dict[str, ast.ClassDef]:
    """Return the classes of all modules by name, without those within functions and classes."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SOURCE.rglob("*.py")))
    return {node.name: node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)}


def bases(kind: ast.ClassDef) -> Iterator[str]:
    """Yield the names of the bases, without their modules and type arguments."""
    for base in kind.bases:
        name = base.value if isinstance(base, ast.Subscript) else base
        yield name.attr if isinstance(name, ast.Attribute) else ast.unparse(name)


def is_described(kind: ast.ClassDef, method: str, classes: dict[str, ast.ClassDef]) -> bool:
    """Return whether a method, or one that it overrides, has a docstring."""
    methods = [node for node in kind.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    if any(node.name == method and ast.get_docstring(node) for node in methods):
        return True
    parents = [classes[name] for name in bases(kind) if name in classes and classes[name] is not kind]
    return any(is_described(parent, method, classes) for parent in parents)


def test_a_public_method_is_described_where_it_first_stands() -> None:
    classes = read_classes()
    assert not [
        f"{kind.name}.{node.name}"
        for kind in classes.values()
        if not kind.name.startswith("_")
        for node in kind.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_")
        if not any(ast.unparse(decorator).endswith(".setter") for decorator in node.decorator_list)
        if not is_described(kind, node.name, classes)
    ]
