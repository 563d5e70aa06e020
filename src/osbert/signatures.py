"""The settings of public functions as keywords: `help`, completion and `inspect.signature` show each with its default.

A function takes them as `**settings: Unpack[X]`, where X is a class of keywords.pyi, which type checkers read.
`make keywords` writes that file from the settings themselves.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, reduce
from operator import or_
from types import MappingProxyType
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def takes_settings_of(*sources: str | type) -> Callable[[Function], Function]:
    """Return a decorator for a function whose last parameter, such as `**settings`, takes these settings.

    `sources`: dataclasses of settings; or "MODULE:NAME" of one, or of a function that returns several, which is
    imported when somebody reads the signature: importing osbert stays quick.
    """

    def add_signature(function: Function) -> Function:
        function.__signature__ = SettingsSignature(inspect.signature(function), sources)  # type: ignore[attr-defined]
        return function

    return add_signature


class SettingsSignature(inspect.Signature):
    """A signature with a parameter for each setting, in place of the last one; they are looked up at the first use."""

    def __init__(self, plain: inspect.Signature, sources: Iterable[str | type]) -> None:
        """Take the signature as it is written, and where the settings are."""
        super().__init__(return_annotation=plain.return_annotation)
        self.plain = plain
        self.sources = sources

    def replace(self, **changes: Any) -> inspect.Signature:  # type: ignore[override]
        """Return a plain signature with changes: so `inspect` makes those of bound methods and partial functions."""
        whole = inspect.Signature([*self.parameters.values()], return_annotation=self.return_annotation)
        return whole.replace(**changes)

    @cached_property
    def parameters(self) -> Mapping[str, inspect.Parameter]:  # type: ignore[override]
        """The parameters by name, with their defaults."""
        *explicit, _ = self.plain.parameters.values()
        parameters = {parameter.name: parameter for parameter in explicit}
        for name, (annotation, default) in self.settings.items():
            parameters[name] = inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default
            )
        return MappingProxyType(parameters)

    @cached_property
    def settings(self) -> dict[str, tuple[Any, Any]]:
        """The type and the default of each setting that is not a parameter of its own."""
        schemas = [schema for source in self.sources for schema in _find_schemas(source)]
        return {name: setting for name, setting in keywords(schemas).items() if name not in self.plain.parameters}


def keywords(schemas: Iterable[type]) -> dict[str, tuple[Any, Any]]:
    """Return the type and the default of each setting, by its shortest name that is a keyword.

    It is the last part of the setting's dotted name, or the whole name with underscores if several settings of a schema
    end so. A setting of several schemas has the types of all and the default of the first.

    >>> from osbert.interop.opening import Opening
    >>> keywords([Opening])
    {'trust': (<class 'bool'>, False), 'verify': (<class 'bool'>, True)}
    """
    from osbert import recipe

    types: dict[str, list[Any]] = {}
    defaults: dict[str, Any] = {}
    for schema in schemas:
        settings = [*recipe.fields(schema)]
        leaves = [path.rpartition(".")[2] for path, *_ in settings]
        for (path, kind, default), leaf in zip(settings, leaves, strict=True):
            name = leaf if leaves.count(leaf) == 1 else path.replace(".", "_")
            defaults.setdefault(name, default)
            if kind not in types.setdefault(name, []):
                types[name].append(kind)
    return {name: (reduce(or_, kinds), defaults[name]) for name, kinds in types.items()}


def read_settings(function: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    """Return the settings in the keywords of a call: an object of each dataclass that `takes_settings_of` names.

    Raises UserError for unknown settings and wrong values, all at once.

    >>> from osbert.interop.opening import Opening
    >>> @takes_settings_of(Opening)
    ... def load(folder, **settings): ...
    >>> read_settings(load, {"trust": True})
    (Opening(trust=True, verify=True),)
    """
    from osbert import recipe

    schemas = [schema for source in function.__signature__.sources for schema in _find_schemas(source)]  # type: ignore[attr-defined]
    tables = {schema.__name__.removesuffix("Options").lower(): schema for schema in schemas}
    call: Any = recipe.settings(recipe.make_schema("Call", tuple(tables.items())), options)
    return tuple(getattr(call, name) for name in tables)


def _find_schemas(source: str | type) -> list[type]:
    if isinstance(source, type):
        return [source]
    module, _, name = source.partition(":")
    value = getattr(importlib.import_module(module), name)
    return [value] if isinstance(value, type) else value()
