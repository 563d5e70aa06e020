"""A kind of task is known in its own file alone: others read what it declares (tasks/edges.py)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from osbert import components

SOURCE = Path(__file__).resolve().parents[2] / "src"
NAMES = {*components.names("tasks")} - {"spans"}
"""The names of kinds, but for one that is also a field of annotation tools' records."""
REPRODUCED = ("osbert_lab/papers/data.py", "osbert_lab/papers/ensemble.py")
"""What draws and joins the questions of one table of the paper, that on SQuAD, which is about that data set alone."""
FORMS = ("form", "forms")
"""What forms are compared as: the form "span" has the name of a kind."""
TASKS = [str(components.module_name("tasks", name)).replace(".", "/") for name in components.names("tasks")]
"""The files or folders of tasks, also of the lab."""
OUTSIDE = [
    path
    for path in sorted(SOURCE.rglob("*.py"))
    if path.relative_to(SOURCE).parts[1] != "tasks"
    and path.relative_to(SOURCE).as_posix() not in REPRODUCED
    and not path.relative_to(SOURCE).with_suffix("").as_posix().startswith((*TASKS,))
]


def comparisons(tree: ast.AST) -> Iterator[ast.Compare | ast.MatchValue]:
    """Yield the comparisons with the name of a kind or a data set; those of a form are none."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            named = [getattr(side, "attr", getattr(side, "id", "")) for side in sides]
            constants = [one.value for side in sides for one in ast.walk(side) if isinstance(one, ast.Constant)]
            if NAMES & {one for one in constants if isinstance(one, str)} and not {*FORMS} & {*named}:
                yield node
        if isinstance(node, ast.MatchValue) and getattr(node.value, "value", None) in NAMES:
            yield node


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_kind_is_imported_or_compared_with_outside_tasks(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = [
        f"line {node.lineno}: {node.module}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith(("osbert.tasks.kinds", "osbert_lab.data_sets"))
    ]
    assert not imported, "read what the kind declares instead"
    assert not [
        f"line {node.lineno}: {ast.unparse(node)}" for node in comparisons(tree) if isinstance(node, ast.Compare)
    ]
    assert not [node for node in comparisons(tree) if isinstance(node, ast.MatchValue)]
