"""Finds a component by its folder and file name: objective "mlm" is the one Objective in objectives/mlm.py."""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from osbert.errors import UserError, nearest
from osbert.extensions import Extension, advise_lab, extensions

CONTRACT = "contract"
"""The file that declares the contract of a folder's components; it is not a component."""


def names(folder: str) -> list[str]:
    """Return the names a folder offers, from its file names alone: nothing is imported but the folders.

    Other packages add components by entry points in the group `osbert.FOLDER`, such as `osbert.objectives`.

    If its package lists `COMPONENTS`, the components are the files and folders in the folders of that list. Any other
    folder inside it has code that several components use. If a package lists `FAMILIES`, a file that this names has
    several components, each a class whose attribute `component` is its name.
    """
    return sorted({**_modules(folder), **extensions(_package(folder))})


def own_names(folder: str) -> list[str]:
    """Return the names that osbert itself offers in a folder, without those of other packages."""
    return sorted(_modules(folder))


def _package(folder: str) -> str:
    """Return the full name of a folder of osbert; a folder of another package is given by its full name.

    >>> _package("tasks"), _package("osbert_lab.analysis.kinds")
    ('osbert.tasks', 'osbert_lab.analysis.kinds')
    """
    return folder if folder.startswith("osbert_") else f"osbert.{folder}"


def _modules(folder: str, *, folders: bool = False) -> dict[str, str]:
    """Return each component's name with its module, a file or, with `folders`, a folder.

    Raises OSError if a folder cannot be read, as when too many files are open: pkgutil would find nothing in it.
    """
    package = importlib.import_module(_package(folder))
    for path in filter(os.path.isdir, package.__path__):
        os.listdir(path)
    modules: dict[str, str] = {}
    for subfolder in getattr(package, "COMPONENTS", ()):
        modules |= _modules(f"{folder}.{subfolder}", folders=True)
    if modules:
        return modules
    families: Mapping[str, Sequence[str]] = getattr(package, "FAMILIES", {})
    for module in pkgutil.iter_modules(package.__path__):
        if (folders or not module.ispkg) and module.name != CONTRACT:
            for name in families.get(module.name, (module.name,)):
                modules[name] = f"{package.__name__}.{module.name}"
    return modules


def extension(folder: str, name: str) -> Extension | None:
    """Return what another package adds to a folder under a name; None if there is none."""
    return extensions(_package(folder)).get(name)


def module_name(folder: str, name: str) -> str | None:
    """Return the full name of the module of a component, of osbert or of another package; None if there is none.

    >>> module_name("tasks", "classify")
    'osbert.tasks.kinds.classify'
    """
    path = _modules(folder).get(name)
    return added.value if path is None and (added := extension(folder, name)) else path


def module(folder: str, name: str) -> ModuleType:
    """Return the module of a component that `names` lists, of osbert or of another package."""
    path = module_name(folder, name)
    assert path is not None
    return importlib.import_module(path)


def name_in(folder: str, component: Any) -> str:
    """Return what selects an object's class in a folder: its `name` if it is listed so, else the path of its module."""
    module = type(component).__module__
    return str(component.name) if module_name(folder, component.name) == module else module


def resolve_synonym(folder: str, name: str) -> str:
    """Return the name of the component that others call so (`SYNONYMS` of the folder's package), or the name itself.

    >>> resolve_synonym("tasks", "ner"), resolve_synonym("tasks", "classify")
    ('tag', 'classify')
    """
    synonyms: Mapping[str, str] = getattr(importlib.import_module(_package(folder)), "SYNONYMS", {})
    return synonyms.get(name, name)


def contract(folder: str) -> ModuleType:
    """Return the module with the contract of a folder's components, imported by name: that of models loads torch."""
    return importlib.import_module(f"{_package(folder)}.{CONTRACT}")


def is_dotted(name: str) -> bool:
    """Return whether a name reaches code outside osbert: "mypackage.span_masking"."""
    return "." in name and all(part.isidentifier() for part in name.split("."))


def find(folder: str, name: str, *, base: type, trust: bool = False) -> type:
    """Return the one public subclass of `base` defined in osbert/<folder>/<name>.py.

    A dotted name ("mypackage.span_masking") is imported as it stands, so a user's own code needs no registration. It is
    imported only with `trust`: importing runs code, and a name that comes from a file is the choice of its author.

    Raises UserError when there is no such file, naming the nearest one, when the file does not define exactly one, and
    at a dotted name without `trust`.
    """
    if is_dotted(name):
        if not trust:
            raise UserError(
                f"'{name}' is code outside osbert, and a file that names it does not get it imported. If you trust the "
                "author of the file and of that code, give --trust (in Python: trust=True).",
                code="untrusted-code",
            )
        path = name
    elif known := module_name(folder, name):
        path = known
    else:
        raise UserError(
            f"Unknown name '{name}' in {folder} (known: {', '.join(names(folder))}).{nearest(name, names(folder))}"
            f"{advise_lab()}",
            code="unknown-component",
        )
    # A missing module on the way to `path` is the user's error; one that the module itself imports is a bug in it.
    try:
        module = importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name is None or not path.startswith(error.name):
            raise
        raise UserError(
            f"Cannot import '{path}': no module named '{error.name}'. Is it on PYTHONPATH?",
            code="component-not-importable",
        ) from error
    # Classes that the module only imports, such as the base class, have another __module__.
    classes = [
        value
        for key, value in vars(module).items()
        if inspect.isclass(value)
        and issubclass(value, base)
        and value.__module__ == module.__name__
        and not key.startswith("_")
        and vars(value).get("component", name) == name
    ]
    if len(classes) != 1:
        raise UserError(
            f"{path} must define exactly one public {base.__name__}; it defines {len(classes)}.",
            code="invalid-component",
        )
    return classes[0]
