"""Scripts beside the package name only what it has: they run rarely, so that a moved name would go unnoticed."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted(path for folder in ("benchmarks", "examples", "tools") for path in (ROOT / folder).rglob("*.py"))


@cache
def top_level_names(module: str) -> frozenset[str] | None:
    """Return what a module defines or imports, None if there is no such module."""
    path = ROOT / "src" / module.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if not file.exists():
        return None
    names = {child.stem for child in path.glob("*")} if path.is_dir() else set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names |= {alias.asname or alias.name for alias in aliases}
    return frozenset(names)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_script_imports_names_that_exist(script: Path) -> None:
    missing = []
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        # `osbert` itself finds its public names when they are asked for.
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("osbert.", "osbert_lab")):
            names = top_level_names(node.module)
            for alias in node.names:
                if names is None or alias.name not in names:
                    missing.append(f"line {node.lineno}: {node.module}.{alias.name}")
    assert not missing
