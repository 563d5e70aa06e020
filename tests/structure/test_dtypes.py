"""Tensors of floats have a dtype where they are made, so that torch.set_default_dtype changes no result."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "osbert"
FACTORIES = {"empty", "zeros", "ones", "full", "rand", "randn", "linspace", "eye"}


def unnamed(tree: ast.AST, *, layer: bool = False) -> Iterator[int]:
    """Yield the lines of torch's factories without a dtype, apart from layers: `random_numbers.drawing` makes those."""
    for node in ast.iter_child_nodes(tree):
        inside = layer
        if isinstance(node, ast.ClassDef):
            inside = any("Module" in ast.unparse(base) or "Head" in ast.unparse(base) for base in node.bases)
        if isinstance(node, ast.Call) and not layer:
            name = ast.unparse(node.func)
            floats = name == "torch.tensor" and any(
                isinstance(part, ast.Constant) and isinstance(part.value, float) for part in ast.walk(node)
            )
            named = any(keyword.arg in ("dtype", None) for keyword in node.keywords)
            if not named and (floats or name in {f"torch.{factory}" for factory in FACTORIES}):
                yield node.lineno
        yield from unnamed(node, layer=inside)


def test_tensors_of_floats_have_a_dtype() -> None:
    found = {
        str(path.relative_to(SOURCE)): lines
        for path in sorted(SOURCE.rglob("*.py"))
        if (lines := [*unnamed(ast.parse(path.read_text(encoding="utf-8")))])
    }
    assert not found
