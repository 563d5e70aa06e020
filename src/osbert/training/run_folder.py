"""A run folder's identity: the settings and inputs it was begun with, and the refusal to mix in others."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from osbert import recipe
from osbert.errors import UserError
from osbert.files import file_sha256, file_stamp, refuse_foreign, remove_abandoned, require_utf8, write_json, write_text
from osbert.guarded import read_json

RECIPE = "recipe.toml"
FACTS = "run.json"
OURS = (
    *("config.json", "model.safetensors", "tuned.safetensors", "tokenizer.json", "vocab.txt", "metrics.jsonl"),
    *("corpus.json", RECIPE),
)
SCRATCH = ("speed-test", "adapting")
"""Names that may exist in a folder before its run begins: remains of a killed command, or inputs of the run."""
HASHED = (
    *("model.safetensors", "tuned.safetensors", "model.onnx", "config.json"),
    *("vocab.txt", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    *("modules.json", "sentence_bert_config.json", "1_Pooling/config.json"),
)
"""Files of a finished run whose hashes run.json keeps: predictions follow from them and from the task that recipe.toml
names, which has a hash of its own, since people edit the rest of that file."""
SHA256, TASK_SHA256 = "sha256", "task_sha256"
"""The keys of the hashes among the facts of a finished run."""
HARMLESS = (
    "training.log_every",
    "training.checkpoint_every",
    "training.evaluate_every",
    "training.keep",
    "training.track",
    "training.models_every",
    "training.parallel",
    "data.micro_tokens",
    "data.workers",
    "comparison.seeds",
    "comparison.trials",
)
"""Settings that do not change the mathematics of a run, so that it may go on with others; a comparison can grow."""
REMEDIES = (
    *("optimizer.learning_rate", "optimizer.muon_rate", "optimizer.warmup", "optimizer.clip"),
    *("training.precision", "training.seed"),
)
"""Settings that a run may go on with others of once its losses or weights have become infinite or undefined."""


class RunFolder:
    """recipe.toml, the resolved settings; and run.json, the facts: the run's inputs, sizes and device, and its end."""

    def __init__(self, folder: Path) -> None:
        """Stand for a folder that need not be there yet."""
        self.folder = folder

    @property
    def facts(self) -> dict[str, Any]:
        """Return what run.json says, nothing if there is none. Raises UserError when it is damaged."""
        path = self.folder / FACTS
        try:
            facts = read_json(path) if path.exists() else {}
            if not isinstance(facts, dict) or not isinstance(facts.get("finished", {}), dict):
                raise ValueError("it is no object of a run")
        except ValueError as error:
            raise UserError(
                f"{path} is damaged ({error}). It says what the run was begun with: put it back from a copy of the "
                "folder, or choose another folder for --out.",
                code="damaged-file",
            ) from error
        return facts

    @property
    def begun(self) -> bool:
        """Return whether a run was begun here."""
        return (self.folder / FACTS).exists()

    @property
    def finished(self) -> bool:
        """Return whether the run has come to its end."""
        return "finished" in self.facts

    def refuse_unended(self) -> None:
        """Raise UserError if the folder holds a run that has no model: why, and what to do."""
        if (self.folder / FACTS).is_file():
            raise UserError(self._unended(), code="not-a-model" if self.finished else "unfinished-run")

    def _unended(self) -> str:
        facts = self.facts
        if "finished" in facts:
            # A run of several tasks has a model of each below it, and none of its own.
            if models := sorted(str(path.parent) for path in self.folder.glob("*/config.json")):
                return f"{self.folder} holds a run of several tasks, each with a model of its own: {', '.join(models)}."
            return (
                f"{self.folder} holds a run that has come to its end, but its config.json is missing. Put it back from "
                "a copy of the folder."
            )
        if "failed" in facts:
            return (
                f"{self.folder} holds a run that had to end, for its losses or weights became infinite or undefined: "
                "it has no model. Give its command again with a lower learning rate."
            )
        return (
            f"{self.folder} holds a run that has not come to its end: it has no model yet (config.json is missing). "
            "Give its command again: it goes on where it was."
        )

    def begin(
        self,
        settings: recipe.Table,
        facts: Mapping[str, Any],
        *,
        inputs: tuple[str, ...],
        defaults: Mapping[str, Any] | None = None,
    ) -> list[str]:
        """Write settings and facts for a new run, or check that the run that is there is the same one.

        `inputs` are the facts that must not differ. `defaults`: of the settings; where the version that began the run
        had not yet a setting, it must be at its default. Returns how the settings differ from those of a run that had
        to end (see `fail`); run.json keeps that as "changes". Raises UserError with the difference when other settings
        or inputs differ, or when the folder holds something else.
        """
        require_utf8(self.folder)  # before the work: checkpoints could not be written
        before = dict(self.facts)
        failed, changes = before.pop("failed", None), []
        self.refuse_foreign()
        if not before:
            self.folder.mkdir(parents=True, exist_ok=True)
        else:
            remove_abandoned(self.folder)
            lines = changed_settings(before.get("settings", {}), settings, defaults or {})
            changes = self._allowed(lines, before, {name: facts[name] for name in inputs}, failed=bool(failed))
        if changes:
            before["changes"] = [*before.get("changes", []), {**failed, "settings": changes}]
        elif failed:
            before["failed"] = failed
        # run.json alone decides whether there is a run: a kill between the two writes leaves one that can go on.
        write_json(self.folder / FACTS, {**before, **facts, "settings": settings})
        if not self.finished:  # its recipe may say more by now (`write_recipe`)
            self.write_recipe(settings)
        return changes

    def write_recipe(self, settings: recipe.Table) -> None:
        """Write recipe.toml; before `finish`, with what the run has learnt besides weights, such as a threshold.

        run.json keeps the settings as they were given, with which those of a later command are compared.
        """
        write_text(self.folder / RECIPE, recipe.dump(settings))

    def fail(self, step: int) -> None:
        """Note that the run had to end at a step, for its losses or weights are infinite: it may go on otherwise."""
        write_json(self.folder / FACTS, {**self.facts, "failed": {"step": step}})

    def note(self, **facts: Any) -> None:
        """Add facts about a run that goes on, such as corrections of its steps."""
        write_json(self.folder / FACTS, {**self.facts, **facts})

    def reopen(self) -> None:
        """Note that the run is not finished any more: what it has written is about to be replaced."""
        write_json(self.folder / FACTS, {name: value for name, value in self.facts.items() if name != "finished"})

    def changes(self, settings: recipe.Table, defaults: Mapping[str, Any]) -> list[str]:
        """Return how settings differ from those that the run was begun with, but for those that change no result."""
        return changed_settings(self.facts.get("settings", {}), settings, defaults)

    def finish(self, results: Mapping[str, Any]) -> None:
        """Note that the run is finished, with the hashes of its files; the last thing to be written."""
        facts = {name: value for name, value in self.facts.items() if name != "failed"}
        hashes = {name: file_sha256(self.folder / name) for name in HASHED if (self.folder / name).is_file()}
        ended = {name: value for name, value in results.items() if name not in (SHA256, TASK_SHA256)}
        ended |= {SHA256: hashes, TASK_SHA256: self._task_sha256()} if hashes else {}
        write_json(self.folder / FACTS, {**facts, "finished": ended})

    def changed(self, among: Collection[str] = (*HASHED, RECIPE)) -> list[str]:
        """Return which files differ from their hashes in run.json, or are missing. Reads each once.

        recipe.toml is among them where it names another task, or has other settings of it. A run of an earlier version
        has no hashes. `among`: the files to compare.
        """
        finished = self.facts.get("finished", {})
        hashes = finished.get(SHA256)
        known = hashes if isinstance(hashes, dict) else {}
        files = [name for name in HASHED if name in known and name in among and self._sha256(name) != known[name]]
        task = RECIPE in among and TASK_SHA256 in finished and finished[TASK_SHA256] != self._task_sha256()
        return [*files, *([RECIPE] if task else [])]

    def stamps(self) -> tuple[tuple[int, ...] | None, ...]:
        """Return a cheap sign that a hashed file, or run.json, may have changed: its size, times and inode.

        None is a file that is missing.
        """
        return tuple(file_stamp(self.folder / name) for name in (FACTS, *HASHED))

    def refuse_foreign(self) -> None:
        """Raise UserError when the folder holds files but no run; hidden ones and logs do not count.

        A run.json without settings is a stranger's.
        """
        if "settings" not in self.facts:
            reason = f"its {FACTS} is of something else" if self.begun else f"{FACTS} is missing"
            refuse_foreign(self.folder, f"a run ({reason})", SCRATCH)

    def _sha256(self, name: str) -> str:
        """Return the hash of a file, "" where it is missing."""
        path = self.folder / name
        return file_sha256(path) if path.is_file() else ""

    def _task_sha256(self) -> str:
        """Return the hash of the task that recipe.toml names, with its settings but for where its data lay."""
        path = self.folder / RECIPE
        table = recipe.read(path) if path.is_file() else {}
        name = str(table.get("task", ""))
        settings = table.get(name.rpartition(".")[2])
        if isinstance(settings, dict):
            settings = {key: value for key, value in settings.items() if key not in ("data", "dev")}
        return hashlib.sha256(json.dumps([name, settings], sort_keys=True, default=str).encode()).hexdigest()

    def _allowed(
        self, lines: Sequence[str], before: Mapping[str, Any], inputs: Mapping[str, Any], *, failed: bool
    ) -> list[str]:
        """Return the remedies among changed settings, allowed when the run has `failed`; refuse all other changes."""
        remedies = tuple(f"{name}:" for name in (REMEDIES if failed else ()))
        changes = [line for line in lines if line.startswith(remedies)]
        lines = [line for line in lines if line not in changes]
        lines += recipe.difference({name: before.get(name) for name in inputs}, inputs)
        if lines:
            raise UserError(
                f"{self.folder} holds a run with other settings:\n"
                + "\n".join(f"  {line}" for line in lines)
                + "\nGive the settings it was begun with to go on with it, or choose another folder for --out.",
                code="begun-with-other-settings",
            )
        return changes


def changed_settings(
    before: Mapping[str, Any],
    settings: recipe.Table,
    defaults: Mapping[str, Any],
    harmless: Collection[str] = HARMLESS,
) -> list[str]:
    """Return a line for each setting that differs from those of a run, but for those that are `harmless`.

    >>> before, now = {"training": {"seed": 0}}, {"training": {"seed": 1, "rate": 0.5}}
    >>> changed_settings(before, now, {"training": {"rate": 0.5}})
    ['training.seed: 0 -> 1']
    """
    lines = recipe.difference(_extended(before, defaults), settings)
    return [line for line in lines if not line.startswith(tuple(f"{name}:" for name in harmless))]


def _extended(settings: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of a run with the defaults of those that the version which began it did not have.

    >>> _extended({"data": {"text": "a"}}, {"data": {"text": "", "skip": False}})
    {'data': {'text': 'a', 'skip': False}}
    """
    extended = {**defaults, **settings}
    for key, value in settings.items():
        if isinstance(value, Mapping) and isinstance(defaults.get(key), Mapping):
            extended[key] = _extended(value, defaults[key])
    return extended
