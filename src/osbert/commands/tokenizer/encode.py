"""osbert tokenizer encode: shows the tokens of a text."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter
from rich.table import Table
from rich.text import Text

from osbert.console.arguments import InputFile, OpeningOptions
from osbert.console.output import Result
from osbert.interop.opening import CAREFUL
from osbert.interop.tokenizers import read_any_tokenizer
from osbert.terminal import format_count, open_console


def encode(
    folder: InputFile,
    text: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    opening: OpeningOptions = CAREFUL,
) -> Result:
    """Show the pieces of a text with their ids and the characters that each covers.

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
    rows = [*zip(tokenizer.tokens(encoding.ids), encoding.ids, encoding.starts, encoding.ends)]
    for number, (piece, index, start, end) in enumerate(rows):
        cells = (str(number), str(index), str(start), str(end), piece, _visible(text[start:end]))
        table.add_row(*map(Text, cells))  # as Text: "[UNK]" is no mark-up
    console = open_console(highlight=False)
    console.print(table)
    words = int(encoding.words[-1]) + 1 if len(encoding) else 0
    console.print(
        f"{format_count(len(encoding), 'piece')}, {format_count(words, 'word')}, {format_count(len(text), 'character')}"
    )
    return {"pieces": [dict(zip(("piece", "id", "start", "end"), row)) for row in rows], "words": words}


def _visible(text: str) -> str:
    """Return the text with unprintable characters written as escapes."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )
