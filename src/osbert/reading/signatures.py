"""File signatures: the format of a file that is not text, by its first bytes, and advice on what to do with it."""

from __future__ import annotations

import zipfile
from pathlib import Path

LONGEST = 16
"""Length of the longest signature in bytes."""

_SHEET = "save it as CSV (UTF-8) in its program"
_DOCUMENT = "save its text as .txt (UTF-8) in its program"
_SIGNATURES = (
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", f"an old Office file (.xls, .doc) or an encrypted one: {_SHEET}"),
    (b"%PDF-", "a PDF file: extract its text, as with pdftotext"),
    (b"{\\rtf", f"a rich-text file (.rtf): {_DOCUMENT}"),
    (b"PAR1", "a Parquet file: give it the ending .parquet"),
    (b"ARROW1\0\0", "an Arrow file: write it as Parquet or CSV"),
    (b"SQLite format 3\0", "an SQLite database: export the table as CSV"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file: write its table as CSV"),
    (b"\x93NUMPY", "a NumPy array: write it as CSV"),
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


def foreign(start: bytes, path: Path) -> str:
    """Return the format of a file and what to do with it; "" if its first bytes, `start`, may be text.

    >>> foreign(b"%PDF-1.7", Path("a.csv"))
    'a PDF file: extract its text, as with pdftotext'
    >>> foreign(b"text,label", Path("a.csv"))
    ''
    """
    if start.startswith(_ZIP):
        return _package(path)
    if start.startswith(b"BZh") and start[4:10] == _BZIP2:
        return "compressed with bzip2: give it an ending such as .csv.bz2"
    return next((what for signature, what in _SIGNATURES if start.startswith(signature)), "")


def _package(path: Path) -> str:
    """Return the format of a ZIP archive, which may be the file of an office program."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError):  # truncated, or compressed once more
        return f"a ZIP archive or an office file (.xlsx, .ods): unpack it, or {_SHEET}"
    for begin, what in _PACKAGES:
        if any(name.startswith(begin) for name in names):
            return what
    return "a ZIP archive: unpack it"
