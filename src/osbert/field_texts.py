"""Help texts of settings: the strings under the fields of a dataclass, read from its source."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import linecache
import sys
import typing
from collections.abc import Iterator


def field_texts(schema: type, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield (dotted name, help text): the string literal below each field in the source."""
    hints = typing.get_type_hints(schema)
    for field in dataclasses.fields(schema):
        if dataclasses.is_dataclass(hints[field.name]):
            yield from field_texts(typing.cast(type, hints[field.name]), f"{prefix}{field.name}.")
    # Base classes first, so that the help text of a field that a subclass declares again replaces the inherited one.
    for cls in reversed(schema.__mro__):
        if not dataclasses.is_dataclass(cls) or cls.__module__ == "types":
            continue
        for name, text in _own_texts(cls):
            yield f"{prefix}{name}", text


@functools.cache  # schemas share their bases and tables
def _own_texts(cls: type) -> tuple[tuple[str, str], ...]:
    """Return (name, help text) of the fields that a class declares itself."""
    try:
        file = inspect.getsourcefile(cls) or ""
    except (OSError, TypeError):  # a schema made at run time has no source; its nested tables have
        return ()
    # The module's globals lead to its source where it is no file of its own, as in a zip archive.
    lines = linecache.getlines(file, vars(sys.modules[cls.__module__]) if cls.__module__ in sys.modules else None)
    class_node = _classes("".join(lines)).get(cls.__qualname__)
    return tuple(
        (statement.target.id, " ".join(str(text).split()))
        for statement, following in itertools.pairwise(class_node.body if class_node else [])
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
        if (text := _text(following)) is not None
    )


@functools.lru_cache(maxsize=64)  # a file has several schemas, and parsing it takes most of the time
def _classes(source: str) -> dict[str, ast.ClassDef]:
    """Return the classes of a source by qualified name; of two with one name the first, as inspect does."""
    classes: dict[str, ast.ClassDef] = {}

    def collect(body: list[ast.stmt], inside: str) -> None:
        for statement in body:
            if isinstance(statement, ast.ClassDef):
                classes.setdefault(inside + statement.name, statement)
                collect(statement.body, f"{inside}{statement.name}.")
            elif isinstance(statement, ast.FunctionDef):
                collect(statement.body, f"{inside}{statement.name}.<locals>.")

    collect(ast.parse(source).body, "")
    return classes


def _text(node: ast.stmt) -> str | None:
    """Return the text of a statement that is a string literal."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return node.value.value
    return None
