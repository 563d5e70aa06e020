"""Detects the form of a user's file from its content: encoding, delimiter, quotes, header, columns."""

from __future__ import annotations

import codecs
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from json import JSONDecodeError
from pathlib import Path
from typing import Literal, TextIO

from osbert.errors import Problems, UserError
from osbert.guarded import parse_json
from osbert.reading.columns import is_known
from osbert.reading.compression import open_packed, split_compressions
from osbert.reading.data_file import DataFile, in_parts
from osbert.reading.delimited import parse
from osbert.reading.encodings import LONGEST, bom_encoding, foreign, guess_encoding, refuse_other_unicode
from osbert.reading.parquet import read_columns

Choice = Literal["auto", "yes", "no"]
JSON_ARRAY = "JSON array"
"""The title of a form that is read whole, but may be written like JSON lines."""
JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
SUFFIXES = (".csv", ".tsv", ".tab", ".jsonl", ".ndjson", ".json", ".txt", ".parquet", ".arrow", ".xlsx", ".spacy")

_HINT = re.compile(r"\ufeff?\"?sep=(.)\"?[\r\n]*", re.IGNORECASE)
"""Excel's declaration of the delimiter (sep=;), a line before the first row."""
_RULE = re.compile(r"(?: *:?-+:? *\|)+ *:?-+:? *")
_DECIMAL_COMMA = re.compile(r"(?<=\d),(?=\d)")
_DELIMITERS = ("\t", ",", ";", "|")
_NAMES = {"\t": "tab", ",": "comma", ";": "semicolon", "|": "bar"}
LONGEST_LINE = 1 << 22
"""Most characters of a line, more than War and Peace has. Splitting it takes about 100 bytes per cell."""
LONGEST_NAME = 40
"""Most characters of a column's name that is no usual one."""
_TITLE_ROWS = 6
"""Number of first rows among which a header is looked for below a title."""
_SAMPLE_LINES = 1000
_SAMPLE_CHARACTERS = 1 << 20
_SAMPLE_BYTES = 1 << 15
"""The part of a file from which its form is detected: lines and characters, and bytes for a guess of its encoding."""


@dataclass(frozen=True, kw_only=True)
class TableReading:
    """What the user specifies about a file; the rest is detected from its first 1,000 lines."""

    delimiter: str = ""
    header: Choice = "auto"
    quotes: Choice = "auto"
    encoding: str = ""
    names: tuple[str, ...] = ()
    """Column names from the user: a first line that contains one is a header."""
    surplus: int = 0
    """Number of extra cells that some rows have beyond the columns; they are not read."""


@dataclass(frozen=True, kw_only=True)
class Format:
    """The detected form.

    `kind`: "delimited" (CSV, TSV), "jsonl" (objects), "parquet", "lines" (one text a line), "rows" (in memory),
    "records" (from a file that is read whole, or from an annotation tool). `title`: the name of the last kind. `unit`:
    what rows are numbered by.
    """

    kind: Literal["delimited", "jsonl", "parquet", "lines", "rows", "records"]
    encoding: str
    columns: tuple[str, ...]
    title: str = ""
    unit: str = "line"
    delimiter: str = ""
    quotes: bool = False
    header: bool = False
    hint: bool = False
    """Whether the first line is Excel's declaration of the delimiter, sep=;, and no row."""
    newline: str = "\n"
    surplus: int = 0
    """Number of extra cells that a row may have."""

    @property
    def objects(self) -> bool:
        """Return whether its rows are objects, which JSON lines represent better than cells."""
        return self.kind in ("jsonl", "rows", "records")

    def describe(self) -> str:
        """Describe the form, for display before training."""
        title = self.title or {"parquet": "Parquet", "rows": "rows in memory"}.get(self.kind)
        if title:
            return f"{title}; columns: {', '.join(self.columns)}"
        encoding = {"utf-8-sig": "UTF-8 with BOM", "utf-8": "UTF-8"}.get(self.encoding, self.encoding)
        if self.kind == "delimited":
            header = "header" if self.header else "no header"
            quotes = "" if self.quotes else ", quotes are plain characters"
            form = f"{_NAMES.get(self.delimiter, repr(self.delimiter))}-separated, {header}{quotes}"
        else:
            form = "JSON lines" if self.kind == "jsonl" else "one text a line"
        return f"{form}, {encoding}; columns: {', '.join(self.columns)}"


class _Lines(io.TextIOWrapper):
    """The text of a file with lines of bounded length: a few kilobytes of .gz can hold a line of gigabytes."""

    path: Path
    number = 0

    def __next__(self) -> str:  # type: ignore[override] # an iterator of bytes, says its base class's stub
        line = self.readline(LONGEST_LINE + 1)
        self.number += 1
        if len(line) > LONGEST_LINE:
            raise UserError(
                f"{self.path}, line {self.number} has more than {LONGEST_LINE:,} characters. Is it a table, with line "
                "ends? Split the text into shorter ones.",
                code="too-large",
            )
        if not line:
            raise StopIteration
        return line


