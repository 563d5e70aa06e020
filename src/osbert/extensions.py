"""Finds what other packages add to osbert, by the entry points of groups whose names begin with "osbert."."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, reduce
from importlib.machinery import PathFinder
from typing import Any

from osbert.errors import UserError

FILE = "entry_points.txt"
MARK = b"[osbert."
"""What the file of a package has that adds something to osbert."""


@dataclass(frozen=True)
class Extension:
    """An entry point: a name, and a module or an object in it such as "package.module:OBJECT"."""

    name: str
    value: str

    def load(self) -> Any:
        """Import the module and return it, or the object in it."""
        module, _, path = self.value.partition(":")
        return reduce(getattr, filter(None, path.split(".")), importlib.import_module(module))


def extensions(group: str) -> Mapping[str, Extension]:
    """Return the extensions of a group, such as "osbert.verbs", by name."""
    return _groups(tuple(sys.path)).get(group, {})


def require_extension(group: str, name: str, what: str) -> Any:
    """Return the object that another package adds. Raises UserError, in which `what` is missing, if none does."""
    if (extension := extensions(group).get(name)) is None:
        raise UserError(f"{what}: this is not available here.{advise_lab()}", code="missing-library")
    return extension.load()


def advise_lab() -> str:
    """Return a sentence on osbert_lab if this installation lacks it, for messages on unknown names; else ""."""
    if importlib.util.find_spec("osbert_lab"):
        return ""
    return " The package osbert_lab, which has further ones, is missing here: pip install osbert installs both."


@cache
def _groups(folders: tuple[str, ...]) -> Mapping[str, Mapping[str, Extension]]:
    """Return the extensions of all groups, from the distributions in folders.

    importlib.metadata parses the entry points of all distributions, a tenth of the time of `osbert --help`. It is
    used only where distributions are not plain folders: in archives, in eggs and with finders of their own.
    """
    groups: dict[str, dict[str, Extension]] = {}
    finders = [finder for finder in sys.meta_path if finder is not PathFinder]
    if any(hasattr(finder, "find_distributions") for finder in finders) or any(
        folder.endswith(".egg") or os.path.isfile(folder) for folder in folders
    ):
        from importlib.metadata import distributions

        packages = reversed([*distributions()])  # of two with one name the first counts
        points = ((point.group, point.name, point.value) for package in packages for point in package.entry_points)
    else:
        points = (entry for text in _files(folders) for entry in _parse(text))
    for group, name, value in points:
        groups.setdefault(group, {})[name] = Extension(name, value.partition("[")[0].strip())  # without extras
    return groups


def _files(folders: tuple[str, ...]) -> Iterator[str]:
    """Yield the entry points of each distribution that adds something to osbert; the first of a name hides others."""
    seen = set()
    for folder in folders:
        try:
            entries = os.listdir(folder or ".")
        except OSError:
            continue
        for entry in entries:
            stem, ending = os.path.splitext(entry)
            if ending not in (".dist-info", ".egg-info"):
                continue
            distribution = stem.partition("-")[0].lower().replace(".", "_")
            if distribution in seen:
                continue
            seen.add(distribution)
            try:
                with open(os.path.join(folder, entry, FILE), "rb") as file:
                    content = file.read()
            except OSError:  # a distribution without entry points
                continue
            if MARK in content:
                yield content.decode("utf-8")


def _parse(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield group, name and value of each entry point in a file.

    >>> [*_parse("[osbert.verbs]\\nlab = osbert_lab.verbs:LAB")]
    [('osbert.verbs', 'lab', 'osbert_lab.verbs:LAB')]
    """
    group = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            group = line.strip("[]")
        elif line and not line.startswith("#"):
            name, _, value = line.partition("=")
            yield group, name.strip(), value.strip()
