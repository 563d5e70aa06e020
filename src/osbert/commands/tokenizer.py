"""osbert tokenizer: train a WordPiece vocabulary on text files, extend it, look at how a text is cut into pieces."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.table import Table
from rich.text import Text

from osbert.commands.event_consoles import VocabularyConsole
from osbert.commands.opening_options import OpeningOptions
from osbert.interop.huggingface.tokenizers import read_any_tokenizer
from osbert.interop.opening import CAREFUL
from osbert.runs import tokenizer as vocabularies
from osbert.runs.tokenizer import ExtensionSettings, VocabularySettings
from osbert.terminal import open_console


def train(
    files: list[Path],
    /,
    *,
    out: Path,
    settings: Annotated[VocabularySettings | None, Parameter(name="*")] = None,
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
    """
    with VocabularyConsole() as watch:
        vocabularies.train_tokenizer(files, out=out, settings=settings, watch=watch)


def extend(
    folder: Path,
    files: list[Path],
    /,
    *,
    out: Path,
    settings: Annotated[ExtensionSettings | None, Parameter(name="*")] = None,
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
    """
    with VocabularyConsole() as watch:
        vocabularies.extend_tokenizer(folder, files, out=out, settings=settings, opening=opening, watch=watch)


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


def _visible(text: str) -> str:
    """Return the text with characters that cannot be shown written as escapes."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
