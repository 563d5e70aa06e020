"""Goes on from a trained encoder on another corpus: its weights, its sizes, and the text that it was measured on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from osbert import recipe
from osbert.data.batch import Batch
from osbert.data.batch_files import read_batches
from osbert.errors import UserError
from osbert.interop.huggingface import read_learner_weights
from osbert.interop.huggingface_names import architecture
from osbert.interop.opening import CAREFUL, Opening
from osbert.interop.tokenizer_files import read_tokenizer
from osbert.interop.tuned_files import read_whole
from osbert.interop.weight_files import fingerprint, read_json
from osbert.models.heads import Head, Learner
from osbert.models.transformer import Architecture
from osbert.models.vocabulary import add_pieces
from osbert.objectives import Objective
from osbert.text.extend import extends, spellings
from osbert.text.tokenizer import Tokenizer

KEPT_OUT = "held_out.npz"
"""The file in a run folder with the batches that the run was measured on."""
FREE = ("vocabulary", "dropout", "attention_dropout", "deviation", "neighbours")
"""Settings of an architecture that fit any weights."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The run folder, or Hugging Face folder, whose encoder is trained further."""

    folder: Path
    architecture: Architecture
    tokenizer: Tokenizer

    @classmethod
    def open(cls, folder: Path, opening: Opening = CAREFUL) -> Origin:
        """Read the config and the tokenizer of a folder. Raises UserError when it is no encoder's, or is damaged."""
        path = folder / "config.json"
        if not path.is_file():
            raise UserError(
                f"{folder} holds no encoder (config.json is missing): --from takes a finished run's folder."
            )
        opening.check(folder)
        sizes = architecture(read_json(path), where=str(path))
        return cls(folder=folder, architecture=sizes, tokenizer=read_tokenizer(folder))

    @property
    def fingerprint(self) -> str:
        """Return a hash of the weights, in whichever files they are."""
        return fingerprint(read_whole(self.folder, CAREFUL.again))

    def recipe(self) -> str:
        """Return the path of the recipe that the encoder was trained by. Raises UserError when there is none."""
        path = self.folder / "recipe.toml"
        if not path.is_file():
            raise UserError(
                f"{self.folder} has no recipe.toml to go on with. Name a recipe: osbert pretrain cpu --from ..."
            )
        return str(path)

    def table(self) -> dict[str, Any]:
        """Return the settings of the model, as a recipe's table; the vocabulary is left to the corpus."""
        return recipe.as_table(replace(self.architecture, vocabulary=0))

    def problems(self, model: Architecture, tokenizer: Tokenizer) -> Iterator[str]:
        """Yield what keeps a model of these settings and a corpus of this tokenizer from starting here."""
        free = (*FREE, "length") if self.architecture.positions == "rotary" else FREE
        for name in (field.name for field in fields(Architecture) if field.name not in free):
            before, now = getattr(self.architecture, name), getattr(model, name)
            if before != now:
                yield f"model.{name} is {now}, but the encoder in {self.folder} has {before}. Leave it out."
        if not extends(tokenizer, self.tokenizer):
            yield (
                f"the corpus was built with another tokenizer than that of {self.folder}. Build it with --tokenizer "
                f"{self.folder}, or with one that `osbert tokenizer extend {self.folder} ...` made."
            )

    def learner(
        self, objectives: Mapping[str, Objective], model: Architecture, tokenizer: Tokenizer, *, seed: int
    ) -> tuple[Learner, list[str]]:
        """Return the learner, and the names of its heads that are not in the folder and so start afresh."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            backbone = replace(model, vocabulary=self.architecture.vocabulary).build()
            heads: dict[str, Head] = {name: objective.head(backbone) for name, objective in objectives.items()}
        fresh = []
        for name, head in heads.items():
            report = read_learner_weights(self.folder, Learner(backbone, {name: head}), CAREFUL.again)
            if any(row.status == "new" and not row.name.startswith("pooler") for row in report.rows):
                fresh.append(name)
        learner = Learner(backbone, heads)
        add_pieces(learner, spellings(self.tokenizer, tokenizer))
        return learner, fresh

    def held_out(self) -> list[Batch]:
        """Return the batches that the encoder was measured on before; none when they were not kept."""
        path = self.folder / KEPT_OUT
        return read_batches(path) if path.is_file() else []
