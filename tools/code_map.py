"""Prints the code map, one line per file, from the first lines of the docstrings; tools/site.py makes a page of it."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("src/osbert", "src/osbert_lab", "examples", "benchmarks", "tools")
SUFFIXES = (".py", ".toml", ".sh", ".html", ".css", ".js")
_OPENING = """# Code map

One line per file: the first line of its docstring. `make map` prints the same. The [tour](tour.md) gives an order in
which to read the code.
"""


def code_map(root: Path) -> str:
    """Return the map: one line a file, its name and the phrase its docstring opens with."""
    rows = [row for folder in FOLDERS if (root / folder).is_dir() for row in _rows(root / folder, folder, 0)]
    column = max(len(name) for name, _ in rows) + 2
    return "\n".join(f"{name:{column}}{phrase}".rstrip() for name, phrase in rows)


def page(root: Path) -> str:
    """Return the page of the site, whose links are those of docs/."""
    return f"{_OPENING}\n```text\n{code_map(root)}\n```\n"


def phrase(path: Path) -> str:
    """Return what a file says it is: the first line of its docstring, or of its opening comment."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0].rstrip(".")
    comment = re.match(r"(?:<!doctype html>\n)?(?:#|//|/\*|<!--) ?(.*?)(?: ?\*/| ?-->)?\n", text)
    return re.split(r"\. (?=[A-Z])", comment[1])[0].rstrip(".:") if comment else ""


def _rows(folder: Path, name: str, depth: int) -> Iterator[tuple[str, str]]:
    opening = folder / "__init__.py"
    yield "  " * depth + f"{name}/", phrase(opening) if opening.is_file() else ""
    entries = sorted(entry for entry in folder.iterdir() if entry.name[0] not in "_.")
    for entry in entries:
        if entry.is_file() and entry.suffix in SUFFIXES:
            yield "  " * (depth + 1) + entry.name, phrase(entry)
    for entry in entries:
        if (
            entry.is_dir()
            and not entry.name.endswith("egg-info")
            and any(path.suffix in SUFFIXES for path in entry.rglob("*"))
        ):
            yield from _rows(entry, entry.name, depth + 1)


def main() -> int:
    """Print the map."""
    print(code_map(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
