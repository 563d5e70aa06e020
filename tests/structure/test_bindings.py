"""Names of variables and functions: none says nothing of what it holds, and functions are verbs."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src"
EMPTY = frozenset(
    ("place", "places", "share", "shares", "said", "told", "asked", "found", "own", "one", "made", "shown", "kept")
    + ("there", "meant", "theirs", "ours")
)
"""Words that say nothing of what a variable or a parameter holds."""
LEFT = {
    "osbert.commands": 1, "osbert.corpus": 1, "osbert.data": 1, "osbert.guarded": 1, "osbert.inference": 1,
    "osbert.interop": 6, "osbert.models": 1, "osbert.runs": 7, "osbert.tasks": 12,
    "osbert.text": 2, "osbert_lab": 2, "osbert_lab.analysis": 1, "osbert_lab.annotation": 20, "osbert_lab.influence": 1,
    "osbert_lab.papers": 1,
    "osbert_lab.writing": 1,
}  # fmt: skip
"""Bindings with such names that are left in a room; a number may only fall. Some are fields of files."""


def bindings(tree: ast.AST) -> Iterator[str]:
    """Yield the names of the variables and parameters that a file binds."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def test_variables_say_what_they_hold() -> None:
    counts: Counter[str] = Counter()
    for path in SOURCE.rglob("*.py"):
        package, *rooms = path.relative_to(SOURCE).with_suffix("").parts
        room = package if rooms == ["__init__"] else f"{package}.{rooms[0]}"
        counts[room] += sum(name in EMPTY for name in bindings(ast.parse(path.read_text(encoding="utf-8"))))
    assert {room: count for room, count in counts.items() if count > LEFT.get(room, 0)} == {}
