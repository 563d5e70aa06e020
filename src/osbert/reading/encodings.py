"""Decodes bytes in blocks of bounded size; other encodings, and files that are not text, are detected and reported."""

from __future__ import annotations

import codecs
import io
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Literal

from osbert.errors import UserError
from osbert.reading.compression import Stream
from osbert.reading.inputs import Repairs

LONGEST = 16
"""Length of the longest signature in bytes."""

_SHEET = "save it as CSV (UTF-8) in its program"
_DOCUMENT = "save its text as .txt (UTF-8) in its program"
_FRAME = "a Stata or SPSS file: read it by pandas, and give its DataFrame"
_SIGNATURES = (
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", f"an old Office file (.xls, .doc) or an encrypted one: {_SHEET}"),
    (b"%PDF-", "a PDF file: extract its text, as with pdftotext"),
    (b"{\\rtf", f"a rich-text file (.rtf): {_DOCUMENT}"),
    (b"PAR1", "a Parquet file: give it the ending .parquet"),
    (b"ARROW1\0\0", "an Arrow file: give it the ending .arrow"),
    (b"\xff\xff\xff\xff", "an Arrow stream: give it the ending .arrow"),
    (b"SQLite format 3\0", "an SQLite database: export the table as CSV"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file: write its table as CSV"),
    (b"\x93NUMPY", "a NumPy array: write it as CSV"),
    (b"<stata_dta>", _FRAME),
    (b"r\x02\x01\0", _FRAME),
    (b"$FL2@(#)", _FRAME),
    (b"\x80\x04\x95", "a pickle: write its table as CSV"),
    (b"\x80\x05\x95", "a pickle: write its table as CSV"),
    (b"\x1f\x8b\x08", "compressed with gzip: give it an ending such as .csv.gz"),
    (b"\xfd7zXZ\0", "compressed with xz: give it an ending such as .csv.xz"),
    (b"\x28\xb5\x2f\xfd", "compressed with Zstandard: give it an ending such as .csv.zst"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive: unpack it"),
    (b"Rar!\x1a\x07", "a RAR archive: unpack it"),
)
_BZIP2 = b"1AY&SY"
"""The start of a bzip2 file's first block. It follows "BZh" and a digit, with which a text may begin, too."""
_ZIP = b"PK\x03\x04"
_PACKAGES = (
    ("xl/", f"an Excel workbook (.xlsx): give it that ending, or {_SHEET}"),
    ("word/", f"a Word document (.docx): {_DOCUMENT}"),
    ("ppt/", f"a PowerPoint file (.pptx): {_DOCUMENT}"),
    ("content.xml", f"an OpenDocument file (.ods, .odt): {_SHEET}"),
    ("Index/", f"a Numbers or Pages file: {_SHEET}"),
)


_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def bom_encoding(start: bytes) -> str:
    """Return the encoding of the byte-order mark in the first bytes, UTF-8 if there is none."""
    for mark, name in _BOMS:
        if start.startswith(mark):
            return name
    return "utf-8"


def foreign(start: bytes, file: Path | BinaryIO) -> str:
    """Return the format of a file and what to do with it; "" if its first bytes, `start`, may be text.

    >>> foreign(b"%PDF-1.7", Path("a.csv"))
    'a PDF file: extract its text, as with pdftotext'
    >>> foreign(b"text,label", Path("a.csv"))
    ''
    """
    if start.startswith(_ZIP):
        return _package(file)
    if start.startswith(b"BZh") and start[4:10] == _BZIP2:
        return "compressed with bzip2: give it an ending such as .csv.bz2"
    for signature, what in _SIGNATURES:
        if start.startswith(signature):
            return what
    return ""


def _package(file: Path | BinaryIO) -> str:
    """Return the format of a ZIP archive, which may be the file of an office program."""
    try:
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError):  # truncated, or compressed once more
        return f"a ZIP archive or an office file (.xlsx, .ods): unpack it, or {_SHEET}"
    for begin, what in _PACKAGES:
        if any(name.startswith(begin) for name in names):
            return what
    return "a ZIP archive: unpack it"


BLOCK = 1 << 20
"""Bytes read at a time: the memory used for a file, however long its lines are."""

Errors = Literal["strict", "replace"]

# The characters that make up much of the non-ASCII text in these encodings.
_COMMON = {
    "gb18030": "的一是不了在人有我他这个们中来上大为和国，。、",
    "big5": "的一是不了在人有我他這個們中來上大為和國，。、",
    "shift_jis": "のにはをたがでてとしれさあいうかなるっこすまもーンスルトラ、。",
    "euc_jp": "のにはをたがでてとしれさあいうかなるっこすまもーンスルトラ、。",
    "euc_kr": "이다는에의을를가고하지도로사한은기서리어아나",
    "cp1251": "оеаинтсрвлкмдпуяыьгзбчйхжшюцщэфъё",
    "koi8_r": "оеаинтсрвлкмдпуяыьгзбчйхжшюцщэфъё",
    "cp1252": "éèàêçùôîûâëïäöüßÄÖÜñáíóúåæøØÅ’‘“”–—…•«»£€°©®½ãõ",
}
_CYRILLIC = ("cp1251", "koi8_r")
_ONE_BYTE = (*_CYRILLIC, "cp1252")
_LETTERS = re.compile(rb"[\x8a\x8c\x8e\x9a\x9c\x9e\x9f\xc0-\xff]+")
"""Letters beyond ASCII in cp1252; nearly all in cp1251 and KOI8-R are among them."""
GUESSED = tuple(_COMMON)
"""The legacy encodings that can be guessed."""


def decode_blocks(stream: Stream, *, encoding: str, errors: Errors, repairs: Repairs) -> Iterator[str]:
    """Yield the text of a stream in blocks; \\r\\n and \\r become \\n, and a byte-order mark is removed.

    Raises UserError with offset, line and likely encoding at the first invalid bytes. If `errors` is "replace", they
    become U+FFFD and are counted.
    """
    decoder = codecs.getincrementaldecoder(encoding)(errors)
    newlines = io.IncrementalNewlineDecoder(None, translate=True)
    start = lines = 0
    first = True
    while True:
        data = stream.read(BLOCK)
        if first and (what := foreign(data, Path(stream.name))):
            raise UserError(f"{stream.name} is not text but {what}.", code="wrong-encoding")
        if first and encoding.lower().replace("-", "") in ("utf8", "ascii"):
            refuse_other_unicode(data, stream.name)
        # Bytes of an incomplete character at the end of the last block: error offsets count from them.
        waiting = decoder.getstate()[0]
        try:
            text = decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            raise _undecodable(stream.name, waiting + data, error, start - len(waiting), lines) from error
        if errors == "replace":
            _count_replaced(text, data, stream.name, repairs)
        text = newlines.decode(text, final=not data)
        if first and text:
            first = False
            if text[0] == "\ufeff":
                text = text[1:]
                repairs.boms += 1
                repairs.note(f"{stream.name}: byte-order mark removed")
        if text:
            yield text
        if not data:
            return
        start += len(data)
        lines += data.count(b"\n")


def guess_encoding(data: bytes) -> str | None:
    """Return the likely encoding of bytes that are not UTF-8; "utf-8" if only a few of them are damaged.

    Criteria, in order: a byte-order mark; zero bytes (UTF-16 or UTF-32); the legacy encoding in which all of it decodes
    into the most common letters of its languages; everyday Chinese. None if nothing is plausible.
    """
    if data.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "utf-32"
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if data.count(0) * 10 > len(data):
        # UTF-32 has zeros in two of every four bytes, UTF-16 of Latin text in every second one.
        mostly_zero = [data[offset::4].count(0) * 10 > len(data) * 2 for offset in range(4)]  # most of a quarter
        if mostly_zero[2:] == [True, True] and not mostly_zero[0]:
            return "utf-32-le"
        if mostly_zero[:2] == [True, True] and not mostly_zero[3]:
            return "utf-32-be"
        return "utf-16-le" if data[1::2].count(0) > data[::2].count(0) else "utf-16-be"
    text = data.decode("utf-8", "replace")
    damaged = text.count("\ufffd")
    if damaged * 4 <= sum(character > "\x7f" and character != "\ufffd" for character in text):
        return "utf-8"
    # Letters beyond ASCII stand singly among others in the languages of cp1252, and side by side in Cyrillic.
    unlikely = _CYRILLIC if _stands_singly(data) else ()
    scores = {encoding: _plausibility(data, encoding) for encoding in _COMMON if encoding not in unlikely}
    best = max(scores, key=lambda encoding: scores[encoding])
    least = 0.6 if best in _ONE_BYTE else 0.2  # common characters are half of all in the former, and few in the latter
    if scores[best] > least:
        return best
    return "gb18030" if _is_plain_chinese(data) else None


def _stands_singly(data: bytes) -> bool:
    """Return whether at least half of the letters beyond ASCII, read as cp1252, stand alone."""
    runs = _LETTERS.findall(data)
    return 2 * sum(len(run) == 1 for run in runs) >= sum(map(len, runs))


def _is_plain_chinese(data: bytes) -> bool:
    """Return whether all of the non-ASCII text is punctuation or among the 3755 most used characters of GB 2312.

    Korean in EUC-KR uses a part of the same range, so text that could be only Hangul is not taken for Chinese.
    """
    try:
        text = codecs.getincrementaldecoder("gb18030")("strict").decode(data)
    except UnicodeDecodeError:
        return False
    pairs = [character.encode("gb18030") for character in text if character > "\x7f"]
    # In GB 2312 rows 0xB0 to 0xD7 are the most used characters; 0xA1 and 0xA3 are punctuation and full-width ASCII.
    characters = [pair for pair in pairs if 0xB0 <= pair[0] <= 0xD7 and pair[1] >= 0xA1]
    signs = sum(pair[0] in (0xA1, 0xA3) and pair[1] >= 0xA1 for pair in pairs)
    korean = all(pair[0] <= 0xC8 for pair in characters)  # where the syllables end and the Chinese characters begin
    return bool(characters) and len(characters) + signs == len(pairs) and not korean


def _plausibility(data: bytes, encoding: str) -> float:
    """Return the fraction of the non-ASCII characters that are common in `encoding`, 0 if the bytes do not decode."""
    try:
        text = codecs.getincrementaldecoder(encoding)("strict").decode(data)
    except UnicodeDecodeError:
        return 0.0
    foreign = [character for character in text if character > "\x7f"]
    common = set(_COMMON[encoding])
    # A legacy text of one byte a letter also decodes as some two-byte encoding, but into rare characters.
    return sum(character in common for character in foreign) / len(foreign) if foreign else 0.0


def refuse_other_unicode(data: bytes, name: str) -> None:
    """Raise UserError if a file read as UTF-8 begins like UTF-16 or UTF-32: such ASCII decodes, with zeros."""
    sample = data[: 1 << 16]
    marked = sample.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE))
    if marked or sample.count(0) * 10 > len(sample):
        guess = guess_encoding(sample)
        raise UserError(
            f"{name}: not UTF-8 from byte 0 (line 1) on. It looks like {guess}: use --encoding {guess}.",
            code="wrong-encoding",
        )


