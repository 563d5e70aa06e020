"""Options of every command that opens a model: the model by folder or name, --trust and --no-verify."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from osbert.console.arguments import ModelFolder
from osbert.console.model_downloads import locate_folder
from osbert.interop.hub import is_name
from osbert.interop.opening import Opening
from osbert.remote import split_address

__all__ = ["ModelFolder", "OpeningOptions", "resolve_model"]

OpeningOptions = Annotated[Opening, Parameter(name="*")]


def resolve_model(model: str) -> str:
    """Return a model for the server as PATH or NAME=PATH; the folder of a name on the hub or an address is its path."""
    # A folder or an address whose name contains "=" is a path, not NAME=PATH.
    whole = "=" not in model or Path(model).is_dir() or split_address(model) is not None
    name, _, path = ("", "", model) if whole else model.partition("=")
    address = split_address(path)
    if not (address or is_name(path)) or (folder := locate_folder(path)) == Path(path):
        return model
    whole_name = address[1] if address else path.partition("@")[0]
    return f"{name or whole_name.rpartition('/')[2]}={folder}"
