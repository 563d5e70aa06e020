"""A corpus as a function: files of text in, a folder of token shards out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path

from osbert.corpus.build import Build
from osbert.corpus.executors import Executor, PendingTasks, TaskPlan, encode_in_tasks
from osbert.corpus.filters import Filters, Language
from osbert.corpus.shards import Corpus
from osbert.corpus.state import BuildSettings
from osbert.corpus.workers import PART
from osbert.errors import UserError
from osbert.files import require_folder
from osbert.interop.huggingface.tokenizers import read_any_tokenizer, write_any_tokenizer
from osbert.interop.opening import CAREFUL, Opening
from osbert.lock import claim
from osbert.reading.documents import DocumentOptions, Documents  # noqa: F401 - see CorpusSettings
from osbert.reading.encodings import Errors  # noqa: F401
from osbert.runs.contract import Notice, Watch, ignore
from osbert.text.words import Words

OF_TASKS = ("tasks", "language", "quality", "near_duplicates", "partition", "time")
"""Settings that need an executor."""


@dataclass(frozen=True, kw_only=True)
class CorpusSettings(DocumentOptions):
    """What a corpus is built by, and on how many processes or machines."""

    # The command line looks the types of inherited fields up in this module: Documents and Errors must be here.

    deduplicate: bool = False
    """Drop lines that repeat an earlier line, and with them documents that repeat an earlier one."""
    words: Words = "characters"
    """What a Chinese word is, for whole-word masking: each character, the characters without a space between them
    (segmented: a space was put between words before), or what rjieba finds (pip install "osbert[chinese]")."""
    workers: int | None = None
    """Processes that encode; by default all cores, if there is text enough for them. With --executor slurm or ray:
    tasks that run at a time; by default as many as there is room for."""
    shard_tokens: int = 2**25
    """Pieces in a shard at most; what is lost when a build is stopped is at most one shard."""
    executor: Executor | None = None
    """Cut the inputs into tasks that run apart, through datatrove (pip install "osbert[scale]"): in processes here, as
    Slurm jobs, or on Ray. One that is killed is done again alone; finished ones are never done twice."""
    tasks: int = 0
    """With --executor: how many tasks; by default as many as there are inputs, at most 64."""
    language: Language = ""
    """With --executor: keep documents in this language alone, detected by its script and small words."""
    quality: bool = False
    """With --executor: leave out documents that do not look like running text (Gopher's rules)."""
    near_duplicates: bool = False
    """With --executor: leave out documents that nearly repeat another (MinHash over runs of five words)."""
    partition: str = ""
    """With --executor slurm: the partition to run in."""
    time: str = ""
    """With --executor slurm: the longest that a task may take; by default 24:00:00."""

    def build_settings(self) -> BuildSettings:
        """Return what the content of the corpus follows from."""
        filters = Filters(language=self.language, quality=self.quality, near_duplicates=self.near_duplicates)
        return BuildSettings(
            reading=DocumentOptions(**{field.name: getattr(self, field.name) for field in fields(DocumentOptions)}),
            deduplicate=self.deduplicate,
            words=self.words,
            filters=filters if filters != Filters() else None,
            shard_tokens=self.shard_tokens,
        )

    def plan(self) -> TaskPlan | None:
        """Return how the build is spread, None without an executor; UserError for what does not go together."""
        if self.workers is not None and self.workers < 1:
            raise UserError(f"--workers must be 1 or more, not {self.workers}.", code="invalid-value")
        if not 0 < self.shard_tokens < 2**32 - 2**26:  # places within a shard are kept in 32 bits
            raise UserError(
                f"--shard-tokens must be from 1 to {2**32 - 2**26:,}, not {self.shard_tokens:,}.", code="invalid-value"
            )
        if self.executor is None:
            if any(getattr(self, name) for name in OF_TASKS):
                raise UserError(
                    "--tasks, --language, --quality, --near-duplicates, --partition and --time need --executor.",
                    code="options-exclude-each-other",
                )
            return None
        if self.executor != "slurm" and (self.partition or self.time):
            raise UserError(
                f"--partition and --time are Slurm's: leave them out with --executor {self.executor}.",
                code="options-exclude-each-other",
            )
        workers = self.workers or (cores() if self.executor == "local" else 0)
        limit = {"time": self.time} if self.time else {}
        plan = TaskPlan(executor=self.executor, tasks=self.tasks, workers=workers, partition=self.partition, **limit)
        plan.check()
        return plan


def build_corpus(
    files: Sequence[Path | str],
    *,
    tokenizer: Path,
    out: Path,
    settings: CorpusSettings | None = None,
    opening: Opening = CAREFUL,
    watch: Watch = ignore,
) -> Corpus | None:
    """Build a corpus from files and folders into the folder `out`, or go on with one that was stopped; return it.

    `tokenizer`: a tokenizer's folder, or a vocab.txt. `watch` gets BuildProgress and Notice. Returns None while a
    cluster works on the tasks. Raises UserError for what cannot be read, all of it at once.
    """
    settings = settings or CorpusSettings()
    plan = settings.plan()
    require_folder(out)
    cutter = read_any_tokenizer(tokenizer, opening)
    with claim(out):
        work = Build.prepare(files, tokenizer=cutter, folder=out, settings=settings.build_settings())
        if work.report is not None:
            watch(Notice(f"{out} is finished already: these files, this tokenizer and these settings made it."))
        elif work.state.shards:
            done = sum(shard["tokens"] for shard in work.state.shards)
            watch(Notice(f"Going on after {len(work.state.shards)} finished shards ({done:,} tokens)."))
        encode = None if plan is None else partial(encode_in_tasks, work, plan, watch)
        try:
            size = sum(source.size for source in work.inputs)
            work.run(
                workers=settings.workers or min(cores(), 1 + size // PART),
                watch=watch,
                begin=partial(write_any_tokenizer, cutter, out),
                encode=encode,
            )
        except PendingTasks:
            where = plan.executor if plan else "local"
            watch(Notice(f"The tasks are with {where}. Give the same command again when they have ended."))
            return None
    return Corpus.open(out)


def cores() -> int:
    """Return the cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
