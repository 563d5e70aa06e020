"""Further pretraining of an encoder on another corpus: its weights, its sizes, and its held-out text."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from osbert import recipe
from osbert.data.batch import Batch, read_batches
from osbert.errors import Problems, UserError
from osbert.interop.folder import Folder, open_folder
from osbert.interop.huggingface.folders import fill_heads
from osbert.interop.opening import CAREFUL, Opening
from osbert.interop.tokenizers import read_any_tokenizer
from osbert.models.adapting.additions import add_pieces
from osbert.models.contract import DEFAULT_FAMILY, Head, Learner, Sizes
from osbert.models.random_numbers import fix_seed
from osbert.objectives import Objective
from osbert.text.extend import extends, spellings
from osbert.text.file_tokenizer import AnyTokenizer
from osbert.training.optimizer import OptimizerSettings

KEPT_OUT = "held_out.npz"
"""File in a run folder with the held-out batches of the run."""
FURTHER = "further"
"""Packaged recipe for training encoders further that have no recipe."""
KEEPING = 5e-5
"""Highest default learning rate. With it, linear probes of all-MiniLM-L6-v2 on SST-2 keep their accuracy after 100
steps; with 3e-3, the rate of the recipe cpu, most of it is lost."""
FREE = ("vocabulary", "dropout", "attention_dropout", "deviation", "neighbours", "scaled_outputs")
"""Settings of an architecture that may differ from those of the weights."""


def recipe_of(folder: Path) -> str:
    """Return the path of the recipe in a folder, or FURTHER if it has none for pretraining."""
    path = folder / "recipe.toml"
    return str(path) if path.is_file() and "objectives" in recipe.read(path) else FURTHER


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The encoder that is trained further, from a run folder or a Hugging Face folder."""

    source: Folder
    architecture: Sizes
    tokenizer: AnyTokenizer

    @classmethod
    def open(cls, folder: Path, opening: Opening = CAREFUL) -> Origin:
        """Read the config and the tokenizer of a folder. Raises UserError if it has no encoder or is damaged."""
        if not (folder / "config.json").is_file():
            raise UserError(
                f"{folder} contains no encoder (config.json is missing). Give the folder of a finished run or of a "
                "model.",
                code="missing-file",
            )
        source = open_folder(folder, opening)
        return cls(source=source, architecture=source.architecture, tokenizer=read_any_tokenizer(folder, CAREFUL.again))

    @property
    def folder(self) -> Path:
        """The path of the folder."""
        return self.source.path

    def gentle_rates(self, optimizer: OptimizerSettings, given: Container[str]) -> tuple[OptimizerSettings, list[str]]:
        """Return the optimiser settings with learning rates low enough for trained weights, and lines that report them.

        A recipe's rate is meant for random weights; even with its warm-up it would destroy trained ones. `given`:
        dotted names of settings that the user has chosen; their rates are kept. With Muon, its rate is lowered by the
        same factor.
        """
        factor = KEEPING / optimizer.learning_rate
        rates = {"learning_rate": optimizer.learning_rate}
        rates |= {"muon_rate": optimizer.muon_rate} if optimizer.method == "muon" else {}
        lower: dict[str, Any] = {
            name: rate * factor for name, rate in rates.items() if factor < 1 and f"optimizer.{name}" not in given
        }
        lines = [
            f"{name} is {rate:.2g} in place of {rates[name]:g}, which is a rate for fresh weights: it would undo what "
            f"the encoder in {self.folder} has learnt. Another one: --{name.replace('_', '-')}."
            for name, rate in lower.items()
        ]
        return replace(optimizer, **lower), lines

    def describe_task_moves(self, objectives: Sequence[str], curriculum: str) -> list[str]:
        """Return a remark if objectives get another row of the table of tasks than they had in the encoder's run.

        An objective has the row of its place among the objectives, and without a curriculum all have the first one.
        """
        before = recipe.read(recipe_of(self.folder))
        if not self.architecture.tasks or before.get("data", {}).get("curriculum") in (None, "together"):
            return []
        rows = {name: 0 if curriculum == "together" else row for row, name in enumerate(objectives)}
        moved = [name for row, name in enumerate(before["objectives"]) if rows.get(name, row) != row]
        return moved and [
            f"{' and '.join(moved)} had another row of the task embedding in {self.folder}, whose objectives are "
            f"{', '.join(before['objectives'])}. To keep the rows, name the objectives in this order."
        ]

    def table(self) -> dict[str, Any]:
        """Return the model's part of a recipe: family and settings. The vocabulary is that of the corpus."""
        family = self.architecture.family
        named = None if family == DEFAULT_FAMILY else family
        return {"family": named, "model": recipe.as_table(self.architecture.replace(vocabulary=0))}

    def objectives(self) -> dict[str, list[str]]:
        """Return the objectives that replace those of FURTHER for models without masked pieces; {} for others."""
        objective = self.architecture.language_objective
        return {"objectives": [objective]} if objective and recipe_of(self.folder) == FURTHER else {}

    def check(self, model: Sizes, tokenizer: AnyTokenizer, problems: Problems) -> None:
        """Add a problem for each setting, or tokenizer of the corpus, that does not match the encoder."""
        free = (*FREE, "length") if self.architecture.any_length else FREE
        if model.family != (family := self.architecture.family):
            problems.add(
                f"family is {model.family}, but the encoder in {self.folder} is of family {family}. Remove the "
                "setting.",
                code="invalid-setting",
            )
            return
        for name, before, now in self.architecture.differences(model):
            if name not in free:
                problems.add(
                    f"model.{name} is {now}, but the encoder in {self.folder} has {before}. Remove the setting.",
                    code="invalid-setting",
                )
        if not extends(tokenizer, self.tokenizer):
            problems.add(
                f"the corpus was built with a tokenizer other than that of {self.folder}. Build it with "
                f"--tokenizer {self.folder}, or with one made by `osbert tokenizer extend {self.folder} ...`.",
                code="mismatched-tokenizer",
            )

    def learner(
        self, objectives: Mapping[str, Objective], model: Sizes, tokenizer: AnyTokenizer, *, seed: int
    ) -> tuple[Learner, list[str]]:
        """Return the learner, and the names of its heads and companions that the folder lacks (newly initialised)."""
        with fix_seed(seed):
            backbone = model.replace(vocabulary=self.architecture.vocabulary).build()
            heads: dict[str, Head] = {name: objective.head(backbone) for name, objective in objectives.items()}
        self.source.fill(Learner(backbone, {}))
        fresh = []
        for name, head in heads.items():
            rows = fill_heads(self.source.tensors, Learner(backbone, {name: head}))
            if any(row.status == "new" for row in rows):
                fresh.append(name)
        self.source.release()
        learner = Learner(backbone, heads)
        fresh += [name for name, companion in learner.companions.items() if not self._load_companion(name, companion)]
        # Only now are embeddings added for new pieces: the weights in the folder have the old vocabulary's size.
        add_pieces(learner, spellings(self.tokenizer, tokenizer))
        return learner, fresh

    def _load_companion(self, name: str, companion: Learner) -> bool:
        """Load a companion from its subfolder; return whether all weights that its head needs were there."""
        source = open_folder(self.folder / name, self.source.opening)
        try:
            source.fill(companion).require_complete(str(source), but="pooler.")
        except UserError:  # it is not there, or of another size
            return False
        return True

    def read_held_out(self) -> list[Batch]:
        """Return the held-out batches of the encoder's run; [] if the folder has none."""
        path = self.folder / KEPT_OUT
        return read_batches(path) if path.is_file() else []
