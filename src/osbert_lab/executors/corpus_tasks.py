"""Builds a corpus in independent tasks: each reads a run of the inputs and writes its own shards.

The tasks are datatrove pipelines, so that its local, Slurm and Ray executors can run them on any machines that share
the folder. A finished task leaves a note; only tasks without one run again. In the end the shards of all tasks, in the
order of the inputs, become the corpus, with the same documents as a build in one process.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from osbert.corpus.build import Build, BuildProgress, Watcher
from osbert.corpus.encode import PORTION, Portion, encode_portion
from osbert.corpus.state import BuildSettings, Filters, Position
from osbert.corpus.task_options import TaskPlan
from osbert.corpus.writer import ShardWriter, lines_folder
from osbert.errors import UserError
from osbert.files import read_own, write_json, write_sealed
from osbert.guarded import read_json
from osbert.reading.documents import DocumentOptions, read_input
from osbert.reading.inputs import Input, OpenInput, Repairs
from osbert.text.file_tokenizer import AnyTokenizer
from osbert.text.normalize import CJK
from osbert_lab.executors.filters import rejecting_filter
from osbert_lab.executors.stages import MOST_TASKS, ExecutorStage, TaskFolders, run_stages, task_folder
from osbert_lab.object_stores.cache import require_copy

NOTE = "task.json"
REPAIRS = "repairs.json"
LEFT_OUT = "left-out-{}.json"
_IDEOGRAPH = re.compile("[" + "".join(f"{chr(first)}-{chr(last)}" for first, last in CJK) + "]")
BUCKETS = 14
"""MinHash: bands of the signature with 8 hashes each; documents that share about 0.72 of their 5-grams match."""

Texts = Iterable[Any]
"""Documents of datatrove, with `text` and `id`; parts of one document have the same id."""


@dataclass(frozen=True)
class ReadStep:
    """The first step of a task: yields the documents of its inputs; a very long one in parts."""

    input_groups: Sequence[Sequence[Input]]
    reading: DocumentOptions
    folder: Path

    def __call__(self, data: Texts | None, rank: int = 0, world_size: int = 1) -> Texts:
        """Yield the documents of task `rank`, then record the repairs. Raises UserError as `require_copy`."""
        from datatrove.data import Document

        repairs = Repairs()
        number = 0
        for source in self.input_groups[rank]:
            require_copy(source.path)
            for chunk in read_input(OpenInput(source, repairs=repairs), self.reading):
                number += chunk.opens
                yield Document(text=chunk.text, id=f"{rank}/{number}")
        task_folder(self.folder, rank).mkdir(parents=True, exist_ok=True)
        write_json(task_folder(self.folder, rank) / REPAIRS, asdict(repairs))


@dataclass(frozen=True)
class FilterStep:
    """A step that drops the documents that the filters reject, and counts them by filter."""

    filters: Filters
    folder: Path

    def __call__(self, data: Texts, rank: int = 0, world_size: int = 1) -> Texts:
        """Yield the documents that the filters keep."""
        left_out: Counter[str] = Counter()
        last = None
        for document in data:
            if reason := rejecting_filter(self.filters, document.text):
                left_out[reason] += document.id != last  # parts of a document come one after another
                last = document.id
            else:
                yield document
        write_json(task_folder(self.folder, rank) / LEFT_OUT.format("filter"), left_out)


class RepeatCounter:
    """Receives the near-duplicates that datatrove drops, and counts them."""

    def __init__(self, folder: Path) -> None:
        """Use the folder of the tasks for the count."""
        self.folder = folder

    def __enter__(self) -> RepeatCounter:
        """Reset the count: one process may run several tasks."""
        self.rank = self.count = 0
        self.last = ""
        return self

    def write(self, document: Any, rank: int = 0, **more: Any) -> None:
        """Count a document of task `rank`; parts of one document count once."""
        self.rank = rank
        self.count += document.id != self.last
        self.last = document.id

    def __exit__(self, *error: object) -> None:
        """Write the count to the folder of the task."""
        if self.count:
            path = task_folder(self.folder, self.rank) / LEFT_OUT.format("repeated")
            write_json(path, {"near_duplicates": self.count})


@dataclass(frozen=True)
class EncodeStep:
    """The last step: encodes the documents, writes the shards of the task, and leaves the note of completion."""

    tokenizer: AnyTokenizer
    settings: BuildSettings
    folder: Path

    def __call__(self, data: Texts, rank: int = 0, world_size: int = 1) -> None:
        """Write the shards of task `rank`, replacing those of an interrupted run."""
        began = time.time()
        folder = task_folder(self.folder, rank)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        writer = ShardWriter(shards=folder, building=folder, id_type=self.tokenizer.id_type, opened=False)
        marks = self.settings.marks(self.tokenizer)
        entries: list[dict[str, Any]] = []
        for portion in _portions(data):
            encoded = encode_portion(portion, self.tokenizer, **marks)
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


def encode_in_tasks(build: Build, plan: TaskPlan, watch: Watcher = lambda progress: None) -> None:
    """Read and encode all inputs of a build in tasks; tasks that finished in an earlier run are skipped.

    Raises UserError if a task fails, and PendingTasks while a cluster is working on them.
    """
    if build.state.shards:
        raise UserError(
            f"{build.folder}: this corpus was begun without --executor. Continue without it, or remove the folder.",
            code="begun-with-other-settings",
        )
    tasks = plan.tasks or min(len(build.inputs), MOST_TASKS)
    folders = TaskFolders(tasks=tasks_folder(build, tasks), work=build.building)

    def report(done: int, total: int) -> None:
        watch(BuildProgress(phase="encoding", done=done, total=total))

    run_stages(list(_stages(build, folders.tasks, tasks)), plan, folders, report)
    gather(build, folders.tasks, tasks)


def _stages(build: Build, folder: Path, tasks: int) -> Iterator[ExecutorStage]:
    filters = build.settings.filters or Filters()
    parts = divide_inputs(build.inputs, tasks)
    sizes = [sum(source.size for source in part) for part in parts]
    read: list[Any] = [ReadStep(parts, build.settings.reading, folder)]
    if filters.language or filters.quality:
        read.append(FilterStep(filters, folder))
    if filters.near_duplicates:
        from datatrove.pipeline.dedup import (
            MinhashConfig,
            MinhashDedupBuckets,
            MinhashDedupCluster,
            MinhashDedupFilter,
            MinhashDedupSignature,
        )
        from datatrove.utils.word_tokenizers import WhitespaceTokenizer

        config = MinhashConfig(num_buckets=BUCKETS)
        signatures, pairs, removed = (str(folder / name) for name in ("signatures", "pairs", "removed"))
        signature = MinhashDedupSignature(signatures, config=config, language=WhitespaceTokenizer())
        signature.word_tokenizer = _Words()
        yield ExecutorStage("signatures", [*read, signature], tasks, sizes)
        yield ExecutorStage("buckets", [MinhashDedupBuckets(signatures, pairs, config=config)], BUCKETS)
        yield ExecutorStage("clusters", [MinhashDedupCluster(pairs, removed, config=config)], 1)
        read = [*read, MinhashDedupFilter(removed, RepeatCounter(folder))]
    yield ExecutorStage("encode", [*read, EncodeStep(build.tokenizer, build.settings, folder)], tasks, sizes)


class _Words:
    """Word tokenizer for MinHash: splits at spaces, and each ideograph is a word."""

    def word_tokenize(self, text: str) -> list[str]:
        """Return the words; datatrove has lower-cased the text and removed its punctuation."""
        return _IDEOGRAPH.sub(r" \g<0> ", text).split()


def divide_inputs(inputs: Sequence[Input], tasks: int) -> list[list[Input]]:
    """Divide the inputs, in order, into `tasks` runs of nearly equal size; some may be empty."""
    total = sum(source.size for source in inputs) or 1
    cut: list[list[Input]] = [[] for _ in range(tasks)]
    before = 0
    for source in inputs:
        # An input goes to the task in whose range its middle byte falls.
        cut[min(tasks - 1, (before + source.size // 2) * tasks // total)].append(source)
        before += source.size
    return cut


def tasks_folder(build: Build, tasks: int) -> Path:
    """Return the folder of the tasks of a build; its name depends on the build, so that builds never mix."""
    key = hashlib.sha256(json.dumps([build.identity, tasks], sort_keys=True).encode()).hexdigest()
    return build.building / f"tasks-{key[:16]}"


def gather(build: Build, folder: Path, tasks: int) -> None:
    """Move the shards of all tasks into the build, in the order of the inputs.

    Raises UserError if a task has no note or a shard is missing. It can be repeated after an interruption.
    """
    notes = [_note(task_folder(folder, rank)) for rank in range(tasks)]
    entries: list[dict[str, Any]] = []
    repairs = Repairs()
    left_out: Counter[str] = Counter()
    for rank, note in enumerate(notes):
        left_out.update(note["left_out"])
        repairs.add(note["repairs"])
        for number, entry in enumerate(note["shards"]):
            source, target = task_folder(folder, rank), build.shard_folder(len(entries))
            _move(source / entry["name"], target)
            _move(lines_folder(source, number), lines_folder(build.building, len(entries)))
            entries.append({**entry, "name": target.name})
    build.take(
        entries,
        Position(input=len(build.inputs), repairs=asdict(repairs)),
        left_out=left_out,
        seconds=union_length(tuple(note["span"]) for note in notes),
    )


def union_length(spans: Iterable[tuple[float, float]]) -> float:
    """Return the length of the union of spans (start, end): the time in which any task was running."""
    total = 0.0
    reached = -math.inf
    for start, end in sorted(spans):
        # Only the part of the span beyond the latest end so far is new.
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
    # An earlier attempt may have moved it already.
    elif not target.is_dir():
        raise UserError(
            f"{source}: the shard is missing. Remove {source.parent} and give the same command again.",
            code="missing-file",
        )


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
