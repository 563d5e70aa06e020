"""Tables of sentences that analyses read: their rows, and the pieces of a cell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from osbert.errors import Problems
from osbert.reading.table import Row, TableReading, open_table
from osbert_lab.analysis.forms.contract import Sampling
from osbert_lab.analysis.judgements import Pieces

EXAMPLES = 10
"""Most unusable rows, trees or texts that are named."""


def unusable_rows(what: str) -> Problems:
    """Return a collector of unusable rows. `what`: the plural noun for messages, such as "trees"."""
    return Problems(heading=f"These {what} cannot be used (--errors replace leaves them out)", limit=EXAMPLES)


def left_out(problems: Problems) -> list[str]:
    """Describe what was left out."""
    more = problems.count - len(problems.messages)
    return [*(f"left out: {message}" for message in problems.messages), *([f"left out: {more:,} more"] if more else [])]


def table_rows(path: Path, columns: Sequence[str], sampling: Sampling, problems: Problems) -> Iterator[Row]:
    """Yield the rows that have a text in all of some columns; note the others."""
    encoding = "" if sampling.reading.encoding == "utf-8" else sampling.reading.encoding
    table = open_table(path, TableReading(encoding=encoding, names=tuple(columns)))
    for row in table.rows(problems):
        if empty := [name for name in columns if not row.values.get(name, "").strip()]:
            problems.add(f"{table.place(row.line)}: the column '{empty[0]}' is empty.", code="unusable-row")
        else:
            yield row


def pieces_of(text: str, location: str, sampling: Sampling, problems: Problems) -> Pieces | None:
    """Return the tokens of a sentence; None, with a note, if there are none or too many."""
    pieces = tuple(sampling.packer.tokenizer.encode(text).tolist())
    room = sampling.packer.room(1)
    if not pieces:
        problems.add(f"{location}: the tokenizer removes {text!r:.60} entirely.", code="unusable-row")
    elif len(pieces) > room:
        problems.add(
            f"{location}: the text has {len(pieces):,} pieces, but the model reads at most {room:,}.",
            code="text-too-long",
        )
    return pieces if 0 < len(pieces) <= room else None


def stem(path: Path) -> str:
    """Return a file name without its suffixes.

    >>> stem(Path("blimp/wh_island.jsonl.xz"))
    'wh_island'
    """
    return path.name.split(".")[0]
