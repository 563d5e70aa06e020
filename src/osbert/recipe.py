"""Strict conversion of TOML and command-line settings to frozen dataclasses.

A recipe is a TOML file of names and numbers. Each table is one dataclass, defined beside the code that obeys it; the
string under a field is its help text. An unknown or mistyped setting is an error that names the nearest one.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import functools
import importlib.resources
import inspect
import itertools
import json
import linecache
import re
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal, TypeVar, Union

from osbert import guarded, peers
from osbert.errors import Problems, UnknownSetting, UserError, nearest
from osbert.extensions import advise_lab, extensions
from osbert.files import user_path

Settings = TypeVar("Settings")
Table = dict[str, Any]
LARGEST_NUMBER = sys.float_info.max
"""The bound of a numeric setting: NaN and infinities are refused, since they would make every result NaN or
infinite."""
SURROGATE = re.compile("[\ud800-\udfff]")


def packaged_recipes() -> Mapping[str, Traversable]:
    """Return the TOML files of the packaged recipes by name, sorted.

    Other packages add folders of recipes by entry points in the group `osbert.recipes`.
    """
    packages = [*(extension.value for extension in extensions("osbert.recipes").values()), "osbert.recipes"]
    entries = (entry for package in packages for entry in importlib.resources.files(package).iterdir())
    recipes = {entry.name.removesuffix(".toml"): entry for entry in entries if entry.name.endswith(".toml")}
    return dict(sorted(recipes.items()))


def recipe_names() -> list[str]:
    """Return the names of the packaged recipes."""
    return [*packaged_recipes()]


def read(name_or_path: str | Path) -> Table:
    """Read a recipe: a path to a TOML file, or the name of a packaged recipe such as "bert-base".

    Raises UserError when there is none, or when the TOML does not parse.
    """
    path = Path(name_or_path)
    if path.is_file():
        try:
            text = guarded.read_bytes(path, most=4 * guarded.RECIPE).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise UserError(
                f"{path}: not a recipe: it is not text in UTF-8 ({error.reason} at byte {error.start})",
                code="invalid-recipe",
            ) from error
    elif file := (recipes := packaged_recipes()).get(str(name_or_path)):
        text = file.read_text(encoding="utf-8")
    else:
        hint = nearest(str(name_or_path), [*recipes])
        raise UserError(
            f"No recipe '{name_or_path}': it is neither a file nor one of {', '.join(recipes)}.{hint}{advise_lab()}",
            code="unknown-recipe",
        )
    try:
        return guarded.parse_toml(text)
    except ValueError as error:
        raise UserError(f"{name_or_path}: not valid TOML: {error}", code="invalid-recipe") from error


def build(schema: type[Settings], table: Mapping[str, Any], *, where: str) -> Settings:
    """Make a `schema` from a table, checking every name and type.

    Raises UserError listing all unknown names (with the nearest known one), wrong types and missing settings at once.
    """
    problems = Problems(heading=f"{where} has settings that cannot be used")
    built = _build(schema, table, "", problems)
    problems.stop_if_any()
    return typing.cast(Settings, built)


@functools.cache  # a class a call would never be freed
def make_schema(name: str, tables: tuple[tuple[str, type], ...], bases: tuple[type, ...] = ()) -> type:
    """Return the dataclass with a field for each of the `tables`, by name, behind those of its last base to its first.

    Equal arguments give the same class.
    """
    return dataclasses.make_dataclass(name, tables, bases=bases, frozen=True, kw_only=True)


class Word(str):
    """A value typed on a command line; `override` parses it by the type of its setting."""


def override(table: Table, settings: Mapping[str, Any], *, schema: type) -> Table:
    """Return a copy of the table with `settings` applied by name.

    A name is the whole one (`model.layers`, `model_layers`), or one of `short_names` where only one setting has that.
    Raises UserError at a name that is none, that fits several settings, or whose setting has another name there too.
    """
    result = copy.deepcopy(table)
    for key, value in _resolve_settings(settings, schema):
        *parents, leaf = key.split(".")
        target = result
        for parent in parents:
            below = target.get(parent)
            target[parent] = target = below if isinstance(below, dict) else {}
        target[leaf] = value
    return result


def settings(schema: type[Settings], given: Mapping[str, Any]) -> Settings:
    """Return a `schema` from keywords and its defaults. Raises UserError like `override` and `build`.

    >>> from osbert.reading.documents import DocumentOptions
    >>> settings(DocumentOptions, {"documents": "line"})
    DocumentOptions(documents='line', field='text', encoding='utf-8', errors='strict')
    """
    return build(schema, override({}, given, schema=schema), where="The call")


def resolve_names(settings: Mapping[str, Any], *, schema: type) -> frozenset[str]:
    """Return the dotted names of the given settings."""
    return frozenset(key for key, _ in _resolve_settings(settings, schema))


def fields(schema: type, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield (dotted name, type, default) for each setting of a schema, nested tables included."""
    hints = _hints(schema)
    for field in dataclasses.fields(schema):
        if not field.init:
            continue
        kind = hints[field.name]
        if dataclasses.is_dataclass(kind):
            yield from fields(typing.cast(type, kind), f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}", kind, _default(field)


def short_names(path: str) -> list[str]:
    """Return the short names of a setting: every suffix of its dotted name, and its outermost table with its last part.

    >>> short_names("finetuning.training.epochs")
    ['training.epochs', 'epochs', 'finetuning.epochs']
    """
    parts = path.split(".")
    names = [".".join(parts[start:]) for start in range(1, len(parts))]
    return names + ([f"{parts[0]}.{parts[-1]}"] if len(parts) > 2 else [])


def describe_settings(schema: type) -> Iterator[tuple[str, str, str, str]]:
    """Yield (dotted name, type, default, help text) of each setting as strings; "" if there is no default."""
    documents = dict(field_texts(schema))
    for path, kind, default in fields(schema):
        yield path, _name(kind), "" if default is dataclasses.MISSING else _toml(default), documents.get(path, "")


def as_table(settings: Any) -> Table:
    """Return settings as a plain nested table, in the form that `read` returns."""
    return typing.cast(Table, json.loads(json.dumps(dataclasses.asdict(settings))))


def defaults(schema: type) -> Table:
    """Return the defaults of a schema as a plain nested table; settings without a default are left out.

    >>> from osbert.reading.documents import DocumentOptions
    >>> defaults(DocumentOptions)["documents"]
    'blank-line'
    """
    table: Table = {}
    for path, _, default in fields(schema):
        if default is not dataclasses.MISSING:
            *parents, leaf = path.split(".")
            target = table
            for parent in parents:
                target = target.setdefault(parent, {})
            target[leaf] = default
    return typing.cast(Table, json.loads(json.dumps(table)))


def dump(table: Mapping[str, Any]) -> str:
    """Return a table as TOML: plain values first, then a section for each nested table."""
    lines = [
        f"{key} = {_toml(value)}"
        for key, value in table.items()
        if not isinstance(value, Mapping) and value is not None
    ]
    for name, section in table.items():
        if isinstance(section, Mapping):
            lines += ["", f"[{name}]"]
            lines += [f"{key} = {_toml(value)}" for key, value in section.items() if value is not None]
    return "\n".join(lines).lstrip("\n") + "\n"


def difference(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return a line for each setting whose value differs, such as "model.layers: 2 -> 4"."""
    lines = []
    for key in sorted({*old, *new}):
        before, after = old.get(key), new.get(key)
        # A missing table counts as empty, so that each of its settings gets its own line.
        if isinstance(before or {}, Mapping) and isinstance(after or {}, Mapping) and (before or after):
            lines += difference(before or {}, after or {}, f"{prefix}{key}.")
        elif before != after:
            lines.append(f"{prefix}{key}: {_toml(before)} -> {_toml(after)}")
    return lines


def _build(schema: type, table: Mapping[str, Any], prefix: str, problems: Problems) -> Any:
    hints = _hints(schema)
    known = {field.name: field for field in dataclasses.fields(schema) if field.init}
    # Building is only tried if this table has no problem of its own: else its checks would report follow-up errors.
    noted = problems.count
    values = {}
    for key, value in table.items():
        if key not in known:
            problems.add(f"unknown setting '{prefix}{key}'.{peers.suggestion(key, known)}", code="unknown-setting")
        else:
            # A numpy scalar, such as a search over settings passes, becomes a Python number.
            plain = value.item() if getattr(value, "shape", None) == () else value
            values[key] = _coerce(plain, hints[key], f"{prefix}{key}", problems)
    for name, field in known.items():
        if name not in table and _default(field) is dataclasses.MISSING:
            if dataclasses.is_dataclass(hints[name]):
                values[name] = _build(typing.cast(type, hints[name]), {}, f"{prefix}{name}.", problems)
            else:
                problems.add(f"'{prefix}{name}' is missing", code="missing-setting")
    if problems.count > noted:
        return None
    try:
        return schema(**values)
    except ValueError as error:
        problems.add(f"{prefix.rstrip('.') or 'the recipe'}: {error}", code="invalid-setting")
        return None


def _convert_table(value: Any, kind: Any, name: str, problems: Problems) -> Any:
    """Convert a table to the dataclass `kind`, or check its values if `kind` is a mapping."""
    if not isinstance(value, Mapping):
        problems.add(f"'{name}' must be a table, not {value!r}", code="invalid-value")
        return None
    if dataclasses.is_dataclass(kind):
        return _build(typing.cast(type, kind), value, f"{name}.", problems)
    inner = typing.get_args(kind)[1]
    return {
        key: item if inner is Any else _coerce(item, inner, f"{name}.{key}", problems) for key, item in value.items()
    }


def _coerce(value: Any, kind: Any, name: str, problems: Problems) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind) or origin in (Mapping, dict):
        return _convert_table(value, kind, name, problems)
    if origin is Literal:
        if any(value == argument and type(value) is type(argument) for argument in arguments):
            return value
        problems.add(
            f"'{name}' must be one of {', '.join(map(repr, arguments))}, not {value!r}.{nearest(value, arguments)}",
            code="invalid-value",
        )
    elif origin in (Union, types.UnionType):
        first, *words = (argument for argument in arguments if argument is not type(None))
        kind = words[0] if words and isinstance(value, str) else first  # a Literal: a word such as auto for a number
        return None if value is None and type(None) in arguments else _coerce(value, kind, name, problems)
    elif origin is tuple and isinstance(value, (list, tuple)):
        return tuple(_coerce(item, arguments[0], name, problems) for item in value)
    elif kind is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        # Comparisons with NaN are False, so NaN is refused here, too.
        if -LARGEST_NUMBER <= value <= LARGEST_NUMBER:  # NaN is not
            return float(value)
        problems.add(f"'{name}' must be a finite number, not {value!r:.40}", code="invalid-value")
    # An exact type: bool is a subclass of int, and `true` must not pass as a number.
    elif kind in (int, bool, str) and type(value) is kind:
        return value
    elif kind is Path and isinstance(value, str | Path):
        return user_path(value)
    else:
        problems.add(f"'{name}' must be {_name(kind)}, not {value!r}", code="invalid-value")
    return None


def _resolve_settings(settings: Mapping[str, Any], schema: type) -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and the TOML value of each setting; `build` checks the values later.

    A text for a list is read as on a command line: its parts have commas between.

    Raises UserError if a setting is given under two of its names, or under another library's name that means something
    else here.
    """
    # `names` maps a setting to the name it was given by, to find a setting that is given under two names.
    known, spelt = _names(schema)
    names: dict[str, str] = {}
    for name, given in settings.items():
        own_name, value = peers.translate(name, given, spelt) or (name, given)
        peers.refuse_other(own_name, value, settings, spelt)
        key = _resolve(own_name, known)
        if (other := names.setdefault(key, name)) != name:
            raise UserError(f"{other} and {name} are one setting, {key}: give it once.", code="duplicate-name")
        listed = isinstance(value, str) and typing.get_origin(known[key]) is tuple
        yield key, _parse(value, known[key]) if listed or isinstance(value, Word) else value


@functools.cache  # a call of `embed` for one short text would take a tenth longer
def _names(schema: type) -> tuple[Mapping[str, Any], frozenset[str]]:
    """Return the type of each setting by its dotted name, and all names that settings have."""
    known = {path: kind for path, kind, _ in fields(schema)}
    return known, frozenset(name for path in known for name in _spellings(path))


def _resolve(name: str, known: Mapping[str, Any]) -> str:
    """Return the dotted name of the setting that a full or short name means. Raises UserError for none or two."""
    # A full name wins even if it is also the short name of another setting.
    matches = [key for key in known if name in _spellings(key)]
    if name in matches:
        return name
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UserError(
            f"--{name} could be {' or '.join(f'--{match}' for match in matches)}: give the full name.",
            code="ambiguous-setting",
        )
    leaves = {key.rpartition(".")[2]: key for key in known}
    raise UnknownSetting(name, [*known, *leaves])


def _spellings(path: str) -> tuple[str, ...]:
    """Return all names of a setting: dotted, with underscores, and the short ones."""
    return (path, path.replace(".", "_"), *short_names(path))


def _parse(text: str, kind: Any) -> Any:
    """Convert a command-line string to a TOML value of type `kind`; unconvertible strings are left for `build` to
    refuse."""
    if typing.get_origin(kind) is tuple:
        (item, *_) = typing.get_args(kind)
        return [_parse(part.strip(), item) for part in text.strip("[]").split(",") if part.strip()]
    if typing.get_origin(kind) in (Union, types.UnionType):
        if text.lower() == "none":
            return None
        kind = next(argument for argument in typing.get_args(kind) if argument is not type(None))
    if kind is bool:
        return {"true": True, "false": False}.get(text.lower(), text)
    if kind in (int, float):
        try:
            return kind(text.replace("_", ""))
        except ValueError:
            return str(text)
    return text.strip("\"'")


@functools.cache
def _hints(schema: type) -> dict[str, Any]:
    return typing.get_type_hints(schema)


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _name(kind: Any) -> str:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return "|".join(map(str, arguments))
    if origin is tuple:
        return f"a list of {_name(arguments[0])}"
    if origin in (Union, types.UnionType):
        return " or ".join(_name(argument) for argument in arguments)
    return {int: "integer", float: "number", bool: "true|false", str: "text", type(None): "none"}.get(kind, str(kind))


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        value = SURROGATE.sub("\ufffd", value)  # bytes of a file name that are not UTF-8; TOML has no way to write them
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # TOML wants this one escaped too
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return repr(value) if value is not None else "none"


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
