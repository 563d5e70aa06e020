"""osbert corpus: text files become a corpus that pretraining reads; a corpus is shown."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.progress import (
    BarColumn,
    ProgressColumn,
    Task,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from osbert.commands.opening_options import OpeningOptions
from osbert.corpus.build import Build, Progress, Watcher
from osbert.corpus.executors import Executor, Plan, Submitted, encode_in_tasks
from osbert.corpus.filters import Filters, Language
from osbert.corpus.shards import Corpus
from osbert.corpus.state import BuildSettings
from osbert.errors import UserError
from osbert.interop.opening import CAREFUL, Opening
from osbert.interop.tokenizer_files import read_tokenizer, write_tokenizer
from osbert.lock import claim
from osbert.reading.documents import Reading
from osbert.terminal import open_console
from osbert.text.document import Document
from osbert.text.tokenizer import Tokenizer
from osbert.text.words import Words

SAMPLE = 3
"""Documents that `show` prints from."""
SENTENCES = 3
"""Sentences of a document that `show` prints."""
PIECES = 60
"""Pieces of a sentence that `show` prints."""


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """How a build is cut into tasks that run apart, and what such tasks can leave out."""

    executor: Executor | None = None
    """Cut the inputs into tasks that run apart, through datatrove (pip install "osbert[scale]"): in processes here, as
    Slurm jobs, or on Ray. One that is killed is done again alone; finished ones are never done twice."""
    tasks: int = 0
    """With --executor: how many tasks; by default as many as there are inputs, at most 64."""
    language: Language = ""
    """With --executor: keep documents in this language alone, told by its script and small words."""
    quality: bool = False
    """With --executor: leave out documents that do not look like running text (Gopher's rules)."""
    near_duplicates: bool = False
    """With --executor: leave out documents that nearly repeat another (MinHash over runs of five words)."""
    partition: str = ""
    """With --executor slurm: the partition to run in."""
    time: str = ""
    """With --executor slurm: the longest that a task may take; by default 24:00:00."""

    @property
    def filters(self) -> Filters | None:
        """Return which documents stay, None for all."""
        chosen = Filters(language=self.language, quality=self.quality, near_duplicates=self.near_duplicates)
        return chosen if chosen != Filters() else None

    def plan(self, workers: int | None) -> Plan | None:
        """Return how the build is spread, None without an executor; UserError for what does not go together."""
        if self.executor is None:
            if self != TaskOptions():
                raise UserError(
                    "--tasks, --language, --quality, --near-duplicates, --partition and --time need --executor."
                )
            return None
        if self.executor != "slurm" and (self.partition or self.time):
            raise UserError(f"--partition and --time are Slurm's: leave them out with --executor {self.executor}.")
        if workers is None:
            workers = _cores() if self.executor == "local" else 0
        plan = Plan(executor=self.executor, tasks=self.tasks, workers=workers, partition=self.partition)
        plan = replace(plan, time=self.time) if self.time else plan
        plan.check()
        return plan


def build(
    files: list[Path],
    /,
    *,
    tokenizer: Path,
    out: Path,
    reading: Annotated[Reading | None, Parameter(name="*")] = None,
    deduplicate: bool = False,
    words: Words = "characters",
    workers: int | None = None,
    shard_tokens: int = 2**25,
    spread: Annotated[TaskOptions | None, Parameter(name="*")] = None,
    opening: OpeningOptions = CAREFUL,
) -> None:
    """Build a corpus from text files.

    Reads .txt, .jsonl and Wikipedia dumps (.xml), all also in .gz, .xz, .zst, .bz2 and .tar, Parquet, and folders of
    these, in memory that no file's size can raise. A build that was stopped at any moment goes on when the same command
    is given again, and ends in the same bytes, whatever the number of workers.

    Parameters
    ----------
    files
        Text files (.txt, .jsonl), Wikipedia dumps (.xml), Parquet, archives of these, and folders. Folders give their
        files with a known ending, sorted.
    tokenizer
        A folder that `osbert tokenizer train` wrote, a Hugging Face tokenizer folder, or a vocab.txt.
    out
        The folder for the corpus.
    deduplicate
        Drop lines that repeat an earlier line, and with them documents that repeat an earlier one.
    words
        What a Chinese word is, for whole-word masking: each character, the characters without a space between them
        (segmented: a space was put between words before), or what rjieba finds (pip install "osbert[chinese]").
    workers
        Processes that encode; all cores by default. With --executor slurm or ray: tasks that run at a time; by default
        as many as there is room for.
    shard_tokens
        Pieces in a shard at most; what is lost when a build is stopped is at most one shard.
    """
    if workers is not None and workers < 1:
        raise UserError(f"--workers must be 1 or more, not {workers}.")
    if not 0 < shard_tokens < 2**32 - 2**26:  # places within a shard are kept in 32 bits
        raise UserError(f"--shard-tokens must be from 1 to {2**32 - 2**26:,}, not {shard_tokens:,}.")
    if out.exists() and not out.is_dir():
        raise UserError(f"{out}: this is a file, and a folder is to be written. Give another --out.")
    cutter = read_tokenizer(tokenizer, opening)
    spread = spread or TaskOptions()
    plan = spread.plan(workers)
    settings = BuildSettings(
        reading=reading or Reading(),
        deduplicate=deduplicate,
        words=words,
        filters=spread.filters,
        shard_tokens=shard_tokens,
    )
    with claim(out):
        work = Build.prepare(files, tokenizer=cutter, folder=out, settings=settings)
        _complete(work, plan, workers=workers or _cores())


def _complete(work: Build, plan: Plan | None, *, workers: int) -> None:
    """Encode what is not encoded yet and print the report; or say that tasks of another system do it."""
    console, out = open_console(), work.folder
    if work.report is not None:
        console.print(Text(f"{out} is finished already: these files, this tokenizer and these settings made it."))
    else:
        if work.state.shards:
            done = sum(shard["tokens"] for shard in work.state.shards)
            console.print(Text(f"Going on after {len(work.state.shards)} finished shards ({done:,} tokens)."))
        with _watching() as watch:
            encode = None if plan is None else partial(encode_in_tasks, work, plan, watch)
            begin = partial(write_tokenizer, work.tokenizer, out)
            try:
                work.run(workers=workers, watch=watch, begin=begin, encode=encode)
            except Submitted:
                where = plan.executor if plan else "local"
                console.print(Text(f"The tasks are with {where}. Give the same command again when they have ended."))
                return
    _print_report(console, out, Corpus.open(out).report)


def show(
    folder: Path,
    /,
    *settings: Annotated[str, Parameter(allow_leading_hyphen=True)],
    sample: int | None = None,
    masks: int = 0,
    recipe: str = "bert-base",
    verify: bool = False,
    trust: bool = False,
) -> None:
    """Show a corpus: its report and a sample, or sequences as a recipe would mask them.

    Parameters
    ----------
    folder
        A folder that `osbert corpus build` made.
    settings
        With --masks: settings laid over the recipe, as `osbert pretrain` takes them, such as --mlm.rate 0.3.
    sample
        Documents to show the first sentences of, from places spread over the corpus: 3 by default, 0 for none.
    masks
        Show so many sequences as pretraining would see them instead, and the rates counted over many.
    recipe
        With --masks: the recipe, a TOML file or the name of a packaged one.
    verify
        Read all of it first and compare it with the hashes it was written with. `osbert pretrain` does so by itself up
        to 1 GiB.
    trust
        With --masks: import the code that the recipe names as an objective.
    """
    console = open_console()
    for name, value in (("masks", masks), ("sample", sample or 0)):
        if value < 0:
            raise UserError(f"--{name} must be 0 or more, not {value}.")
    if masks and (verify or sample is not None):
        raise UserError("--masks shows masked sequences alone: leave out --sample and --verify, or --masks.")
    if masks:
        from osbert.commands.corpus_masks import show_masks

        show_masks(console, folder, recipe, settings, count=masks, opening=Opening(trust=trust))
        return
    if settings or recipe != "bert-base":
        raise UserError("Recipes and settings say how text is masked: give --masks 5 with them.")
    corpus = Corpus.open(folder)
    if verify:
        corpus.verify()
        console.print("Every file is what was written when the corpus was built.")
    _print_report(console, folder, corpus.report)
    console.print(Text(f"Unigram entropy {corpus.unigram_entropy:.3f} nats: the loss of guessing without context."))
    if sample != 0:
        _print_sample(console, corpus, SAMPLE if sample is None else sample)


def _print_sample(console: Console, corpus: Corpus, count: int) -> None:
    """Print the first sentences of some documents. Raises UserError when the tokenizer beside them is another one."""
    folder = corpus.folder
    tokenizer = read_tokenizer(folder)
    if tokenizer.fingerprint != corpus.fingerprint:
        raise UserError(f"{folder}: the tokenizer in it is not the one the corpus was built with; build it again.")
    for document in _sample(corpus, count):
        console.print()
        for first, last in islice(zip(document.sentences, document.sentences[1:]), SENTENCES):
            console.print(_marked(document.ids[first:last], tokenizer), soft_wrap=True)
        if len(document.sentences) - 1 > SENTENCES:
            console.print(
                Text(f"(of {len(document.sentences) - 1:,} sentences, {len(document):,} tokens)", style="dim")
            )


def _sample(corpus: Corpus, count: int) -> Iterator[Document]:
    """Yield documents from `count` places spread evenly over the corpus; fewer when it has fewer blocks."""
    blocks = corpus.blocks(max(1, min(4096, corpus.tokens // count)))
    places = sorted({number * len(blocks) // count for number in range(count)})
    for place in places:
        found = corpus.read(blocks[place])
        # The first of a block is mostly the end of a document that began before it; the next one begins here.
        yield found[0 if place == 0 else min(1, len(found) - 1)]


def _marked(ids: Iterable[int], tokenizer: Tokenizer) -> Text:
    """Return pieces as text in which a dot joins each continuing piece to the one before it."""
    text = Text()
    for place, index in enumerate(ids):
        if place == PIECES:
            text.append(" ...", style="dim")
            break
        piece = tokenizer.vocabulary[index]
        if tokenizer.continuation[index]:
            text.append("·", style="bold red").append(piece.removeprefix("##"))
        else:
            text.append(f" {piece}" if place else piece)
    return text


def _print_report(console: Console, folder: Path, report: Mapping[str, Any]) -> None:
    table = Table(title=f"Corpus {folder}", show_header=False, title_justify="left")
    table.add_column(no_wrap=True)
    table.add_column(justify="right")
    for name, value in _rows(report):
        table.add_row(name, value)
    console.print(table)
    for warning in report["warnings"]:
        console.print(Text(f"warning: {warning}", style="yellow"))
    for example in report["repairs"]["examples"]:
        console.print(Text(f"  {example}", style="dim"))


def _rows(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    fate = "dropped" if report["deduplicated"] else "kept"
    for name in ("documents", "sentences", "tokens"):
        yield name, f"{report[name]:,}"
    yield "words and signs", f"{report['words']:,}"
    yield "tokens a word", f"{report['tokens_per_word']:.3f}"
    yield "[UNK] rate", f"{report['unknown_rate']:.3%} of words ({report['unknown']:,})"
    yield "duplicate lines", f"{report['duplicate_lines']:,} of {report['lines']:,}, {fate}"
    yield "duplicate documents", f"{report['duplicate_documents']:,}, {fate}"
    if "left_out" in report:
        counts = [f"{count:,} by {name.replace('_', ' ')}" for name, count in report["left_out"].items()]
        yield "documents left out", ", ".join(counts) or "none"
    yield "text read", f"{report['text_bytes'] / 1e6:,.1f} MB in {report['inputs']:,} file(s)"
    yield "on disk", f"{report['bytes_on_disk'] / 1e6:,.1f} MB"
    yield "time", f"{report['seconds']:,.1f} s, {report['megabytes_per_second']:.1f} MB/s"


@contextmanager
def _watching() -> Iterator[Watcher]:
    """Show a line of progress on the terminal's error stream, and yield what keeps it up to date."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        _Rate(),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    with Bar(*columns, console=open_console(stderr=True)) as bar:
        task = bar.add_task("encoding", total=None, text_bytes=0)

        def watch(progress: Progress) -> None:
            if progress.phase != bar.tasks[task].description:
                bar.reset(task, description=progress.phase, text_bytes=0)
            bar.update(task, completed=progress.done, total=progress.total, text_bytes=progress.text_bytes)

        yield watch


class _Rate(ProgressColumn):
    """Megabytes of text a second since the task began."""

    def render(self, task: Task) -> Text:
        """Return the rate, or nothing in the phases that read no text."""
        if not task.fields["text_bytes"] or not task.elapsed:
            return Text("")
        return Text(f"{task.fields['text_bytes'] / 1e6 / task.elapsed:.1f} MB/s")


def _cores() -> int:
    """Return the cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
