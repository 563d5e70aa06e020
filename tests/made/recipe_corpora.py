"""Corpora that recipes can be tried on; those that need the same have one."""

from __future__ import annotations

from pathlib import Path

from osbert.runs.pretrain.settings import read_settings
from osbert_lab.planning.benchmark import synthetic_corpus


def needed(name: str) -> dict[str, int]:
    """Return the padding piece behind which a recipe's positions begin, and the sentences of its documents."""
    settings = read_settings(name)
    sentences = max(getattr(settings, objective).document_sentences for objective in settings.objectives)
    return {"padding": max(0, getattr(settings.model, "first_position", 0) - 1), "document_sentences": sentences}


class RecipeCorpora:
    """Makes the corpora in a folder, each when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made: dict[str, Path] = {}

    def __call__(self, name: str) -> Path:
        """Return the corpus for a recipe."""
        kind = needed(name)
        if str(kind) not in self.made:
            folder = self.folder / str(len(self.made))
            self.made[str(kind)] = synthetic_corpus(folder, vocabulary=120, tokens=20_000, **kind).folder
        return self.made[str(kind)]
