"""Runs the notebooks of examples/ without Jupyter and stores what their cells show; run by `make notebook`."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def executed(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the cells with the outputs of the code cells, which share their names as in Jupyter; errors are raised."""
    names: dict[str, Any] = {"__name__": "__main__"}
    found, count = [], 0
    for cell in cells:
        if cell["cell_type"] == "code":
            count += 1
            cell = cell | {"execution_count": count, "outputs": _outputs("".join(cell["source"]), names, count)}
        found.append(cell)
    return found


def _outputs(source: str, names: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Run a cell; return what it prints, and its last line's value where that is an expression."""
    tree, value = ast.parse(source), None
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, f"<cell {count}>", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"<cell {count}>", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if text := printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": text.splitlines(keepends=True)})
    if value is not None:
        outputs.append(
            {"output_type": "execute_result", "execution_count": count, "metadata": {}, "data": _forms(value)}
        )
    return outputs


def _forms(value: Any) -> Mapping[str, list[str]]:
    """Return the forms in which a value is shown: as HTML, if it has that form, and as text."""
    forms = {"text/plain": repr(value).splitlines(keepends=True)}
    if hasattr(value, "_repr_html_"):
        forms = {"text/html": value._repr_html_().splitlines(keepends=True)} | forms
    return forms


def main() -> int:
    """Run each notebook in a folder of its own and write it anew."""
    for path in sorted((ROOT / "examples").glob("*.ipynb")):
        notebook = json.loads(path.read_text(encoding="utf-8"))
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            notebook["cells"] = executed(notebook["cells"])
        path.write_text(json.dumps(notebook, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        print(f"{os.path.relpath(path)}: {len(notebook['cells'])} cells")
    return 0


if __name__ == "__main__":
    sys.exit(main())
