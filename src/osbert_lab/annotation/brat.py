"""brat's standoff files: a folder of texts, NAME.txt, with the entities of each in NAME.ann; or one NAME.ann.

Positions are code points of the whole text, line ends included. A span of several parts is read from its first to its
last character. Relations, events, attributes and notes are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from osbert.errors import UserError
from osbert.guarded import LARGEST, read_bytes
from osbert.reading.data_file import DataFile
from osbert.reading.form import TableReading
from osbert.reading.record_forms.contract import Suggestion
from osbert.reading.table import FOLDER, Entry, FileForm
from osbert.reading.tagged.rows import require_mention
from osbert_lab.annotation.record_values import TextOffsets

_TEXT_BOUND = re.compile(r"(T\d+)\t(\S+) (\d+ \d+(?:;\d+ \d+)*)(?:\t(.*))?")


class Brat(FileForm):
    """A folder with .ann files, or one of them."""

    title: ClassVar[str] = "brat standoff"
    unit: ClassVar[str] = "document"
    suffixes = (".ann", FOLDER)

    @classmethod
    def claims(cls, file: DataFile) -> bool:
        """Return whether a folder holds .ann files, or a file is one."""
        path = file.path
        if path.is_dir():
            return any(one.suffix == ".ann" for one in path.iterdir())
        return path.suffix == ".ann" and path.is_file()

    def load(self, file: DataFile, reading: TableReading) -> list[Entry]:
        """Return the documents by name. A .txt file without an .ann file is unlabelled."""
        path = file.path
        names = sorted(path.glob("*.txt")) if path.is_dir() else [path.with_suffix(".txt")]
        if path.is_dir() and (alone := sorted({one.stem for one in path.glob("*.ann")} - {one.stem for one in names})):
            raise UserError(f"{path} contains {alone[0]}.ann, but no {alone[0]}.txt.", code="missing-file")
        entries: list[Entry] = []
        left = LARGEST
        for number, name in enumerate(names, 1):
            if not name.is_file():
                raise UserError(f"{path}: its text {name.name} is missing beside it.", code="missing-file")
            text = _content(name, left)
            left -= len(text)
            try:
                entries.append((number, _document(name, text, left)))
            except ValueError as error:
                entries.append((number, ValueError(f"{name.name}: {error}")))
        return entries


def standoff(said: Suggestion, text: str) -> Iterator[str]:
    """Yield the lines of an .ann file with the entities of a model; a note after each has its probability.

    >>> from osbert.reading.record_forms.contract import SpanMark
    >>> list(standoff(Suggestion(marks=(SpanMark(0, 2, "ORG", 0.9),)), "EU rejects"))
    ['T1\\tORG 0 2\\tEU', '#1\\tAnnotatorNotes T1\\tprobability 0.9000']
    """
    for number, mark in enumerate(said.marks or (), 1):
        spans, start = [], mark.start
        for part in text[mark.start : mark.end].split("\n"):  # brat's spans end with a line
            if part.strip():
                spans.append(f"{start} {start + len(part)}")
            start += len(part) + 1
        mention = " ".join(part for part in text[mark.start : mark.end].split("\n") if part.strip())
        type_ = re.sub(r"\s", "_", mark.type)
        yield f"T{number}\t{type_} {';'.join(spans)}\t{mention}"
        yield f"#{number}\tAnnotatorNotes T{number}\tprobability {mark.probability:.4f}"


def _content(path: Path, most: int) -> str:
    try:
        return read_bytes(path, most=max(most, 0)).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not UTF-8 (byte {error.start:,}). Convert it to UTF-8.", code="wrong-encoding"
        ) from error


def _document(path: Path, text: str, most: int) -> dict[str, Any]:
    row: dict[str, Any] = {"file": path.stem, "text": text}
    marked = path.with_suffix(".ann")
    if not marked.is_file():
        return row | {"entities": None}
    spans = []
    places = TextOffsets(text)
    for number, line in enumerate(_content(marked, most).splitlines(), 1):
        if not line.startswith("T"):
            continue
        found = _TEXT_BOUND.fullmatch(line.rstrip())
        if not found:
            raise ValueError(
                f"{marked.name}, line {number}: {line[:60]!r} is not an entity (T1<tab>TYPE START END<tab>TEXT)"
            )
        name, type_, told, mention = found.groups()
        numbers = [int(one) for one in re.findall(r"\d+", told)]
        start, end = min(numbers), max(numbers)
        whole = ";" not in told
        # A discontinuous span has no contiguous text to compare with.
        span = places.matching((start, end), (mention or "") if whole else "", likely="points")
        if not span:
            raise ValueError(f"{marked.name}, line {number}: {name} from {start} to {end} is outside the text")
        if whole:
            name = f"{marked.name}, line {number}: {name} from {start} to {end}"
            require_mention(text[slice(*span)], mention or "", name)
        spans.append([*span, type_])
    return row | {"entities": spans}
