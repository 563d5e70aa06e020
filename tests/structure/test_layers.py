"""Imports run one way along the line of rooms, and nothing imports in a circle."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"
ROOMS = [
    *(
        "errors",
        "peers",
        "guarded",
        "files",
        "terminal",
        "lock",
        "processes",
        "extensions",
        "remote",
        "components",
        "recipe",
        "recipes",
        "signatures",
        "keywords",
        "options",
        "text",
        "reading",
        "corpus",
    ),
    *("data", "models", "objectives", "tasks", "training", "evaluation", "reports", "analysis", "interop"),
    *("inference", "runs", "api", "sklearn", "server", "console", "commands", "cli", "__main__"),
]
FREE = {"commands", "cli", "__main__"}  # commands are where the rooms meet; cli.py names them
UPWARD = {("osbert.models.padded", "osbert.load")}
"""The one import against the order: `Padded.load` opens a folder, which is done above the models."""


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted((SOURCE / "osbert").rglob("*.py")) + sorted((SOURCE / "osbert").rglob("*.pyi")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def place(module: str) -> int:
    """Return the place of a module's room in the order; a name of the public API, such as osbert.load, is the last."""
    return ROOMS.index(room(module)) if module in MODULES else len(ROOMS)


def imports(path: Path) -> Iterator[str]:
    """Yield the osbert modules that a file imports.

    Imports inside functions and under `if TYPE_CHECKING` count as well: a type is knowledge of a room.
    """
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "osbert")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively: say the full name"
            if node.module and node.module.split(".")[0] == "osbert":
                for alias in node.names:
                    full = f"{node.module}.{alias.name}"
                    public = node.module == "osbert" and alias.name != "__version__"  # it stands above all rooms
                    yield full if full in MODULES or public else node.module


def test_every_room_has_its_place_in_the_order() -> None:
    assert {room(module) for module in MODULES} - {""} <= set(ROOMS)


@pytest.mark.parametrize("module", [module for module in MODULES if room(module) and room(module) not in FREE])
def test_a_module_imports_from_its_own_room_and_earlier_ones(module: str) -> None:
    late = [
        other
        for other in imports(MODULES[module])
        if room(other) and place(other) > place(module) and (module, other) not in UPWARD
    ]
    assert not late, f"{module} imports {late}, which come later in the order"


def test_nothing_in_osbert_imports_the_lab() -> None:
    """osbert_lab is found by its entry points; osbert does without it."""
    importing = [
        f"{module}:{node.lineno}"
        for module, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
        and any(
            name.startswith("osbert_lab")
            for name in (getattr(node, "module", None) or "", *(a.name for a in node.names))
        )
    ]
    assert not importing


def test_the_folders_of_the_lab_import_in_one_direction() -> None:
    graph: dict[str, set[str]] = {}
    for path in (SOURCE / "osbert_lab").rglob("*.py"):
        folder = path.relative_to(SOURCE / "osbert_lab").parts[0]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("osbert_lab."):
                graph.setdefault(folder, set()).add(node.module.split(".")[1])
    edges = {(folder, other) for folder, others in graph.items() for other in others - {folder}}
    assert not {(folder, other) for folder, other in edges if (other, folder) in edges}


@pytest.mark.parametrize("name", ["models", "tasks", "interop", "inference", "runs"])
def test_the_folders_of_a_room_import_in_one_direction(name: str) -> None:
    graph: dict[str, set[str]] = {}
    for module, path in MODULES.items():
        if room(module) == name:
            folder = path.parent.relative_to(SOURCE).as_posix()
            inner = [MODULES[other].parent for other in imports(path) if other in MODULES and room(other) == name]
            graph.setdefault(folder, set()).update(parent.relative_to(SOURCE).as_posix() for parent in inner)
    try:
        TopologicalSorter({folder: others - {folder} for folder, others in graph.items()}).prepare()
    except CycleError as error:
        pytest.fail(f"folders import in a circle: {' -> '.join(error.args[1])}")


def test_errors_imports_nothing_of_osbert() -> None:
    assert not list(imports(MODULES["osbert.errors"]))


def test_commands_are_imported_by_the_command_line_alone() -> None:
    for module, path in MODULES.items():
        if room(module) not in FREE:
            assert not [other for other in imports(path) if room(other) in FREE], module


def test_no_concrete_backbone_is_known_outside_models_and_interop() -> None:
    """Others know the contract; a family's file and its parts can come and go."""
    inner = ("osbert.models.families", "osbert.models.transformer", "osbert.models.architecture")
    knowing = {
        module: concrete
        for module, path in MODULES.items()
        if room(module) not in ("models", "interop")
        and (concrete := [other for other in imports(path) if other.startswith(inner)])
    }
    assert not knowing


def test_no_import_cycle() -> None:
    graph = {
        module: {other for other in imports(path) if other in MODULES and other != "osbert"}
        for module, path in MODULES.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"import cycle: {' -> '.join(error.args[1])}")
