"""Reads files as chunks of text: separates documents and a JSON array's items, splits long ones, in bounded memory."""

from __future__ import annotations

import codecs
import itertools
import json
import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from json import JSONDecodeError
from pathlib import Path
from typing import Any, Literal

from osbert.errors import Problems, UserError, nearest, not_json
from osbert.extensions import require_extension
from osbert.guarded import parse_json
from osbert.reading.encodings import GUESSED, Errors, decode_blocks
from osbert.reading.inputs import Input, InputStream, OpenInput, Repairs, find_inputs

_OUTSIDE = re.compile(r'[^"\[\]{},]*+')
_INSIDE = re.compile(r'(?:[^"\\]++|\\.)*+', re.DOTALL)
"""Runs of insignificant characters outside a string, and inside one with its escapes (possessive: no backtracking)."""


def begins_array(text: str) -> bool:
    """Return whether the beginning of a file is a JSON array, and not JSON lines that are lists.

    >>> begins_array('[{"text": "one"},'), begins_array('[1, 2]'), begins_array('[1, 2]\\n{"text": "one"}')
    (True, True, False)
    """
    first, _, rest = text.lstrip().partition("\n")
    return first.startswith("[") and not (rest.strip() and first.rstrip().endswith("]"))


def array_items(blocks: Iterable[str], *, longest: int) -> Iterator[str | ValueError | None]:
    """Yield the text of each item of an array; None for an item of more than `longest` characters, which is not kept.

    The last item is a ValueError if the array is incomplete or if text follows it.

    >>> list(array_items(['[{"text": "o', 'ne"}, "]"', ']'], longest=100))
    ['{"text": "one"}', ' "]"']
    """
    cutter = _Cutter(longest)
    for block in blocks:
        yield from cutter.items(block)
    yield from cutter.rest()
    if cutter.behind:
        yield ValueError("text follows the end of the array")
    elif not cutter.over:
        yield ValueError("the array is cut short: it has no end")


class _Cutter:
    """The position within an array (depth, string or not) and the text of the current item so far."""

    def __init__(self, longest: int) -> None:
        self.longest = longest
        self.over = self.behind = False
        self._depth = 0
        self._inside = False
        self._pieces: list[str] = []
        self._size = 0
        self._left = ""

    def items(self, block: str) -> Iterator[str | None]:
        """Yield the items that end in the next block."""
        block = self._left + block
        self._left = ""
        start = position = 0
        while not self.over:
            run = (_INSIDE if self._inside else _OUTSIDE).match(block, position)
            position = run.end() if run else position
            sign = block[position : position + 1]
            if sign in ("", "\\"):  # the character behind the backslash is in the next block
                self._keep(block[start:position])
                self._left = sign
                return
            position += 1
            if sign == '"':
                self._inside = not self._inside
            elif sign in "[{":
                self._depth += 1
                start = position if self._depth == 1 else start
            # A comma or the closing bracket of the array itself ends an item.
            elif self._depth == 1:
                self._keep(block[start : position - 1])
                yield self._whole()
                start, self.over = position, sign != ","
            # A closing bracket further inside.
            elif sign != ",":
                self._depth -= 1
        self.behind |= bool(block[position:].strip())

    def rest(self) -> Iterator[str | None]:
        """Yield the last item of an array that ends without its bracket."""
        if self._depth == 1 and not self._inside and not self.over and "".join(self._pieces).strip():
            yield self._whole()

    def _keep(self, text: str) -> None:
        self._size += len(text)
        if self._size <= self.longest:
            self._pieces.append(text)
        else:
            self._pieces.clear()

    def _whole(self) -> str | None:
        text = "".join(self._pieces) if self._size <= self.longest else None
        self._pieces, self._size = [], 0
        return text


CHUNK = 1 << 20
"""Most characters in a chunk."""
JSON_LINE = 1 << 26
"""Most characters in a JSON line or an item of an array; nothing longer is ever in memory."""
PROBED = 1000
"""Most inputs that are probed before the work begins."""

Documents = Literal["file", "blank-line", "line"]

_SEPARATORS = {"blank-line": re.compile(r"\n\s*\n"), "line": re.compile(r"\n\s*")}
"""Runs of blank lines are one match, which is much faster than one each."""
_SENTENCE_ENDS = (". ", "! ", "? ", "。", "！", "？", "… ")


@dataclass(frozen=True, slots=True)
class Chunk:
    """A text of at most CHUNK characters. `opens`: it begins a document; otherwise it continues one."""

    text: str
    opens: bool
    source: str


