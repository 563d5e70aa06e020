"""WebAnno TSV 3, the format of INCEpTION and WebAnno: one record per sentence, with the spans of one layer.

That layer is NamedEntity, or the only one that is not linguistic preprocessing. Positions are UTF-16 code units of
Java; they are checked against the tokens beside them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from osbert.errors import UserError
from osbert.reading.data_file import DataFile
from osbert.reading.form import TableReading, read_text
from osbert.reading.table import Entry, FileForm
from osbert_lab.annotation.record_values import TextOffsets

_HEAD = "#FORMAT=WebAnno TSV 3"
_TOKEN = re.compile(r"(\d+-\d+(?:\.\d+)?)\t(\d+)-(\d+)\t([^\t]*)((?:\t[^\t]*)*)")
_VALUE = re.compile(r"((?:[^\\\[|]|\\.)+)(?:\[(\d+)\])?(?:\||$)")
_ESCAPE = re.compile(r"\\(.)")
_MADE = ("POS", "Lemma", "MorphologicalFeatures", "Stem", "SurfaceForm", "SofaChangeAnnotation", "Chunk", "Sentence")
_UNTYPED = "entity"


class WebAnno(FileForm):
    """A .tsv file that begins with #FORMAT=WebAnno TSV 3."""

    title: ClassVar[str] = "WebAnno TSV"
    unit: ClassVar[str] = "line"
    suffixes = (".tsv",)

    @classmethod
    def claims(cls, file: DataFile) -> bool:
        """Return whether a file begins with the format's first line."""
        return file.first_text.startswith(_HEAD)

    def load(self, file: DataFile, reading: TableReading) -> list[Entry]:
        """Return the sentences, numbered by their first lines. Raises UserError if the layer is ambiguous."""
        lines = read_text(file, reading.encoding).split("\n")
        column = _column(file.path, [line.rstrip("\r") for line in lines if line.startswith("#T_")])
        entries: list[Entry] = []
        for number, texts, rows in _sentences(lines):
            try:
                entries.append((number, _sentence(texts, rows, column)))
            except ValueError as error:
                entries.append((number, error))
        if not entries:
            raise UserError(f"{file.path} contains no sentences.", code="no-data")
        return entries


def _column(path: Path, heads: Sequence[str]) -> int:
    """Return the index of the feature to read among the columns after the token."""
    place = 0
    found: dict[str, dict[str, int]] = {}
    for head in heads:
        kind, _, told = head.partition("=")
        layer, *features = told.split("|")
        if kind == "#T_SP":
            found[layer.rsplit(".", 1)[-1]] = {name: place + number for number, name in enumerate(features)}
        place += len(features)
    layers = [name for name in found if name == "NamedEntity"] or [name for name in found if name not in _MADE]
    if len(layers) != 1:
        listed = ", ".join(found) or "none"
        raise UserError(
            f"{path}: several layers could contain the entities ({listed}). Export one layer, or name it NamedEntity.",
            code="ambiguous-column",
        )
    places = found[layers[0]]
    usual = (places[name] for name in ("value", "label", "identifier") if name in places)
    return next(usual, min(places.values(), default=0))


def _sentences(lines: Sequence[str]) -> Iterator[tuple[int, list[str], list[str]]]:
    """Yield for each sentence the number of its first line, the lines of its text, and those of its tokens."""
    first, texts, rows = 0, list[str](), list[str]()
    for number, line in enumerate([*lines, ""], 1):
        line = line.rstrip("\r")
        if line.startswith("#Text=") and not rows:
            first = first or number
            texts.append(line.removeprefix("#Text="))
        elif line and line[0].isdigit() and texts:
            rows.append(line)
        elif not line and texts:
            yield first, texts, rows
            first, texts, rows = 0, [], []


def _sentence(texts: Sequence[str], rows: Sequence[str], column: int) -> dict[str, Any]:
    text = "\n".join(_plain(one) for one in texts)
    places = TextOffsets(text)
    spans: dict[tuple[str, str], list[Any]] = {}
    origin: int | None = None
    for number, line in enumerate(rows):
        found = _TOKEN.fullmatch(line)
        if not found:
            raise ValueError(f"{line[:60]!r} is not a token (1-1<tab>START-END<tab>TOKEN)")
        begin, end, token = int(found[2]), int(found[3]), _plain(found[4])
        origin = begin if origin is None else origin
        span = places.matching((begin - origin, end - origin), token, likely="utf-16")
        if not span or text[slice(*span)] != token:
            raise ValueError(f"the token {token!r:.40} is not at character {begin - origin} of its sentence")
        cells = found[5].split("\t")[1:]
        for type_, group in _values(cells[column] if column < len(cells) else "_"):
            # Tokens with the same type and number form one span; an unnumbered one is a span by itself.
            key = (type_, group or f"token {number}")
            before = spans.get(key)
            spans[key] = [before[0], span[1], type_] if before else [*span, type_]
    return {"text": text, "entities": sorted(spans.values(), key=lambda one: (one[0], one[1]))}


def _values(cell: str) -> Iterator[tuple[str, str]]:
    """Yield the types in a cell with the number of their span, "" for a span of one token."""
    if cell in ("_", ""):
        return
    for found in _VALUE.finditer(cell):
        type_ = _plain(found[1])
        yield (_UNTYPED if type_ == "*" else type_), found[2] or ""


def _plain(text: str) -> str:
    """Return a text with the escapes of the format resolved."""
    return _ESCAPE.sub(lambda found: {"n": "\n", "t": "\t", "r": "\r"}.get(found[1], found[1]), text)
