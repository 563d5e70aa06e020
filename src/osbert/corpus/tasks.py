"""A corpus built in tasks that run apart: each reads a run of the inputs and writes shards of its own.

The tasks are datatrove pipelines, so that its local, Slurm and Ray executors can run them, on as many machines as share
the folder. A finished task leaves a note behind; when one is killed, it alone is done again. When all have finished,
their shards, in the order of the inputs, become the corpus: the documents that a build in one process gives.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from osbert.corpus.build import Build
from osbert.corpus.encode import PORTION, Portion, encode_portion
from osbert.corpus.filters import Filters
from osbert.corpus.state import BuildSettings, Position
from osbert.corpus.writer import ShardWriter, lines_folder
from osbert.errors import UserError
from osbert.files import read_own, write_json, write_sealed
from osbert.guarded import read_json
from osbert.reading.documents import DocumentOptions, read_input
from osbert.reading.inputs import Input, OpenInput, Repairs
from osbert.text.file_tokenizer import AnyTokenizer
from osbert.text.words import segmenter

NOTE = "task.json"
REPAIRS = "repairs.json"
LEFT_OUT = "left-out-{}.json"
MOST_TASKS = 64
"""Tasks at most when their number is not given."""

Texts = Iterable[Any]
"""datatrove's documents, with `text` and `id`; parts of one document have the same id."""


@dataclass(frozen=True)
class ReadStep:
    """The first step of a task: yields the documents of its inputs. A very long one comes in parts."""

    shares: Sequence[Sequence[Input]]
    reading: DocumentOptions
    folder: Path

    def __call__(self, data: Texts | None, rank: int = 0, world_size: int = 1) -> Texts:
        """Yield the documents of task `rank`, and at last record the corrections."""
        from datatrove.data import Document

        repairs = Repairs()
        number = 0
        for source in self.shares[rank]:
            for chunk in read_input(OpenInput(source, repairs=repairs), self.reading):
                number += chunk.opens
                yield Document(text=chunk.text, id=f"{rank}/{number}")
        task_folder(self.folder, rank).mkdir(parents=True, exist_ok=True)
        write_json(task_folder(self.folder, rank) / REPAIRS, asdict(repairs))


@dataclass(frozen=True)
class FilterStep:
    """A step that lets documents pass which the filters keep, and notes how many each of them did not."""

    filters: Filters
    folder: Path

    def __call__(self, data: Texts, rank: int = 0, world_size: int = 1) -> Texts:
        """Yield the documents that stay."""
        left_out: Counter[str] = Counter()
        last = None
        for document in data:
            if reason := self.filters.reason(document.text):
                left_out[reason] += document.id != last  # parts of a document come one after another
                last = document.id
            else:
                yield document
        write_json(task_folder(self.folder, rank) / LEFT_OUT.format("filter"), left_out)


class RepeatCounter:
    """Takes the documents that datatrove leaves out as near-duplicates, and notes how many they are."""

    def __init__(self, folder: Path) -> None:
        """Note it in the folder of the task."""
        self.folder = folder

    def __enter__(self) -> RepeatCounter:
        """Begin anew, for another task of the same process perhaps."""
        self.rank = self.count = 0
        self.last = ""
        return self

    def write(self, document: Any, rank: int = 0, **more: Any) -> None:
        """Take a document of task `rank`, or a part of one."""
        self.rank = rank
        self.count += document.id != self.last
        self.last = document.id

    def __exit__(self, *error: object) -> None:
        """Leave the note."""
        if self.count:
            path = task_folder(self.folder, self.rank) / LEFT_OUT.format("repeated")
            write_json(path, {"near_duplicates": self.count})


@dataclass(frozen=True)
class EncodeStep:
    """The last step: encodes the documents and writes the shards of the task, then the note that it is finished."""

    tokenizer: AnyTokenizer
    settings: BuildSettings
    folder: Path

    def __call__(self, data: Texts, rank: int = 0, world_size: int = 1) -> None:
        """Write the shards of task `rank` anew."""
        began = time.time()
        folder = task_folder(self.folder, rank)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        writer = ShardWriter(shards=folder, building=folder, id_type=self.tokenizer.id_type, opened=False)
        segment = segmenter(self.settings.words)
        entries: list[dict[str, Any]] = []
        for portion in _portions(data):
            encoded = encode_portion(portion, self.tokenizer, segment=segment)
            if writer.tokens and writer.tokens + encoded.tokens > self.settings.shard_tokens:
                entries.append(writer.write(len(entries)))
            writer.add(encoded)
        if writer.tokens:
            entries.append(writer.write(len(entries)))
        repairs = read_json(folder / REPAIRS)
        left_out: Counter[str] = Counter()
        for path in folder.glob(LEFT_OUT.format("*")):
            left_out.update(read_json(path))
        span = [began, time.time()]
        write_sealed(folder / NOTE, {"shards": entries, "repairs": repairs, "left_out": left_out, "span": span})


def shares(inputs: Sequence[Input], tasks: int) -> list[list[Input]]:
    """Cut the inputs, in order, into so many runs of nearly equal size; some may be empty."""
    total = sum(source.size for source in inputs) or 1
    cut: list[list[Input]] = [[] for _ in range(tasks)]
    before = 0
    for source in inputs:
        cut[min(tasks - 1, (before + source.size // 2) * tasks // total)].append(source)
        before += source.size
    return cut


def task_folder(folder: Path, rank: int) -> Path:
    """Return where a task writes."""
    return folder / f"task-{rank:05d}"


def tasks_folder(build: Build, tasks: int) -> Path:
    """Return where the tasks of a build write: another folder for another build, so that nothing is mixed."""
    key = hashlib.sha256(json.dumps([build.identity, tasks], sort_keys=True).encode()).hexdigest()
    return build.building / f"tasks-{key[:16]}"


def gather(build: Build, folder: Path, tasks: int) -> None:
    """Make the shards that the tasks have written those of the build, in the order of the inputs.

    Raises UserError when a task has left no note or a shard is gone. May be repeated when it was stopped.
    """
    notes = [_note(task_folder(folder, rank)) for rank in range(tasks)]
    entries: list[dict[str, Any]] = []
    repairs = Repairs()
    left_out: Counter[str] = Counter()
    for rank, note in enumerate(notes):
        left_out.update(note["left_out"])
        _add(repairs, note["repairs"])
        for number, entry in enumerate(note["shards"]):
            source, target = task_folder(folder, rank), build.shard_folder(len(entries))
            _move(source / entry["name"], target)
            _move(lines_folder(source, number), lines_folder(build.building, len(entries)))
            entries.append({**entry, "name": target.name})
    build.take(
        entries,
        Position(input=len(build.inputs), repairs=asdict(repairs)),
        left_out=left_out,
        seconds=covered(tuple(note["span"]) for note in notes),
    )


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """Return the length of what spans (start, end) cover together: how long any task was at work."""
    total = 0.0
    reached = -math.inf
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def _note(folder: Path) -> dict[str, Any]:
    try:
        return read_own(folder / NOTE, f"Remove {folder} and give the same command again.")
    except OSError as error:
        raise UserError(
            f"{folder}: the task is not finished; give the same command again.", code="unfinished-run"
        ) from error


def _move(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.rmtree(target, ignore_errors=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        source.rename(target)
    elif not target.is_dir():
        raise UserError(
            f"{source}: the shard is gone; remove {source.parent} and give the same command again.", code="missing-file"
        )


def _add(repairs: Repairs, more: dict[str, Any]) -> None:
    for name, value in more.items():
        if isinstance(value, int):
            setattr(repairs, name, getattr(repairs, name) + value)
    for example in more["examples"]:
        repairs.note(example)


def _portions(documents: Texts) -> Iterator[Portion]:
    portion: list[tuple[str, bool]] = []
    size = 0
    last = None
    for document in documents:
        portion.append((document.text, document.id != last))
        last = document.id
        size += len(document.text)
        if size >= PORTION:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion
