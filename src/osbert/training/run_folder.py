"""A run folder's identity: the settings and inputs it was begun with, and the refusal to mix in others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from osbert import recipe
from osbert.errors import UserError
from osbert.files import write_json, write_text

RECIPE = "recipe.toml"
FACTS = "run.json"
OURS = ("config.json", "model.safetensors", "tokenizer.json", "vocab.txt", "metrics.jsonl", "corpus.json", RECIPE)
HARMLESS = ("training.log_every", "training.checkpoint_every", "training.evaluate_every", "training.keep")
"""Settings that do not change the weights, so that a run may go on with others."""


class RunFolder:
    """recipe.toml, the resolved settings; and run.json, the facts: the run's inputs, sizes and device, and its end."""

    def __init__(self, folder: Path) -> None:
        """Stand for a folder that need not be there yet."""
        self.folder = folder

    @property
    def facts(self) -> dict[str, Any]:
        """Return what run.json says, nothing if there is none."""
        path = self.folder / FACTS
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    @property
    def finished(self) -> bool:
        """Return whether the run has come to its end."""
        return "finished" in self.facts

    def begin(self, settings: recipe.Table, facts: Mapping[str, Any], *, inputs: tuple[str, ...]) -> None:
        """Write settings and facts for a new run, or check that the run that is there is the same one.

        `inputs` are the facts that must not differ. Raises UserError with the difference when settings or inputs do, or
        when the folder holds something else.
        """
        before = self.facts
        if not before:
            self._refuse_foreign()
            self.folder.mkdir(parents=True, exist_ok=True)
        else:
            self._refuse_difference(before, settings, {name: facts[name] for name in inputs})
        # run.json alone decides whether there is a run: a kill between the two writes leaves one that can go on.
        write_json(self.folder / FACTS, {**before, **facts, "settings": settings})
        write_text(self.folder / RECIPE, recipe.dump(settings))

    def finish(self, results: Mapping[str, Any]) -> None:
        """Note that the run is finished; the last thing to be written."""
        write_json(self.folder / FACTS, {**self.facts, "finished": dict(results)})

    def _refuse_foreign(self) -> None:
        found = [name for name in OURS if (self.folder / name).exists()]
        if found:
            raise UserError(
                f"{self.folder} already holds {', '.join(found)}, but no run was begun there ({FACTS} is missing). "
                "Choose another folder for --out."
            )

    def _refuse_difference(self, before: Mapping[str, Any], settings: recipe.Table, inputs: Mapping[str, Any]) -> None:
        harmless = tuple(f"{name}:" for name in HARMLESS)
        lines = [line for line in recipe.difference(before["settings"], settings) if not line.startswith(harmless)]
        lines += recipe.difference({name: before.get(name) for name in inputs}, inputs)
        if lines:
            raise UserError(
                f"{self.folder} holds a run with other settings:\n"
                + "\n".join(f"  {line}" for line in lines)
                + "\nGive the settings it was begun with to go on with it, or choose another folder for --out."
            )
