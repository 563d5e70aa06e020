"""Help texts of settings: the strings under the fields of a dataclass, read from its source."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import textwrap
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
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
        except (OSError, TypeError):  # a schema made at run time has no source; its nested tables have
            continue
        statements = body.body if isinstance(body, ast.ClassDef) else []
        for statement, following in itertools.pairwise(statements):
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and _is_text(following):
                text = typing.cast(ast.Constant, typing.cast(ast.Expr, following).value).value
                yield f"{prefix}{statement.target.id}", " ".join(str(text).split())


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
