"""The JSON files of a model's folder: each within a size; a damaged one is a UserError."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from osbert import guarded
from osbert.errors import UserError

LARGEST_CONFIG = 1 << 25
"""Most bytes of a config or an index; with a hundred thousand labels it has about 8 million."""


def read_value(path: Path, *, most: int = LARGEST_CONFIG) -> Any:
    """Return the value in a JSON file of at most `most` bytes.

    Raises UserError when the file is missing, larger, or not JSON in UTF-8.
    """
    try:
        return guarded.read_json(path, most=most)
    except FileNotFoundError as error:
        raise UserError(f"{path} is missing. Is {path.parent} a model's folder?", code="missing-file") from error
    except ValueError as error:
        raise UserError(
            f"{path}: not valid JSON in UTF-8: {error}. Copy or download it again.", code="wrong-format"
        ) from error


def read_object(path: Path, *, most: int = LARGEST_CONFIG) -> dict[str, Any]:
    """Return the object in a JSON file. Raises UserError as `read_value`, and when it holds something else."""
    value = read_value(path, most=most)
    if not isinstance(value, dict):
        raise UserError(f"{path}: expected a JSON object, found {type(value).__name__}.", code="wrong-format")
    return value


def read_if_there(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file, an empty one where there is no file. Raises UserError as `read_object`."""
    return read_object(path) if path.is_file() else {}
