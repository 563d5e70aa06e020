"""The state of a build: its settings, the finished shards, and the position in the input after them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from osbert.corpus.filters import Filters
from osbert.errors import UserError
from osbert.files import read_sealed, write_sealed
from osbert.reading.documents import DocumentOptions
from osbert.reading.inputs import Input
from osbert.recipe import difference
from osbert.text.words import Words

STATE = "building.json"


@dataclass(frozen=True, kw_only=True)
class BuildSettings:
    """What a corpus is made by; the number of workers is not among it, for it changes nothing."""

    reading: DocumentOptions = field(default_factory=DocumentOptions)
    """How input files become documents."""
    deduplicate: bool = False
    """Drop lines and documents that repeat earlier ones."""
    words: Words = "characters"
    """Where words start among Chinese characters, which have no spaces between them."""
    filters: Filters | None = None
    """Which documents stay; None for all."""
    shard_tokens: int = 2**25
    """Pieces in a shard at most (a portion of text that gives more stands alone)."""


@dataclass(frozen=True, kw_only=True)
class Position:
    """A place between two portions: `chunks` of input number `input` have been taken.

    `repairs`: the counts when that input was begun; reading it again from its start counts what is in it again.
    """

    input: int = 0
    chunks: int = 0
    repairs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(kw_only=True)
class BuildState:
    """A build in progress, as building.json keeps it."""

    identity: dict[str, Any]
    shards: list[dict[str, Any]] = field(default_factory=list)
    position: Position = field(default_factory=Position)
    opened: bool = False
    """Whether the last document has been opened but has no pieces yet."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """How many documents each filter left out."""
    seconds: float = 0.0
    complete: bool = False
    """Whether all text is in the shards; `position.repairs` then holds all repairs."""

    def save(self, folder: Path) -> None:
        """Write building.json, whole or not at all."""
        write_sealed(folder / STATE, asdict(self))

    @classmethod
    def load(cls, folder: Path) -> BuildState | None:
        """Read building.json; None when there is none.

        Raises UserError when it is damaged.
        """
        path = folder / STATE
        if not path.is_file():
            return None
        try:
            table = read_sealed(path)
            return cls(**{**table, "position": Position(**table["position"])})
        except (ValueError, TypeError, KeyError) as error:
            raise UserError(
                f"{path}: damaged ({error}); remove {folder} and build again.", code="damaged-file"
            ) from error


def identity(inputs: Sequence[Input], settings: BuildSettings, fingerprint: str) -> dict[str, Any]:
    """Return what must be the same for a build to go on: inputs by name, size and time; settings; tokenizer."""
    table = asdict(settings)
    table.update(table.pop("filters") or {})
    return {
        "inputs": [{"name": source.path.as_posix(), "size": source.size, "mtime": source.mtime} for source in inputs],
        "settings": {**table.pop("reading"), **table},
        "tokenizer": fingerprint,
    }


def refuse_other(
    folder: Path, old: Mapping[str, Any], new: Mapping[str, Any], *, inputs_read: int | None = None
) -> None:
    """Raise UserError with the difference if a folder's corpus was begun with other settings.

    `inputs_read`: inputs that a build has begun; those after them may have changed. None: all.
    What strict reading has accepted, "replace" reads in the same way, so going on with it is allowed.
    """
    settings = dict(new["settings"])
    if settings["errors"] == "replace":
        settings["errors"] = old["settings"]["errors"]
    inputs = (table["inputs"][slice(inputs_read)] for table in (old, new))
    lines = difference(old["settings"], settings) + _input_differences(*inputs)
    if old["tokenizer"] != new["tokenizer"]:
        lines.append(f"tokenizer: {old['tokenizer'][:12]}... -> {new['tokenizer'][:12]}... (another vocabulary)")
    if lines:
        listed = "\n".join(f"  - {line}" for line in lines)
        raise UserError(
            f"{folder} holds a corpus that was asked for in another way:\n{listed}\n"
            "Choose another folder, or remove this one to build it anew.",
            code="begun-with-other-settings",
        )


def _input_differences(old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]) -> list[str]:
    # Folders are not compared: the same files may be named from another place.
    before = [(Path(entry["name"]).name, entry["size"], entry["mtime"]) for entry in old]
    after = [(Path(entry["name"]).name, entry["size"], entry["mtime"]) for entry in new]
    if before == after:
        return []
    if len(before) != len(after):
        return [f"inputs: {len(before)} files -> {len(after)} files"]
    changed = [
        f"input {one[0]}: {_change(one, other)}" for one, other in zip(before, after, strict=True) if one != other
    ]
    return changed[:5] + ([f"... and {len(changed) - 5} more inputs"] if len(changed) > 5 else [])


def _change(old: tuple[str, int, int], new: tuple[str, int, int]) -> str:
    if old[0] != new[0]:
        return f"-> {new[0]}"
    if old[1] != new[1]:
        return f"{old[1]:,} -> {new[1]:,} bytes"
    return "the same size, but written at another time"