def open_text(file: Path | DataFile, encoding: str = "") -> TextIO:
    """Open a plain, .gz, .xz, .bz2 or .zst file as text whose lines end only at line feeds.

    Without an encoding it is that of the byte-order mark, else UTF-8; the file's `encoding` says which. Raises
    UserError if there is no encoding of that name, and if the first bytes are those of another kind of file, such as an
    Excel workbook, or of another Unicode encoding than the UTF-8 that was detected or named.
    """
    encoding = _canonical(encoding)
    path = file if isinstance(file, Path) else file.path
    content = open_packed(file) if isinstance(file, Path) else file.open()
    try:
        start = content.peek(LONGEST)
        encoding = encoding or bom_encoding(start)
        if what := foreign(start[:LONGEST], path):
            raise UserError(f"{path} is not text but {what}.", code="wrong-encoding")
        if encoding in ("utf-8", "utf-8-sig"):
            refuse_other_unicode(start, str(path))
    except UserError:
        content.close()
        raise
    lines = _Lines(content, encoding=encoding, newline="\n")
    lines.path = path
    return lines


def read_text(file: DataFile, encoding: str) -> str:
    """Return the whole text of a file. Raises UserError if it is too large or not text in its encoding."""
    encoding = _canonical(encoding) or bom_encoding(file.beginning)
    try:
        return file.read_all().decode(encoding)
    except UnicodeError as error:
        raise decoding_error(file.path, encoding) from error


def find_format(file: DataFile, reading: TableReading) -> Format:
    """Detect the form of a file from its beginning; the quotes of a tab-separated file from all of it.

    Raises UserError if it does not exist, is empty, or is not text in its encoding.
    """
    path = file.path
    if not path.is_file() and not in_parts(path):
        if path.is_dir():
            raise UserError(f"{path} is a folder: give a file of texts or rows.", code="wrong-format")
        raise UserError(f"{path}: no such file.", code="missing-file")
    if path.suffix.lower() == ".parquet":
        return Format(kind="parquet", encoding="", columns=read_columns(file))
    with open_text(file, reading.encoding) as lines:
        try:
            sample = _sample(lines)
            if not any(map(str.strip, sample)):
                raise UserError(f"{path} is empty.", code="no-data")
            # Lines end at line feeds, so the carriage returns of an old Mac file are all within lines, at least as many
            # as there are lines. A quoted cell may contain any number of them.
            returns = sum(line.rstrip("\r\n").count("\r") for line in sample)
            if returns >= len(sample) and (len(sample) == 1 or not any('"' in line for line in sample)):
                raise UserError(
                    f"{path}: its lines end with carriage returns only (classic Mac OS). Convert it: "
                    f"tr '\\r' '\\n' < {path.name} > converted{plain_suffix(path)}",
                    code="wrong-format",
                )
            suffix = plain_suffix(path)
            if suffix in JSON_SUFFIXES or (suffix not in SUFFIXES and sample[0].lstrip().startswith("{")):
                newline = _line_end(sample)
                return Format(kind="jsonl", encoding=lines.encoding, columns=_keys(path, sample), newline=newline)
            if suffix == ".txt" and not reading.delimiter and reading.header != "yes":
                return Format(kind="lines", encoding=lines.encoding, columns=("text",))
            return _detect_delimited(path, sample, lines, reading)
        except UnicodeError as error:
            raise decoding_error(path, lines.encoding) from error


def _sample(lines: TextIO) -> list[str]:
    sample: list[str] = []
    size = 0
    for line in islice(lines, _SAMPLE_LINES):
        sample.append(line)
        size += len(line)
        if size > _SAMPLE_CHARACTERS:
            break
    return sample


def plain_suffix(path: Path) -> str:
    """Return the suffix without those of compression: ".csv" for reviews.csv and for reviews.csv.xz."""
    return Path(split_compressions(path.name)[0]).suffix.lower()


def _canonical(encoding: str) -> str:
    """Return the canonical name of an encoding, "" for "". Raises UserError if there is none of that name."""
    if not encoding:
        return ""
    try:
        "".encode(encoding)  # codecs know others too, such as hex, which make no text
        return codecs.lookup(encoding).name
    except LookupError as error:
        raise UserError(f"'{encoding}' is not an encoding that Python knows.", code="invalid-value") from error


