"""The identity of a run folder: the settings and inputs of its run; other settings or inputs are rejected."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from osbert import recipe
from osbert.errors import UserError
from osbert.files import file_sha256, file_stamp, refuse_foreign, remove_abandoned, require_utf8, write_json, write_text
from osbert.guarded import read_json

RECIPE = "recipe.toml"
_TWO_HASHES = re.compile(r'"[0-9a-f]{64}" -> "[0-9a-f]{64}"')
FACTS = "run.json"
OURS = (
    *("config.json", "model.safetensors", "tuned.safetensors", "tokenizer.json", "vocab.txt", "metrics.jsonl"),
    *("corpus.json", RECIPE),
)
SCRATCH = ("speed-test", "adapting")
"""Names that may exist in a folder before its run begins: remains of a killed command, or inputs."""
HASHED = (
    *("model.safetensors", "tuned.safetensors", "model.onnx", "config.json"),
    *("vocab.txt", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    *("modules.json", "sentence_bert_config.json", "1_Pooling/config.json"),
)
"""Files of a finished run whose hashes are in run.json. They determine the predictions, together with the task of
recipe.toml, which has its own hash because people edit the rest of that file."""
SHA256, TASK_SHA256 = "sha256", "task_sha256"
"""The keys of these hashes in run.json."""
ORIGIN_TOKENS = "origin_tokens"
"""Key in run.json: pretraining tokens of the encoder that was trained further."""
HARMLESS = (
    "training.log_every",
    "training.checkpoint_every",
    "training.evaluate_every",
    "training.keep",
    "training.checkpoint_writing",
    "training.track",
    "training.models_every",
    "training.parallel",
    "data.micro_tokens",
    "data.workers",
    "comparison.seeds",
    "comparison.trials",
)
"""Settings that do not change a run's results, so that it may be resumed with others; comparisons can grow."""
REMEDIES = (
    *("optimizer.learning_rate", "optimizer.muon_rate", "optimizer.warmup", "optimizer.clip"),
    *("training.precision", "training.seed"),
)
"""Settings that may be changed to resume a run whose losses or weights have become infinite or undefined."""


