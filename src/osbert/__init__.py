"""An open system for BERT: raw text in; a vocabulary, a pretrained encoder and a model of your own task out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from osbert.inference.engine import Engine

__version__ = "0.1.0"
__all__ = ["__version__", "load"]


def load(folder: str | Path, *, trust: bool = False, verify: bool = True) -> Engine:
    """Load a run folder, a Hugging Face folder or, by its name, a model of the Hugging Face hub, and return an Engine
    with `.embed(texts)` and `.predict(texts)`.

    A name is OWNER/NAME, with @REVISION or without; a Path is never a name. `trust`: import the code that the folder's
    recipe.toml names. `verify`: compare a run's files with their hashes in run.json. Raises osbert.errors.UserError
    when the folder is not a model, when a name leads to none, when a file is damaged, and when it names code without
    `trust`.
    """
    from osbert.inference.engine import (
        load as load_engine,  # torch takes seconds to import: only when a model is wanted
    )
    from osbert.interop.hub import locate
    from osbert.interop.opening import Opening

    location = locate(folder)
    engine = load_engine(location.path, opening=Opening(trust=trust, verify=verify))
    engine.remarks = (*location.remarks, *engine.remarks)
    return engine
