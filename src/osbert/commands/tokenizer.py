"""osbert tokenizer: train a WordPiece vocabulary on text files, extend it, look at how a text is cut into pieces."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from osbert.commands.opening_options import OpeningOptions
from osbert.errors import UserError
from osbert.files import refuse_foreign
from osbert.interop.huggingface.tokenizers import read_any_tokenizer
from osbert.interop.opening import CAREFUL
from osbert.interop.tokenizer_files import WRITTEN, read_tokenizer, write_tokenizer
from osbert.lock import claim
from osbert.reading.documents import Reading, probe, read_input
from osbert.reading.inputs import Input, OpenInput, Repairs, find_inputs
from osbert.terminal import open_console
from osbert.text.extend import extended
from osbert.text.tokenizer import Tokenizer
from osbert.text.train import WordCounter, check_settings, learn
from osbert.text.wordpiece import WordPiece

LENGTH = 512
"""Pieces that other programs are told a sequence may have: BERT's longest."""
OTHERS = {"run.json": "a run", "config.json": "a model", "corpus.json": "a corpus", "building.json": "a corpus"}
"""Files of folders that go with one tokenizer and would not fit another, and what these folders are."""


def train(
    files: list[Path],
    /,
    *,
    out: Path,
    vocabulary: int = 30522,
    lowercase: bool = True,
    alphabet: int = 1000,
    minimum: int = 2,
    field: str = "text",
    encoding: str = "utf-8",
    errors: Literal["strict", "replace"] = "strict",
) -> None:
    """Train a WordPiece vocabulary on text files.

    Reads .txt, .jsonl and Wikipedia dumps (.xml), all also in .gz, .xz, .zst, .bz2 and .tar, Parquet, and folders of
    these. The same text gives the same vocabulary, byte for byte, and memory does not grow with it. What is written
    loads in Hugging Face too.

    Parameters
    ----------
    files
        Text files (.txt, .jsonl), Wikipedia dumps (.xml), Parquet, archives of these, and folders.
    out
        The folder for tokenizer.json, vocab.txt and two small files beside them.
    vocabulary
        Pieces to learn, the five special ones among them.
    lowercase
        Take capitals for small letters and strip accents; --no-lowercase keeps both.
    alphabet
        Most characters besides Chinese ones; words with rarer characters become [UNK].
    minimum
        Occurrences that a pair of pieces must have to become one piece.
    field
        The field of a JSON line, or the column of a Parquet file, that holds the text.
    encoding
        The encoding of text and JSON files.
    errors
        Whether bad bytes and bad records stop the reading, or are replaced or left out, and counted.
    """
    begin = time.monotonic()
    with claim(out):
        _check_out(out)
        check_settings(vocabulary=vocabulary, alphabet=alphabet, minimum=minimum)
        inputs, reading = find_inputs(files, without=out), Reading(field=field, encoding=encoding, errors=errors)
        counter, repairs = WordCounter(lowercase=lowercase), Repairs()
        with _progress() as progress:
            task = _count(counter, inputs, reading, repairs, progress)
            words = counter.words()
            progress.update(task, description="learning pieces")
            pieces = learn(words, vocabulary=vocabulary, alphabet=alphabet, minimum=minimum)
        tokenizer = Tokenizer(pieces, lowercase=lowercase)
        write_tokenizer(tokenizer, out, length=LENGTH)
        if len(pieces) < vocabulary:
            print(f"{vocabulary:,} pieces were requested, but no further pair of pieces occurs {minimum:,} times.")
        for remark in _remarks(repairs, counter):
            print(remark)
        print(f"fingerprint {tokenizer.fingerprint}")
        read = f"{words.total() + counter.forgotten:,} words ({len(words):,} different)"
        print(f"{out}: {len(pieces):,} pieces learnt from {read} in {time.monotonic() - begin:.1f} s")