class RunFolder:
    """recipe.toml, the resolved settings; and run.json, the run's inputs, sizes, device and results."""

    def __init__(self, folder: Path) -> None:
        """Use a folder, which need not exist yet."""
        self.folder = folder

    @property
    def facts(self) -> dict[str, Any]:
        """Return the contents of run.json, {} if it does not exist. Raises UserError if it is damaged."""
        path = self.folder / FACTS
        try:
            facts = read_json(path) if path.exists() else {}
            if not isinstance(facts, dict) or not isinstance(facts.get("finished", {}), dict):
                raise ValueError("it is not an object that a run writes")
        except ValueError as error:
            raise UserError(
                f"{path} is damaged ({error}). It records the settings of the run. Restore it from a copy of the "
                "folder, or choose another folder for --out.",
                code="damaged-file",
            ) from error
        return facts

    @property
    def begun(self) -> bool:
        """Return whether the folder has a run.json."""
        return (self.folder / FACTS).exists()

    @property
    def finished(self) -> bool:
        """Return whether the run has finished, so that its model exists."""
        return "finished" in self.facts

    @property
    def pretraining_tokens(self) -> int | None:
        """Return an upper bound of the pretraining tokens of an encoder: steps x sequences x length.

        None if the folder does not say: published models, models trained further from them, and fine-tuned runs.
        """
        facts = self.facts
        before = facts.get(ORIGIN_TOKENS) if facts.get("origin") else 0
        settings = facts.get("settings", {})
        if "vectors" in settings:  # word2vec or GloVe: epochs read the whole corpus, unless a time budget ends them
            return int(facts.get("finished", {}).get("tokens", facts.get("tokens", 0) * settings.get("epochs", 1)))
        if before is None or "objectives" not in settings:  # an origin of which nothing is known, or no pretraining
            return None
        try:
            return int(before + settings["training"]["steps"] * settings["data"]["batch"] * settings["data"]["length"])
        except (KeyError, TypeError):  # written by hand
            return None

    @property
    def origin_facts(self) -> dict[str, int]:
        """Return the entry of run.json for a run that trains this folder's encoder further: its pretraining tokens."""
        tokens = self.pretraining_tokens
        return {} if tokens is None else {ORIGIN_TOKENS: tokens}

    def refuse_unended(self) -> None:
        """Raise UserError with the reason and advice if the folder holds a run without a model."""
        if not (self.folder / FACTS).is_file():
            return
        # A run of several tasks has a model of each below it, and none of its own.
        models = sorted(str(path.parent) for path in self.folder.glob("*/config.json"))
        if self.finished and models:
            reason = f"of several tasks, each with a model of its own: {', '.join(models)}."
        elif self.finished:
            reason = "that has come to its end, but its config.json is missing. Put it back from a copy of the folder."
        elif "failed" in self.facts:
            reason = (
                "that had to end, for its losses or weights became infinite or undefined: it has no model. Give its "
                "command again with a lower learning rate."
            )
        else:
            reason = (
                "that has not come to its end: it has no model yet (config.json is missing). Give its command again: "
                "it goes on where it was."
            )
        code = "not-a-model" if self.finished else "unfinished-run"
        raise UserError(f"{self.folder} holds a run {reason}", code=code)

    def begin(
        self,
        settings: recipe.Table,
        facts: Mapping[str, Any],
        *,
        inputs: tuple[str, ...],
        defaults: Mapping[str, Any] | None = None,
    ) -> list[str]:
        """Write the settings and facts of a new run, or check that the existing run has the same.

        `inputs`: the facts that must not differ. `defaults`: default settings; a setting that did not exist in the
        version that began the run must have its default. Returns the changed settings of a run that failed (see
        `fail`), which run.json keeps as "changes". Raises UserError with the differences if other settings or inputs
        differ, or if the folder holds something else.
        """
        require_utf8(self.folder)  # before the work: checkpoints could not be written
        # `before` becomes the old facts without "failed", which is written again unless a remedy was given.
        before = self.refuse_foreign()
        failed, changes = before.pop("failed", None), []
        if not before:
            self.folder.mkdir(parents=True, exist_ok=True)
        else:
            remove_abandoned(self.folder)
            lines = diff_settings(before.get("settings", {}), settings, defaults or {})
            changes = self._allow_changes(
                lines, before, {name: facts.get(name) for name in inputs}, failed=bool(failed)
            )
        if changes:
            before["changes"] = [*before.get("changes", []), {**failed, "settings": changes}]
        elif failed:
            before["failed"] = failed
        # run.json alone decides whether there is a run: a kill between the two writes leaves one that can go on.
        write_json(self.folder / FACTS, {**before, **facts, "settings": settings})
        if "finished" not in before:  # else its recipe may say more by now (`write_recipe`)
            self.write_recipe(settings)
        return changes

    def write_recipe(self, settings: recipe.Table) -> None:
        """Write recipe.toml; before `finish`, with values that the run has learnt, such as a threshold.

        run.json keeps the settings as given, to compare those of a later command with them.
        """
        write_text(self.folder / RECIPE, recipe.dump(settings))

    def fail(self, step: int) -> None:
        """Record that the run failed at a step because of infinite losses or weights; REMEDIES may then be changed."""
        write_json(self.folder / FACTS, {**self.facts, "failed": {"step": step}})

    def note(self, **facts: Any) -> None:
        """Add facts to run.json, such as corrections of the number of steps."""
        write_json(self.folder / FACTS, {**self.facts, **facts})

    def reopen(self) -> None:
        """Record that the run is not finished any more, before its files are replaced."""
        write_json(self.folder / FACTS, {name: value for name, value in self.facts.items() if name != "finished"})

    def changes(self, settings: recipe.Table, defaults: Mapping[str, Any]) -> list[str]:
        """Return the differences from the settings of the run, without those that do not change its results."""
        return diff_settings(self.facts.get("settings", {}), settings, defaults)

    def finish(self, results: Mapping[str, Any]) -> None:
        """Record that the run is finished, with the hashes of its files. This is the last write of a run."""
        facts = {name: value for name, value in self.facts.items() if name != "failed"}
        hashes = {name: file_sha256(self.folder / name) for name in HASHED if (self.folder / name).is_file()}
        ended = {name: value for name, value in results.items() if name not in (SHA256, TASK_SHA256)}
        ended |= {SHA256: hashes, TASK_SHA256: self._task_sha256()} if hashes else {}
        write_json(self.folder / FACTS, {**facts, "finished": ended})

    def find_changes(self, among: Collection[str] = (*HASHED, RECIPE)) -> list[str]:
        """Return the files that are missing or differ from their hashes in run.json. Reads each file once.

        recipe.toml is included if it has another task or other settings of it. Runs of earlier versions have no hashes.
        `among`: the files to compare.
        """
        finished = self.facts.get("finished", {})
        hashes = finished.get(SHA256)
        known = hashes if isinstance(hashes, dict) else {}
        hashed = {name: self.folder / name for name in HASHED if name in known and name in among}
        files = [name for name, path in hashed.items() if not path.is_file() or file_sha256(path) != known[name]]
        task = RECIPE in among and TASK_SHA256 in finished and finished[TASK_SHA256] != self._task_sha256()
        return [*files, *([RECIPE] if task else [])]

    def stamps(self) -> tuple[tuple[int, ...] | None, ...]:
        """Return size, times and inode of run.json and each hashed file, a cheap sign of changes.

        None for a missing file.
        """
        return tuple(file_stamp(self.folder / name) for name in (FACTS, *HASHED))

    def refuse_foreign(self) -> dict[str, Any]:
        """Return `facts`. Raises UserError if the folder holds files but no run; hidden files and logs are ignored.

        A run.json without settings is not osbert's.
        """
        if "settings" not in (facts := self.facts):
            reason = f"its {FACTS} is of something else" if self.begun else f"{FACTS} is missing"
            refuse_foreign(self.folder, f"a run ({reason})", SCRATCH)
        return facts

    def _task_sha256(self) -> str:
        """Return the hash of the task in recipe.toml and its settings, without the paths of its data."""
        path = self.folder / RECIPE
        table = recipe.read(path) if path.is_file() else {}
        name = str(table.get("task", ""))
        settings = table.get(name.rpartition(".")[2])
        if isinstance(settings, dict):
            settings = {key: value for key, value in settings.items() if key not in ("data", "dev")}
        return hashlib.sha256(json.dumps([name, settings], sort_keys=True, default=str).encode()).hexdigest()

    def _allow_changes(
        self, lines: Sequence[str], before: Mapping[str, Any], inputs: Mapping[str, Any], *, failed: bool
    ) -> list[str]:
        """Return the changed settings among REMEDIES if the run has `failed`. Raises UserError for other changes."""
        remedies = tuple(f"{name}:" for name in (REMEDIES if failed else ()))
        changes = [line for line in lines if line.startswith(remedies)]
        lines = [line for line in lines if line not in changes]
        lines += recipe.difference({name: before.get(name) for name in inputs}, inputs)
        if lines:
            raise UserError(
                f"{self.folder} holds a run with other settings:\n"
                + "\n".join(_TWO_HASHES.sub("another content", f"  {line}") for line in lines)
                + "\nGive the settings and data that it was begun with, or choose another folder for --out.",
                code="begun-with-other-settings",
            )
        return changes


def diff_settings(
    before: Mapping[str, Any], settings: recipe.Table, defaults: Mapping[str, Any], harmless: Collection[str] = HARMLESS
) -> list[str]:
    """Return a line for each setting that differs from the run's, without those that are `harmless`.

    >>> before, now = {"training": {"seed": 0}}, {"training": {"seed": 1, "rate": 0.5}}
    >>> diff_settings(before, now, {"training": {"rate": 0.5}})
    ['training.seed: 0 -> 1']
    """
    lines = recipe.difference(_add_defaults(before, defaults), settings)
    return [line for line in lines if not line.startswith(tuple(f"{name}:" for name in harmless))]


def _add_defaults(settings: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Add the defaults of settings that the version which began the run did not have.

    >>> _add_defaults({"data": {"text": "a"}}, {"data": {"text": "", "skip": False}})
    {'data': {'text': 'a', 'skip': False}}
    """
    extended = {**defaults, **settings}
    for key, value in settings.items():
        if isinstance(value, Mapping) and isinstance(defaults.get(key), Mapping):
            extended[key] = _add_defaults(value, defaults[key])
    return extended