def _undecodable(name: str, data: bytes, error: UnicodeDecodeError, offset: int, lines: int) -> UserError:
    line = lines + data.count(b"\n", 0, error.start) + 1
    bad = data[error.start : max(error.end, error.start + 1)].hex(" ")
    # The sample begins at a line break, so that it begins with a whole character.
    begin = data.find(b"\n", max(0, error.start - (1 << 15)), error.start) + 1
    sample = data[begin : error.start + (1 << 15)]
    guess = guess_encoding(sample)
    if guess == "utf-8":
        advice = (
            "The text around it is UTF-8, so these bytes are damaged: --errors replace writes U+FFFD and counts them"
        )
    elif guess is None:
        advice = "Its encoding was not detected: name it with --encoding, or use --errors replace, which counts U+FFFD"
    else:
        advice = f"It looks like {guess}: use --encoding {guess}, or let --errors replace write U+FFFD and count them"
    location = f"{name}: byte {offset + error.start:,} (line {line:,})"
    return UserError(f"{location} is not {error.encoding}: {bad} ({error.reason}). {advice}.", code="wrong-encoding")


def _count_replaced(text: str, data: bytes, name: str, repairs: Repairs) -> None:
    count = text.count("\ufffd")
    if count:
        count -= data.count("\ufffd".encode())  # those that the text brings along
    if count > 0:
        repairs.replaced += count
        repairs.note(f"{name}: undecodable bytes replaced")
