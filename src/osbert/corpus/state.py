"""The state of a build: its settings, the finished shards, and the position in the input behind them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from osbert.errors import UserError
from osbert.extensions import require_extension
from osbert.files import read_sealed, write_sealed
from osbert.reading.data_file import all_sampled_sha256, sampled_sha256
from osbert.reading.documents import DocumentOptions
from osbert.reading.inputs import Input
from osbert.recipe import difference
from osbert.text.file_tokenizer import AnyTokenizer
from osbert.text.words import Words, segmenter

STATE = "building.json"
CONTENT = "sha256"
"""The fact with the hash of an input's content; corpora of earlier versions do not have it."""

Language = Literal["", "en", "de", "fr", "es", "it", "pt", "nl", "ru", "uk", "zh", "ja", "ko", "el", "he", "th"]


@dataclass(frozen=True, kw_only=True)
class Filters:
    """Filters of documents in text from the web, which work in tasks applies (--executor); by default all are kept."""

    language: Language = ""
    """Keep only documents in this language; "" for any."""
    quality: bool = False
    """Drop documents that do not look like prose: menus, tables, lists of words."""
    near_duplicates: bool = False
    """Drop near-duplicates of earlier documents, detected by MinHash over 5-grams of words."""


@dataclass(frozen=True, kw_only=True)
class BuildSettings:
    """Settings that determine the content of a corpus. The number of workers has no effect and is not among them."""

    reading: DocumentOptions = field(default_factory=DocumentOptions)
    """How input files are split into documents."""
    deduplicate: bool = False
    """Drop lines and documents that repeat earlier ones."""
    words: Words = "characters"
    """Word boundaries in Chinese text, which has no spaces."""
    phrases: tuple[str, ...] = ()
    """Phrases that are one word each, for whole-word masking."""
    capitals: bool = False
    """Mark capitalised words."""
    filters: Filters | None = None
    """Filters of documents; None keeps all."""
    shard_tokens: int = 2**25
    """Most pieces in a shard; a single larger portion makes a larger shard."""

    def marks(self, tokenizer: AnyTokenizer) -> dict[str, Any]:
        """Return what `encode_portion` marks, as its keywords."""
        phrases = None
        if self.phrases:
            phrases = require_extension("osbert.corpus.phrases", "marks", "--phrases")(self.phrases, tokenizer)
        return {
            "segment": segmenter(self.words),
            "phrases": phrases,
            "capitals": self.capitals,
        }


@dataclass(frozen=True, kw_only=True)
class Position:
    """A position between two portions: `chunks` chunks of input number `input` have been processed.

    `repairs`: the counts before that input. Reading it again from its start counts its repairs again.
    """

    input: int = 0
    chunks: int = 0
    repairs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(kw_only=True)
class BuildState:
    """The saved state of a build, the content of building.json."""

    identity: dict[str, Any]
    shards: list[dict[str, Any]] = field(default_factory=list)
    position: Position = field(default_factory=Position)
    opened: bool = False
    """Whether a document was opened at the end and has no pieces yet."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Number of documents dropped by each filter."""
    seconds: float = 0.0
    complete: bool = False
    """Whether all text is in shards; `position.repairs` then has all repairs."""

    def save(self, folder: Path) -> None:
        """Write building.json atomically, with a checksum."""
        write_sealed(folder / STATE, asdict(self))

    @classmethod
    def load(cls, folder: Path) -> BuildState | None:
        """Read building.json; None if there is none. Raises UserError if it is damaged."""
        path = folder / STATE
        if not path.is_file():
            return None
        try:
            table = read_sealed(path)
            return cls(**{**table, "position": Position(**table["position"])})
        except (ValueError, TypeError, KeyError) as error:
            raise UserError(
                f"{path}: the file is damaged ({error}). Remove {folder} and build the corpus again.",
                code="damaged-file",
            ) from error


def identity(inputs: Sequence[Input], settings: BuildSettings, fingerprint: str) -> dict[str, Any]:
    """Return what must not change between the runs of a build: inputs, settings, tokenizer.

    An input is known by name, size, time of change and content (`sampled_sha256`).
    """
    table = asdict(settings)
    table.update(table.pop("filters") or {})
    # Corpora from before these settings have no entry for them, and a list is known by its hash.
    if phrases := table.pop("phrases"):
        table["phrases"] = hashlib.sha256("\n".join(phrases).encode()).hexdigest()
    if not table["capitals"]:
        del table["capitals"]
    return {
        "inputs": input_facts(inputs),
        "settings": {**table.pop("reading"), **table},
        "tokenizer": fingerprint,
    }


def input_facts(inputs: Sequence[Input]) -> list[dict[str, Any]]:
    """Return the facts by which inputs are known, as JSON."""
    hashes = all_sampled_sha256([source.path for source in inputs])
    return [
        {"name": source.path.as_posix(), "size": source.size, "mtime": source.mtime, CONTENT: sha256}
        for source, sha256 in zip(inputs, hashes, strict=True)
    ]


def changed_inputs(facts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of inputs that are there and have another content than the facts say."""
    known = [(Path(entry["name"]), entry[CONTENT]) for entry in facts if CONTENT in entry]
    return [str(path) for path, sha256 in known if path.is_file() and sampled_sha256(path) != sha256]


def refuse_other(
    folder: Path, old: Mapping[str, Any], new: Mapping[str, Any], *, inputs_read: int | None = None
) -> None:
    """Raise UserError with the differences if the corpus of a folder was begun with other settings.

    `inputs_read`: the number of inputs that a build has begun; later ones may have changed. None: all. Changing the
    handling of errors from strict to "replace" is allowed: text that strict reading accepts is read in the same way.
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
            f"{folder} contains a corpus that was built with other settings:\n{listed}\nChoose another folder, or "
            "remove this one to build the corpus again.",
            code="begun-with-other-settings",
        )


def _input_differences(old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]) -> list[str]:
    if len(old) != len(new):
        return [f"inputs: {len(old)} files -> {len(new)} files"]
    both = [
        (Path(old_input["name"]).name, _change(old_input, other)) for old_input, other in zip(old, new, strict=True)
    ]
    changed = [f"input {name}: {change}" for name, change in both if change]
    return changed[:5] + ([f"... and {len(changed) - 5} more inputs"] if len(changed) > 5 else [])


def _change(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Return how an input differs from before, "" if it does not."""
    # Folders are not compared: the same files may be named from another place.
    if (name := Path(new["name"]).name) != Path(old["name"]).name:
        return f"-> {name}"
    if old["size"] != new["size"]:
        return f"{old['size']:,} -> {new['size']:,} bytes"
    if old.get(CONTENT, new[CONTENT]) != new[CONTENT]:
        return "the same size, but another content"
    return "" if old["mtime"] == new["mtime"] else "the same size, but written at another time"