def extend(
    folder: Path,
    files: list[Path],
    /,
    *,
    out: Path,
    pieces: int = 1000,
    minimum: int = 10,
    field: str = "text",
    encoding: str = "utf-8",
    errors: Literal["strict", "replace"] = "strict",
    opening: OpeningOptions = CAREFUL,
) -> None:
    """Extend a vocabulary for texts of another domain.

    Words that the vocabulary cuts to pieces, and that save the most tokens, are added behind the old pieces, which keep
    their ids. `osbert pretrain --from RUN` then starts a new piece at the mean of the old ones that spelt it.

    Parameters
    ----------
    folder
        The vocabulary to extend: a run, a tokenizer that osbert or Hugging Face wrote, or a vocab.txt.
    files
        Text files, archives and folders of the new domain, as `osbert tokenizer train` takes.
    out
        The folder for tokenizer.json, vocab.txt and two small files beside them.
    pieces
        Most pieces to add.
    minimum
        Occurrences that a word must have to be added.
    field
        The field of a JSON line, or the column of a Parquet file, that holds the text.
    encoding
        The encoding of text and JSON files.
    errors
        Whether bad bytes and bad records stop the reading, or are replaced or left out, and counted.
    """
    with claim(out):
        _check_out(out)
        if out.resolve() in (folder.resolve(), folder.resolve().parent if folder.is_file() else None):
            raise UserError(f"{out} holds the vocabulary to extend, which stays as it is. Give another --out.")
        old = read_tokenizer(folder, opening)
        inputs = find_inputs(files, without=out)
        reading = Reading(field=field, encoding=encoding, errors=errors)
        counter, repairs = WordCounter(lowercase=old.lowercase, strip_accents=old.strip_accents), Repairs()
        with _progress() as progress:
            _count(counter, inputs, reading, repairs, progress)
            words = counter.words()
            new = extended(old, words, pieces=pieces, minimum=minimum)
        write_tokenizer(new, out, length=LENGTH)
        for remark in _remarks(repairs, counter):
            print(remark)
        added = new.vocabulary[len(old) :]
        before, after = (_tokens(tokenizer, words) for tokenizer in (old, new))
        print(f"{_many(len(added), 'piece')} added to {len(old):,}, among them: {', '.join(added[:10])}")
        print(f"{out}: these texts had {before:,} tokens and have {after:,} now ({1 - after / before:.1%} fewer)")


def encode(
    folder: Path,
    text: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    opening: OpeningOptions = CAREFUL,
) -> None:
    """Show the pieces of a text: their ids, and the characters of the text that each stands for.

    Parameters
    ----------
    folder
        A tokenizer: a folder that osbert or Hugging Face wrote, or a vocab.txt.
    text
        The text; quote it.
    """
    tokenizer = read_any_tokenizer(folder, opening)
    encoding = tokenizer.encode_with_offsets(text)
    table = Table(box=None, pad_edge=False)
    for heading in ("", "id", "start", "end"):
        table.add_column(heading, justify="right")
    table.add_column("piece", overflow="fold")
    table.add_column("in the text", overflow="fold")
    rows = zip(tokenizer.tokens(encoding.ids), encoding.ids, encoding.starts, encoding.ends)
    for number, (piece, index, start, end) in enumerate(rows):
        cells = (str(number), str(index), str(start), str(end), piece, _visible(text[start:end]))
        table.add_row(*map(Text, cells))  # as Text: "[UNK]" is no mark-up
    console = open_console(highlight=False)
    console.print(table)
    words = int(encoding.words[-1]) + 1 if len(encoding) else 0
    console.print(f"{_many(len(encoding), 'piece')}, {_many(words, 'word')}, {_many(len(text), 'character')}")


def _check_out(out: Path) -> None:
    """Refuse a folder that a vocabulary must not be written into."""
    for name, what in OTHERS.items():
        if (out / name).is_file():
            raise UserError(
                f"{out}: {name} says that this folder is {what}, which has its tokenizer. Give another --out."
            )
    refuse_foreign(out, "a tokenizer", WRITTEN)


def _count(
    counter: WordCounter, inputs: Sequence[Input], reading: Reading, repairs: Repairs, progress: Progress
) -> TaskID:
    """Count the words of all inputs, which are opened once before, so that a mistake in any is told at once."""
    probe(inputs, reading)
    task = progress.add_task("counting words", total=sum(source.size for source in inputs))
    for text in _texts(inputs, reading, repairs, progress, task):
        counter.add(text)
    return task


def _tokens(tokenizer: Tokenizer, words: Mapping[str, int]) -> int:
    cut = WordPiece(tokenizer.vocabulary, unknown=tokenizer.unknown).cut
    return sum(count * len(cut(word)) for word, count in words.items())


def _texts(
    inputs: Sequence[Input], reading: Reading, repairs: Repairs, progress: Progress, task: TaskID
) -> Iterator[str]:
    """Yield the text of all inputs, chunk by chunk, and tell the progress how many bytes of the files were read."""
    before = 0
    for source in inputs:
        opened = OpenInput(source, repairs=repairs)
        for chunk in read_input(opened, reading):
            yield chunk.text
            progress.update(task, completed=before + opened.position())
        before += source.size
        progress.update(task, completed=before)


def _progress() -> Progress:
    """Return a progress line on standard error, with the time left; nothing where that is no terminal."""
    console = open_console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def _remarks(repairs: Repairs, counter: WordCounter) -> Iterator[str]:
    counts = {
        "byte-order marks removed": repairs.boms,
        "runs of bad bytes replaced": repairs.replaced,
        "records without usable text left out": repairs.records,
        "files without any text": repairs.empty,
        "files in archives with an unknown ending left out": repairs.skipped,
        "occurrences of rare words forgotten to bound the memory": counter.forgotten,
    }
    for what, count in counts.items():
        if count:
            yield f"{count:,} {what}"
    yield from (f"  {example}" for example in repairs.examples)


def _visible(text: str) -> str:
    """Return the text with characters that cannot be shown written as escapes."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