def decoding_error(path: Path, encoding: str) -> UserError:
    """Return the error with the position of the first byte that is not `encoding`, and a likely encoding."""
    if _lacks_bom(path, encoding):
        return UserError(
            f"{path} has no byte-order mark, with which {encoding} text begins. Name its encoding with --encoding.",
            code="wrong-encoding",
        )
    decoder = codecs.getincrementaldecoder(encoding)()
    line, offset = 1, 0
    with open_packed(path) as file:
        # Line by line, so that the message has the line; the decoder keeps a character that two lines share (UTF-16).
        for chunk in file:
            try:
                decoder.decode(chunk)
            except UnicodeDecodeError as error:
                wrong = error.object[error.start]
                location = f"{path}, line {line}: byte {offset + error.start:,} (0x{wrong:02x}) is not {encoding}."
                likely = guess_encoding(chunk + file.read(_SAMPLE_BYTES))
                if likely in (None, codecs.lookup(encoding).name):
                    return UserError(
                        f"{location} Correct it, name the encoding with --encoding, or save the file as UTF-8.",
                        code="wrong-encoding",
                    )
                advice = f"The file may be in {likely}: give --encoding {likely}, or save it as UTF-8."
                return UserError(f"{location} {advice}", code="wrong-encoding")
            line += 1
            offset += len(chunk)
    return UserError(
        f"{path}: the file ends in the middle of a character; it is incomplete as {encoding} text.",
        code="wrong-encoding",
    )


def _lacks_bom(path: Path, encoding: str) -> bool:
    """Return whether a file lacks the byte-order mark that its encoding requires."""
    decoder = codecs.getincrementaldecoder(encoding)()
    with open_packed(path) as file:
        try:
            decoder.decode(file.read(4))
        except UnicodeDecodeError:
            return False
        except UnicodeError:
            return True
    return False


def _keys(path: Path, lines: Sequence[str]) -> tuple[str, ...]:
    """Return the keys of the objects in the sample, in the order of their first appearance."""
    keys: dict[str, None] = {}
    for line in lines:
        try:
            value = parse_json(line)
        except JSONDecodeError:
            continue  # the rows tell every such line with its number
        if isinstance(value, dict):
            keys |= dict.fromkeys(value)
    if not keys:
        raise UserError(
            f"{path}: none of its first lines is a JSON object such as {{'text': ..., 'label': ...}}.",
            code="wrong-format",
        )
    return tuple(keys)


def _detect_delimited(path: Path, sample: Sequence[str], more: TextIO, reading: TableReading) -> Format:
    """Return the form of a delimited file from its first lines; `more`: the lines after these."""
    hint = _HINT.fullmatch(sample[0])
    rest = list(without_hint(iter(sample)))
    delimiter = reading.delimiter.replace("\\t", "\t") or (hint[1] if hint else "")
    if not delimiter and plain_suffix(path) in (".tsv", ".tab") and any("\t" in line for line in rest):
        delimiter = "\t"
    delimiter = delimiter or _delimiter(rest)
    # Comma-separated files follow RFC 4180. Tab-separated ones exist in both kinds: GLUE has bare quotes in sentences.
    quotes = reading.quotes != "no"
    if reading.quotes == "auto" and delimiter == "\t":
        quotes = _has_quotes(chain(rest, more), delimiter)
    header, columns = read_header(path, list(islice(_rows(rest, delimiter, quotes), _SAMPLE_LINES)), reading)
    return Format(
        kind="delimited",
        encoding=more.encoding,
        columns=columns,
        delimiter=delimiter,
        quotes=quotes,
        header=header,
        hint=bool(hint),
        surplus=reading.surplus,
        newline=_line_end(sample),
    )


def read_header(
    path: Path, rows: Sequence[Sequence[str]], reading: TableReading, *, width: int = 0
) -> tuple[bool, tuple[str, ...]]:
    """Return whether the first of some rows is a header, and the names of at least `width` columns.

    A column without a name is called by its number. Raises UserError if two have the same name, and if the header is
    below a title.
    """
    if reading.header == "auto" and rows and (below := _find_header_below(rows, reading.names)):
        raise UserError(
            f"{path}: the header looks to be the line {', '.join(below)}, with a title above it. Remove the lines "
            "above the header. If there is none: --header no.",
            code="wrong-format",
        )
    header = is_header(rows, reading.names) if reading.header == "auto" else reading.header == "yes"
    first = rows[0] if rows else [""]
    names = [cell.strip() if header else "" for cell in first] + [""] * (width - len(first))
    columns = tuple(name or f"column {number}" for number, name in enumerate(names, 1))
    for index, name in enumerate(columns):
        if name in columns[:index]:
            raise UserError(
                f"{path}: the header names the column '{name}' twice: {', '.join(columns)}.", code="duplicate-name"
            )
    return header, columns


