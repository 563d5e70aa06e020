"""osbert corpus: text files become a corpus that pretraining reads; a corpus is shown."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

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

from osbert.corpus.build import Build, Progress, Watcher
from osbert.corpus.readers import Reading
from osbert.corpus.shards import Corpus
from osbert.corpus.state import BuildSettings
from osbert.errors import UserError
from osbert.interop.tokenizer_files import read_tokenizer, write_tokenizer
from osbert.text.document import Document
from osbert.text.tokenizer import Tokenizer

SENTENCES = 3
"""Sentences of a document that `show` prints."""
PIECES = 60
"""Pieces of a sentence that `show` prints."""


def build(
    files: list[Path],
    /,
    *,
    tokenizer: Path,
    out: Path,
    documents: Literal["file", "blank-line", "line"] = "blank-line",
    field: str = "text",
    encoding: str = "utf-8",
    errors: Literal["strict", "replace"] = "strict",
    deduplicate: bool = False,
    workers: int | None = None,
    shard_tokens: int = 2**25,
) -> None:
    """Build a corpus from text files.

    Reads .txt, .jsonl, both also in .gz, .xz, .zst, .bz2 and .tar, Parquet, and folders of these, in memory that no
    file's size can raise. A build that was stopped at any moment goes on when the same command is given again, and ends
    in the same bytes, whatever the number of workers.

    Parameters
    ----------
    files
        Text files, archives and folders. Folders give their files with a known ending, sorted.
    tokenizer
        A folder that `osbert tokenizer train` wrote, a Hugging Face tokenizer folder, or a vocab.txt.
    out
        The folder for the corpus.
    documents
        What a document is in a .txt file: the file, the lines between blank lines, or a line. In .jsonl and Parquet
        each record is one.
    field
        The field of a JSON line, or the column of a Parquet file, that holds the text.
    encoding
        The encoding of text and JSON files.
    errors
        Whether bad bytes and bad records stop the build, or are replaced or left out, and counted.
    deduplicate
        Drop lines that repeat an earlier line, and with them documents that repeat an earlier one.
    workers
        Processes that encode; all cores by default.
    shard_tokens
        Pieces in a shard at most; what is lost when a build is stopped is at most one shard.
    """
    if workers is not None and workers < 1:
        raise UserError(f"--workers must be 1 or more, not {workers}.")
    if not 0 < shard_tokens < 2**32 - 2**26:  # places within a shard are kept in 32 bits
        raise UserError(f"--shard-tokens must be from 1 to {2**32 - 2**26:,}, not {shard_tokens:,}.")
    if out.exists() and not out.is_dir():
        raise UserError(f"{out}: this is a file, and a folder is to be written. Give another --out.")
    cutter = read_tokenizer(tokenizer)
    reading = Reading(documents=documents, field=field, encoding=encoding, errors=errors)
    settings = BuildSettings(reading=reading, deduplicate=deduplicate, shard_tokens=shard_tokens)
    work = Build.prepare(files, tokenizer=cutter, folder=out, settings=settings)
    console = Console()
    if work.report is not None:
        console.print(Text(f"{out} is finished already: these files, this tokenizer and these settings made it."))
    else:
        if work.state.shards:
            done = sum(shard["tokens"] for shard in work.state.shards)
            console.print(Text(f"Going on after {len(work.state.shards)} finished shards ({done:,} tokens)."))
        with _watching() as watch:
            work.run(workers=workers or _cores(), watch=watch, begin=partial(write_tokenizer, cutter, out))
    _print_report(console, out, Corpus.open(out).report)


def show(folder: Path, /, *, sample: int = 3) -> None:
    """Show a corpus: its report and a sample.

    Parameters
    ----------
    folder
        A folder that `osbert corpus build` made.
    sample
        Documents to show the first sentences of, from places spread over the corpus; 0 for none.
    """
    corpus = Corpus.open(folder)
    console = Console()
    _print_report(console, folder, corpus.report)
    console.print(Text(f"Unigram entropy {corpus.unigram_entropy:.3f} nats: the loss of guessing without context."))
    if sample < 1:
        return
    tokenizer = read_tokenizer(folder)
    if tokenizer.fingerprint != corpus.fingerprint:
        raise UserError(f"{folder}: the tokenizer in it is not the one the corpus was built with; build it again.")
    for document in _sample(corpus, sample):
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
    with Bar(*columns, console=Console(stderr=True)) as bar:
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