@dataclass(frozen=True, kw_only=True)
class DocumentOptions:
    """Settings of how input files are split into documents."""

    documents: Documents = "blank-line"
    """The documents of a .txt file: the file, each block between blank lines, or each line. In JSON and Parquet each
    record is a document."""
    field: str = "text"
    """The field of a JSON object, or the column of a Parquet file, that holds the text."""
    encoding: str = "utf-8"
    """The encoding of text and JSON files."""
    errors: Errors = "strict"
    """"strict": bad bytes and records stop the reading. "replace": they are replaced or skipped, and counted."""

    def __post_init__(self) -> None:
        """Raise UserError if the encoding does not exist, before any file is opened."""
        try:
            codecs.getincrementaldecoder(self.encoding)
            "x".encode(self.encoding)  # refuses codecs that are not of text
        except LookupError as error:
            hint = nearest(self.encoding, (*GUESSED, "utf-8", "utf-16", "latin-1"))
            raise UserError(f"'{self.encoding}' is not a text encoding.{hint}", code="invalid-value") from error


def read_chunks(
    files: Sequence[Path | str],
    *,
    documents: Documents = "blank-line",
    field: str = "text",
    repairs: Repairs | None = None,
    encoding: str = "utf-8",
    errors: Errors = "strict",
) -> Iterator[Chunk]:
    """Return the chunks of all files, read lazily, in bounded memory.

    `files` may be folders and archives. `repairs`, if given, counts the repairs. A chunk ends at a line break if
    possible, else after a sentence, else at a space; a text is always split at the same positions. Raises UserError at
    once for missing or unknown files, and while reading for text that cannot be decoded.
    """
    inputs = find_inputs(files)
    reading = DocumentOptions(documents=documents, field=field, encoding=encoding, errors=errors)
    counted = Repairs() if repairs is None else repairs
    return (chunk for source in inputs for chunk in read_input(OpenInput(source, repairs=counted), reading))


def read_input(source: OpenInput, reading: DocumentOptions) -> Iterator[Chunk]:
    """Yield the chunks of one input; the first chunk of each of its parts opens a document."""
    if source.source.path.suffix.lower() == ".parquet":
        from osbert.reading.parquet import read_texts

        texts = read_texts(source.source, reading.field, errors=reading.errors, repairs=source.repairs)
        yield from _counting_empty(_document_chunks(texts, str(source.source.path)), source, str(source.source.path))
        return
    has_parts = False
    for part in source.parts():
        has_parts = True
        yield from _counting_empty(_read_part(part, reading, source.repairs), source, part.name)
    if not has_parts:
        source.repairs.empty += 1
        source.repairs.note(f"{source.source.path}: empty")


def probe(inputs: Sequence[Input], reading: DocumentOptions) -> None:
    """Read the beginning of the first inputs. Raises one UserError with all problems, before any work."""
    problems = Problems(heading="These inputs cannot be read")
    for source in inputs[:PROBED]:
        try:
            next(read_input(OpenInput(source, repairs=Repairs()), reading), None)
        except UserError as error:
            problems.add(str(error), code=error.code)
    problems.stop_if_any()


def _counting_empty(chunks: Iterator[Chunk], source: OpenInput, name: str) -> Iterator[Chunk]:
    empty = True
    for chunk in chunks:
        empty = False
        yield chunk
    if empty:
        source.repairs.empty += 1
        source.repairs.note(f"{name}: empty")


def _read_part(part: InputStream, reading: DocumentOptions, repairs: Repairs) -> Iterator[Chunk]:
    blocks = decode_blocks(part.stream, encoding=reading.encoding, errors=reading.errors, repairs=repairs)
    if part.kind == "json":
        return _document_chunks(_json_texts(blocks, part.name, reading, repairs), part.name)
    if part.kind == "wikipedia":
        read_articles = require_extension("osbert.reading.documents", "wikipedia", part.name)
        return _document_chunks(read_articles(blocks, part.name), part.name)
    return _text_chunks(blocks, reading.documents, part.name)


def _document_chunks(texts: Iterable[str], name: str) -> Iterator[Chunk]:
    for text in texts:
        rest, opens = yield from _cut_long(text.strip(), True, name)
        if rest:
            yield Chunk(rest, opens, name)


def _text_chunks(blocks: Iterable[str], documents: Documents, name: str) -> Iterator[Chunk]:
    """Split a stream of text into documents. It keeps the rest of a document, always less than two blocks."""
    separator = _SEPARATORS.get(documents)
    rest, opens = "", True
    for block in blocks:
        rest += block
        if separator is not None:
            *whole, rest = separator.split(rest)
            for text in whole:
                yield from _document_chunks((text,), name) if opens else _continuation(text, name)
                opens = True
        rest, opens = yield from _cut_long(rest.lstrip() if opens else rest, opens, name)
    yield from _document_chunks((rest,), name) if opens else _continuation(rest, name)


