"""The encoders of a table: pretrained for it row by row, or one existing model for all rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from osbert import recipe
from osbert.corpus.shards import Corpus
from osbert.errors import Problems, UserError
from osbert.files import file_sha256
from osbert.interop.opening import CAREFUL, Opening
from osbert.recipe import as_table, defaults, difference
from osbert.runs.pretrain.pretraining_run import MODELS
from osbert.runs.pretrain.settings import read_plan, read_settings
from osbert.training.run_folder import HARMLESS, RunFolder, diff_settings
from osbert_lab.papers.tables import PaperTable, TableRow, keywords, words
from osbert_lab.static_vectors.settings import StaticSettings, read_vector_settings, vector_schema
from osbert_lab.study.runner import StudyTrial

PRETRAINING = "pretraining"
"""The part of a protocol with the settings of each row's pretraining."""
HARMLESS_HERE = tuple(name for name in HARMLESS if name != "training.models_every")
"""Settings that change no figure. `training.models_every` is not among them: rows may use intermediate models."""


class TableEncoders(Protocol):
    """The encoders of a table's rows."""

    def trials(self, rows: Sequence[TableRow], seed: int, out: Path) -> Iterator[StudyTrial]:
        """Yield the pretraining runs of one seed, in folders below `out`."""
        ...

    def folder(self, row: TableRow, seed: int, out: Path) -> Path:
        """Return the folder of a row's encoder for one seed."""
        ...

    def protocol(self, rows: Sequence[TableRow], out: Path) -> dict[str, Any]:
        """Return everything that the figures depend on. Raises UserError if an encoder cannot be made or read."""
        ...

    def changes(self, rows: Sequence[TableRow], before: Mapping[str, Any], protocol: Mapping[str, Any]) -> list[str]:
        """Describe how the settings differ from those of an earlier protocol, apart from settings that change no
        figure."""
        ...

    def describe(self, row: TableRow, out: Path) -> str:
        """Describe the encoders for the report; they must exist."""
        ...

    def finetuning(self, table: PaperTable) -> Mapping[str, Any]:
        """Return the default settings of fine-tuning for these encoders."""
        ...


@dataclass(frozen=True, kw_only=True)
class PretrainedEncoders:
    """One encoder for each row and seed, pretrained by the row's recipe or the common one. `settings`: for all rows."""

    recipe: str
    corpus: Path
    settings: Mapping[str, Any] = field(default_factory=dict)
    usual: Mapping[str, Any] = field(default_factory=dict)
    """Default settings; `settings` takes precedence."""
    opening: Opening = CAREFUL

    def trials(self, rows: Sequence[TableRow], seed: int, out: Path) -> Iterator[StudyTrial]:
        """Yield the pretraining of every row that does not use another row's encoder."""
        for row in rows:
            if row.encoder:
                continue
            folder = self.folder(row, seed, out)
            seeded = dict.fromkeys(("seed",) if self._is_static(row) else ("training.seed", "data.seed"), seed)
            command = ("pretrain", row.recipe or self.recipe, *words(self.merge_settings(row)), *words(seeded))
            command += ("--corpus", str(row.own_corpus(self.corpus)), "--out", str(folder), *self.opening.words)
            yield StudyTrial(name=f"{row.name}, seed {seed}", settings=command, folder=folder, seed=seed)

    def folder(self, row: TableRow, seed: int, out: Path) -> Path:
        """Return the folder of a row's encoder: its run folder, or an intermediate model in it."""
        folder = run_folder(row.encoder or row.name, seed, "encoder", out)
        return folder / MODELS / f"step-{row.step}" if row.step else folder

    def merge_settings(self, row: TableRow) -> dict[str, Any]:
        """Return the settings that override a row's recipe. Precedence, lowest first: defaults, the row's defaults,
        `settings`, the row's own."""
        given = {**self.usual, **row.usual, **self.settings, **row.pretraining}
        if self._is_static(row):
            # The settings of a network that the user gives for all rows, such as model.layers, are not of static
            # vectors.
            names = {field.name for field in dataclasses.fields(StaticSettings)}
            return {name: value for name, value in given.items() if name in row.usual or name in names}
        return given

    def _is_static(self, row: TableRow) -> bool:
        return vector_schema(recipe.read(row.recipe or self.recipe)) is not None

    def read(self, row: TableRow) -> Any:
        """Return the settings of a row's pretraining. Raises UserError for a setting that its recipe does not have."""
        name, given = row.recipe or self.recipe, keywords(self.merge_settings(row))
        return read_vector_settings(name, given) or read_settings(name, given, opening=self.opening)

    def check(self, row: TableRow, out: Path) -> Any:
        """Return the settings of a row's pretraining. Raises UserError if it cannot begin."""
        if self._is_static(row):
            return self.read(row)
        name, given = row.recipe or self.recipe, keywords(self.merge_settings(row))
        corpus = row.own_corpus(self.corpus)
        return read_plan(name, given, corpus=corpus, out=out / "any", opening=self.opening).settings

    def protocol(self, rows: Sequence[TableRow], out: Path) -> dict[str, Any]:
        """Return the resolved settings, and the hashes of the corpus and the tokenizer."""
        settings: dict[str, Any] = {}
        wrong: dict[str, UserError] = {}
        for row in rows:
            if not row.encoder:
                try:
                    settings[row.name] = as_table(self.check(row, out))
                except UserError as error:
                    wrong[row.name] = error
        problems = Problems(heading="These encoders cannot be pretrained")
        # One missing corpus fails every row alike: equal messages are listed once, with the names of their rows.
        for message in dict.fromkeys(map(str, wrong.values())):
            names = [name for name in wrong if str(wrong[name]) == message]
            problems.add_from(", ".join(names), wrong[names[0]])
        problems.stop_if_any()
        corpus = Corpus.open(self.corpus)
        own_recipes = {row.name: row.recipe for row in rows if row.recipe}
        others = {row.name: Corpus.open(row.own_corpus(self.corpus)).content for row in rows if row.corpus}
        return {
            "recipe": own_recipes or self.recipe,
            "corpus": corpus.content,
            "tokenizer": corpus.fingerprint,
            **({"own_corpora": others} if others else {}),
            PRETRAINING: settings,
        }

    def changes(self, rows: Sequence[TableRow], before: Mapping[str, Any], protocol: Mapping[str, Any]) -> list[str]:
        """Describe how the rows' settings differ; a setting unknown to the earlier version must have its default
        value."""
        earlier, now = dict(before.get(PRETRAINING, {})), dict(protocol[PRETRAINING])
        lines = []
        for row in rows:
            # `pop` leaves only rows that one of the two protocols lacks; `difference` then reports them.
            if row.name in earlier and row.name in now:
                usual = defaults(type(self.read(row)))
                differences = diff_settings(earlier.pop(row.name), now.pop(row.name), usual, HARMLESS_HERE)
                lines += [f"{PRETRAINING}.{row.name}.{line}" for line in differences]
        return lines + difference(earlier, now, f"{PRETRAINING}.")

    def describe(self, row: TableRow, out: Path) -> str:
        """Describe one row's size and training steps, which may differ from other rows', and the common corpus."""
        facts = RunFolder(self.folder(row, 0, out)).facts
        sizes = f"row '{row.name}': {facts['finished']['parameters']:,} parameters, "
        sizes += f"{facts['settings']['training']['steps']:,} steps"
        return f"recipe {self.recipe} ({sizes}), corpus of {facts['tokens']:,} tokens"

    def finetuning(self, table: PaperTable) -> Mapping[str, Any]:
        """Return settings for encoders that were pretrained for minutes: a higher learning rate than the paper's.

        Where every row has a recipe of its own, no paper gives the epochs: osbert's defaults choose them by the rows.
        Three epochs of a thousand rows are 94 steps, after which most such encoders give one answer to all rows.
        """
        if all(row.recipe for row in table.rows):
            return {"length": 128}
        return {"epochs": 3, "learning_rate": 5e-4, "length": 128}