def _find_header_below(rows: Sequence[Sequence[str]], named: Sequence[str]) -> list[str]:
    """Return the header below a title, a first row of one cell: one of the next with two usual names; [] for none.

    >>> _find_header_below([["Report 2026", ""], ["text", "label"]], []), _find_header_below([["a"], ["a text"]], [])
    (['text', 'label'], [])
    """
    [title, *others] = rows[:_TITLE_ROWS]
    if len("".join(title)) > LONGEST_NAME or sum(bool(cell.strip()) for cell in title) > 1 or any(map(is_known, title)):
        return []
    # A title of one cell hides the delimiter.
    split = ([name.strip() for name in re.split(r"[\t,;|]", "\t".join(cells))] for cells in others)
    known = (names for names in split if sum(name in named or is_known(name) for name in names) > 1)
    return next((names for names in known if all(len(name) <= LONGEST_NAME for name in names)), [])


def _line_end(lines: Sequence[str]) -> str:
    return "\r\n" if lines[0].endswith("\r\n") else "\n"


def without_hint(lines: Iterator[str]) -> Iterator[str]:
    """Return the lines of a delimited file; Excel's declaration of the delimiter becomes a blank line.

    >>> list(without_hint(iter(["sep=;", "text;label"])))
    ['\\n', 'text;label']
    """
    first = [next(lines, "")]
    return chain(["\n"] if _HINT.fullmatch(first[0]) else first, lines)


def _rows(lines: Sequence[str], delimiter: str, quotes: bool) -> Iterator[list[str]]:
    problems = Problems(heading="sample")
    for _, cells in parse(iter(lines), delimiter=delimiter, quotes=quotes, name="sample", problems=problems):
        yield cells


def _delimiter(lines: Sequence[str]) -> str:
    """Return the delimiter that gives most lines as many cells as the first; a comma if there is none."""
    # Ties go to the one that is not a decimal comma, then to the earlier: a tab is never part of a sentence.
    without_decimals = [_DECIMAL_COMMA.sub(".", line) for line in lines]
    best, best_score = ",", [0.0, 0.0]
    for delimiter in _DELIMITERS:
        score: list[float] = []
        for sample in (lines, without_decimals):
            # The fraction of the first rows with as many cells as the first; 0 if that has one cell.
            widths = [len(cells) for cells in islice(_rows(sample, delimiter, True), 100)]
            score.append(widths.count(widths[0]) / len(widths) if widths and widths[0] > 1 else 0.0)
        if score > best_score and score[0] > 0:
            best, best_score = delimiter, score
    return best


def _has_quotes(lines: Iterator[str], delimiter: str) -> bool:
    """Return whether cells that begin with a quote are quoted: unless that makes more rows of a file unusable.

    A row is unusable if it cannot be parsed, or has another number of cells than the first.
    """
    plain: Counter[int] = Counter()
    """Rows by their number of delimiters, the first row's number first, if quotes are plain characters."""

    def count_plain() -> Iterator[str]:
        for line in lines:
            text = line.rstrip("\r\n")
            if text.strip() or delimiter in text:
                plain[text.count(delimiter)] += 1
            yield line

    problems = Problems(heading="", limit=0)
    rows = parse(count_plain(), delimiter=delimiter, quotes=True, name="", problems=problems)
    quoted = Counter(len(cells) for _, cells in rows)
    uneven = [widths.total() - next(iter(widths.values()), 0) for widths in (quoted, plain)]
    return uneven[0] + problems.count <= uneven[1]  # a tie means quoted, as RFC 4180 has it


def is_header(rows: Sequence[Sequence[str]], named: Sequence[str]) -> bool:
    """Return whether the first row is a header.

    It is if it contains a name from the user or a usual one. Otherwise it must differ from the rows below: short
    distinct words, no numbers, and none that occurs again in its column.
    """
    if not rows:
        return False
    first = [cell.strip() for cell in rows[0]]
    if any(name in first for name in named) or (len(rows) > 1 and is_rule(rows[1])):
        return True
    if any(_is_number(cell) or len(cell) > LONGEST_NAME for cell in first):
        return False
    if any(is_known(cell) for cell in first):
        return True
    if len(rows) < 3 or len(set(first)) < len(first) or any(not cell or cell.count(" ") > 2 for cell in first):
        return False
    return not any(cell == row[index] for row in rows[1:] for index, cell in enumerate(first) if index < len(row))


def is_rule(cells: Sequence[str]) -> bool:
    """Return whether two or more cells are a rule below a header, as in Markdown and in the output of databases.

    >>> is_rule(["", "---", ":-: ", ""]), is_rule(["---", "neg"]), is_rule(["---"])
    (True, False, False)
    """
    return len(cells) > 1 and "--" in cells[0] + cells[1] and bool(_RULE.fullmatch("|".join(cells).strip(" |")))


def _is_number(cell: str) -> bool:
    try:
        float(cell.replace(",", ".", 1))
    except ValueError:
        return False
    return True