def _continuation(text: str, name: str) -> Iterator[Chunk]:
    """Yield the last chunks of a document that has begun; trailing space is dropped."""
    rest, _ = yield from _cut_long(text, False, name)
    if rest and not rest.isspace():
        yield Chunk(rest.rstrip(), False, name)


def _cut_long(text: str, opens: bool, name: str) -> Generator[Chunk, None, tuple[str, bool]]:
    """Yield chunks of a text that is longer than CHUNK; return its rest, and whether that opens a document.

    A chunk ends in the second half of its characters, at a line break if there is one.
    """
    middle = CHUNK // 2
    while len(text) > CHUNK:
        position = text.rfind("\n", middle, CHUNK)
        if position < 0:
            position = max(text.rfind(end, middle, CHUNK) + len(end.rstrip()) for end in _SENTENCE_ENDS)
        if position < middle:
            position = text.rfind(" ", middle, CHUNK)
        position = position if position >= middle else CHUNK
        yield Chunk(text[:position], opens, name)
        text, opens = text[position:], False
    return text, opens


def _json_texts(blocks: Iterable[str], name: str, reading: DocumentOptions, repairs: Repairs) -> Iterator[str]:
    """Yield the text of each JSON line or array item. Bad ones raise an error, after all are read."""
    blocks = iter(blocks)
    first = next(blocks, "")
    unit = "item" if begins_array(first) else "line"
    blocks = itertools.chain([first], blocks)
    records = array_items(blocks, longest=JSON_LINE) if unit == "item" else _lines(blocks)
    problems = Problems(heading=f"{name} has {unit}s that cannot be used (--errors replace skips them)")
    for number, line in enumerate(records, 1):
        try:
            text = _json_text(line, reading.field)
        except ValueError as error:
            if reading.errors == "replace":
                repairs.records += 1
                repairs.note(f"{name}, {unit} {number:,}: skipped, {error}")
                continue
            problems.add(f"{unit} {number:,}: {error}", code="unusable-row")
            if problems.count >= problems.limit:
                break
            continue
        # After a bad record nothing is yielded any more; the rest is read only to list further problems.
        if problems.count or not isinstance(line, str) or text is None:
            continue
        if "\\ud" in line or "\\uD" in line:
            text = _without_surrogates(text, repairs, f"{name}, {unit} {number:,}")
        yield text
    problems.stop_if_any()


def _json_text(line: str | ValueError | None, field: str) -> str | None:
    """Return the text of a line or an item, None if blank. Raises ValueError with the reason if it is bad."""
    if isinstance(line, ValueError):
        raise line
    if line is None:
        raise ValueError(f"longer than {JSON_LINE:,} characters")
    if not line or line.isspace():
        return None
    try:
        record = parse_json(line)
    except JSONDecodeError as error:
        raise ValueError(f"not JSON: {not_json(error)} at character {error.pos + 1}") from None
    if not isinstance(record, dict):
        raise ValueError(f"not an object with a field '{field}' but {_shorten_json(record)}")
    if field not in record:
        raise ValueError(f"no field '{field}'; it has {', '.join(list(record)[:8]) or 'none'} (--field names another)")
    text = record[field]
    if not isinstance(text, str):
        raise ValueError(f"field '{field}' is not a text but {_shorten_json(text)}")
    return text


def _shorten_json(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:40] + "..."


def _without_surrogates(text: str, repairs: Repairs, location: str) -> str:
    """Return the text with lone surrogates, which cannot be encoded, replaced by U+FFFD and counted."""
    repaired = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    surrogate_count = repaired.count("\ufffd") - text.count("\ufffd")
    if surrogate_count > 0:
        repairs.replaced += surrogate_count
        repairs.note(f"{location}: lone surrogate replaced")
    return repaired


def _lines(blocks: Iterable[str]) -> Iterator[str | None]:
    """Yield the lines of a stream of text; None for a line longer than JSON_LINE, which is not kept."""
    pieces: list[str] = []
    size = 0
    for block in blocks:
        first, *others = block.split("\n")
        size += len(first)
        if size <= JSON_LINE:
            pieces.append(first)
        else:
            pieces.clear()
        if not others:
            continue
        yield "".join(pieces) if size <= JSON_LINE else None
        yield from others[:-1]
        pieces, size = [others[-1]], len(others[-1])
    if size:
        yield "".join(pieces) if size <= JSON_LINE else None