@dataclass(frozen=True, kw_only=True)
class GivenEncoder:
    """One existing model for all rows and seeds."""

    model: Path

    def trials(self, rows: Sequence[TableRow], seed: int, out: Path) -> Iterator[StudyTrial]:
        """Yield nothing: the model exists."""
        yield from ()

    def folder(self, row: TableRow, seed: int, out: Path) -> Path:
        """Return the model's folder."""
        return self.model

    def protocol(self, rows: Sequence[TableRow], out: Path) -> dict[str, Any]:
        """Return the hashes of the model's files. Raises UserError if the folder holds no model."""
        from osbert.interop.folder import open_folder

        open_folder(self.model).require_config()
        files = [path for path in sorted(self.model.iterdir()) if path.suffix in (".json", ".safetensors", ".bin")]
        return {"model": hashes([path for path in files if path.name != "run.json"])}

    def changes(self, rows: Sequence[TableRow], before: Mapping[str, Any], protocol: Mapping[str, Any]) -> list[str]:
        """Return nothing: no settings of pretraining can differ."""
        return []

    def describe(self, row: TableRow, out: Path) -> str:
        """Describe the model by its path."""
        return f"the model {self.model}"

    def finetuning(self, table: PaperTable) -> Mapping[str, Any]:
        """Return the paper's settings of fine-tuning for the table."""
        return table.finetuning


def choose(
    table: PaperTable,
    recipe: str,
    *,
    corpus: Path | None,
    model: Path | None,
    settings: Mapping[str, Any],
    opening: Opening = CAREFUL,
) -> TableEncoders:
    """Return the encoders for the options. Raises UserError if both corpus and model are missing, or options
    conflict."""
    if model is None and corpus is None:
        either = "" if table.varied else "--model M to fine-tune a model of yours, or "
        raise UserError(f"Give {either}--corpus C for pretraining.", code="missing-option")
    if model is None:
        assert corpus is not None
        usual = table.usual
        return PretrainedEncoders(recipe=recipe, corpus=corpus, settings=settings, usual=usual, opening=opening)
    if table.varied:
        raise UserError(
            "The rows of this table are different encoders. Give --corpus to pretrain them, not --model.",
            code="options-exclude-each-other",
        )
    if corpus or settings:
        raise UserError(
            "With --model nothing is pretrained. Remove --corpus and the settings of pretraining.",
            code="options-exclude-each-other",
        )
    return GivenEncoder(model=model)


def run_folder(row: str, seed: int, name: str, out: Path) -> Path:
    """Return the folder of one run of a row."""
    return out / "runs" / plain(row) / f"seed-{seed}" / plain(name)


def plain(name: str) -> str:
    """Return the name of a row or column as a folder name: every character that is not alphanumeric becomes a
    hyphen."""
    return "".join(character if character.isalnum() else "-" for character in name).strip("-")


def hashes(files: Sequence[Path]) -> dict[str, str]:
    """Return the SHA-256 of each file, by file name."""
    return {path.name: file_sha256(path) for path in files}
