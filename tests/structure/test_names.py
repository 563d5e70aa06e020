"""Names of classes: each public one is used once, and each is a noun."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src"
IRREGULAR = {
    "Begun",
    "Bound",
    "Broken",
    "Built",
    "Chosen",
    "Cut",
    "Drawn",
    "Driven",
    "Forgotten",
    "Found",
    "Frozen",
    "Given",
    "Grown",
    "Held",
    "Hidden",
    "Kept",
    "Known",
    "Laid",
    "Learnt",
    "Made",
    "Meant",
    "Read",
    "Said",
    "Seen",
    "Shown",
    "Sought",
    "Taken",
    "Taught",
    "Thrown",
    "Told",
    "Torn",
    "Worn",
    "Written",
}
NOUNS = {"Padded": "a module for padded batches: osbert.models.Padded is part of the public API"}
"""Names that end as participles do, with the reason for each."""


def classes() -> dict[str, list[str]]:
    """Return the public classes of all modules, nested ones too, with the files that define them."""
    found = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(path.relative_to(SOURCE)))
    return found


def test_no_two_public_classes_share_a_name() -> None:
    assert not {name: files for name, files in classes().items() if len(files) > 1}


def test_no_class_is_a_participle() -> None:
    participles = {name for name in classes() if (name.endswith("ed") and name != "Speed") or name in IRREGULAR}
    assert participles == set(NOUNS)
