"""Goes on from a trained encoder on another corpus: its weights, its sizes, and the text that it was measured on."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from osbert import recipe
from osbert.data.batch import Batch
from osbert.data.batch_files import read_batches
from osbert.errors import Problems, UserError
from osbert.interop.folder import Folder, open_folder
from osbert.interop.huggingface.folders import fill_heads
from osbert.interop.huggingface.tokenizers import read_any_tokenizer
from osbert.interop.opening import CAREFUL, Opening
from osbert.models.adapting.new_pieces import add_pieces
from osbert.models.contract import DEFAULT_FAMILY, Head, Learner, Sizes
from osbert.models.random_numbers import seeded
from osbert.objectives import Objective
from osbert.text.extend import extends, spellings
from osbert.text.file_tokenizer import AnyTokenizer
from osbert.training.optimizer import OptimizerSettings

KEPT_OUT = "held_out.npz"
"""The file in a run folder with the batches that the run was measured on."""
FURTHER = "further"
"""The packaged recipe by which encoders without a recipe go on."""
KEEPING = 5e-5
"""The highest learning rate that is taken by default. Linear probes of all-MiniLM-L6-v2 on SST-2 after 100 steps keep
their accuracy at it; 3e-3, the rate of the recipe cpu, leaves little of it."""
FREE = ("vocabulary", "dropout", "attention_dropout", "deviation", "neighbours", "scaled_outputs")
"""Settings of an architecture that fit any weights."""


def recipe_of(folder: Path) -> str:
    """Return the path of the recipe that a folder's encoder was pretrained by, else the name of one for others."""
    path = folder / "recipe.toml"
    return str(path) if path.is_file() and "objectives" in recipe.read(path) else FURTHER


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The run folder, or Hugging Face folder, whose encoder is trained further."""

    source: Folder
    architecture: Sizes
    tokenizer: AnyTokenizer

    @classmethod
    def open(cls, folder: Path, opening: Opening = CAREFUL) -> Origin:
        """Read the config and the tokenizer of a folder. Raises UserError when it is no encoder's, or is damaged."""
        if not (folder / "config.json").is_file():
            raise UserError(
                f"{folder} holds no encoder (config.json is missing). Give the folder of a finished run or of a model.",
                code="missing-file",
            )
        source = open_folder(folder, opening)
        return cls(source=source, architecture=source.architecture, tokenizer=read_any_tokenizer(folder, CAREFUL.again))

    @property
    def folder(self) -> Path:
        """Return the path of the folder."""
        return self.source.path

    @property
    def fingerprint(self) -> str:
        """Return a hash of the weights, in whichever files they are."""
        return self.source.fingerprint

    def recipe(self) -> str:
        """Return the path of the recipe that the encoder was pretrained by, else the name of one for such encoders."""
        return recipe_of(self.folder)

    def gentle_rates(self, optimizer: OptimizerSettings, given: Container[str]) -> tuple[OptimizerSettings, list[str]]:
        """Return the optimiser settings with learning rates low enough for trained weights, and lines that report them.

        A recipe's rate is one for fresh weights, and its warm-up does not spare others. `given`: the settings that the
        user has chosen, by their dotted names; their rates stay. Where Muon moves the blocks' matrices, its rate goes
        down by as much as the other one's.
        """
        share = KEEPING / optimizer.learning_rate
        rates = {"learning_rate": optimizer.learning_rate}
        rates |= {"muon_rate": optimizer.muon_rate} if optimizer.method == "muon" else {}
        lower: dict[str, Any] = {
            name: rate * share for name, rate in rates.items() if share < 1 and f"optimizer.{name}" not in given
        }
        lines = [
            f"{name} is {rate:.2g} in place of {rates[name]:g}, which is a rate for fresh weights: it would undo what "
            f"the encoder in {self.folder} has learnt. Another one: --{name.replace('_', '-')}."
            for name, rate in lower.items()
        ]
        return replace(optimizer, **lower), lines

    def table(self) -> dict[str, Any]:
        """Return what a recipe says of the model: its family and settings; the vocabulary is left to the corpus."""
        family = self.architecture.family
        named = None if family == DEFAULT_FAMILY else family
        return {"family": named, "model": recipe.as_table(self.architecture.changed(vocabulary=0))}

    def objectives(self) -> dict[str, list[str]]:
        """Return the objectives in place of those of its `recipe`, for an encoder that has no masked pieces."""
        own = self.architecture.language_objective
        return {"objectives": [own]} if own and self.recipe() == FURTHER else {}

    def check(self, model: Sizes, tokenizer: AnyTokenizer, problems: Problems) -> None:
        """Report what keeps a model of these settings and a corpus of this tokenizer from starting here."""
        free = (*FREE, "length") if self.architecture.any_length else FREE
        if model.family != (family := self.architecture.family):
            problems.add(
                f"family is {model.family}, but the encoder in {self.folder} has {family}. Leave it out.",
                code="invalid-setting",
            )
            return
        for name in (name for name in recipe.as_table(self.architecture) if name not in free):
            before, now = getattr(self.architecture, name), getattr(model, name)
            if before != now:
                problems.add(
                    f"model.{name} is {now}, but the encoder in {self.folder} has {before}. Leave it out.",
                    code="invalid-setting",
                )
        if not extends(tokenizer, self.tokenizer):
            problems.add(
                f"the corpus was built with another tokenizer than that of {self.folder}. Build it with --tokenizer "
                f"{self.folder}, or with one that `osbert tokenizer extend {self.folder} ...` made.",
                code="mismatched-tokenizer",
            )

    def learner(
        self, objectives: Mapping[str, Objective], model: Sizes, tokenizer: AnyTokenizer, *, seed: int
    ) -> tuple[Learner, list[str]]:
        """Return the learner, and the names of its heads and companions that are not in the folder: these are fresh."""
        with seeded(seed):
            backbone = model.changed(vocabulary=self.architecture.vocabulary).build()
            heads: dict[str, Head] = {name: objective.head(backbone) for name, objective in objectives.items()}
        self.source.fill(Learner(backbone, {}))
        fresh = []
        for name, head in heads.items():
            rows = fill_heads(self.source.tensors, Learner(backbone, {name: head}))
            if any(row.status == "new" for row in rows):
                fresh.append(name)
        self.source.release()
        learner = Learner(backbone, heads)
        fresh += [name for name, companion in learner.companions.items() if not self._filled(name, companion)]
        add_pieces(learner, spellings(self.tokenizer, tokenizer))
        return learner, fresh

    def _filled(self, name: str, companion: Learner) -> bool:
        """Fill a companion from the folder of its name; return whether all that its head reads is there."""
        source = open_folder(self.folder / name, self.source.opening)
        try:
            source.fill(companion).require_complete(str(source), but="pooler.")
        except UserError:  # it is not there, or of another size
            return False
        return True

    def held_out(self) -> list[Batch]:
        """Return the batches that the encoder was measured on before; none when they were not kept."""
        path = self.folder / KEPT_OUT
        return read_batches(path) if path.is_file() else []
