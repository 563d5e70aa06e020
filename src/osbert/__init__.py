"""An open system for BERT: raw text in; a vocabulary, a pretrained encoder and a model of your own task out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from osbert.serving.engine import Engine

__version__ = "0.1.0"
__all__ = ["__version__", "load"]


def load(folder: str | Path) -> Engine:
    """Load a run folder, or a Hugging Face BERT folder, and return an Engine with `.embed(texts)` and
    `.predict(texts)`.

    Raises osbert.errors.UserError when the folder is not a model.
    """
    from osbert.serving.engine import load as load_engine  # torch takes seconds to import: only when a model is wanted

    return load_engine(folder)
