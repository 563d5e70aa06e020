"""Parsing of untrusted JSON and TOML: size, depth and number of values are checked before a parser builds objects.

A parser makes up to 30 bytes of Python objects from one byte of text: an empty list takes 3 bytes in a file and 72 in
memory. The memory is therefore estimated first, by counting characters.
"""

from __future__ import annotations

import json
import re
import stat
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from json import JSONDecodeError
from pathlib import Path
from typing import Any, TypeGuard

from osbert.errors import UserError

DEEPEST = 64
"""Deepest nesting of lists and tables."""
LARGEST = 1 << 28
"""Largest file that is read into memory, in bytes, unless the caller sets another limit; 256 MiB."""
FREE = 250_000_000
"""Bytes of memory that the values of any text may take, however short it is."""
TIMES = 8
"""Bytes of memory that they may take in addition for each character of the text."""
CONTAINER, VALUE = 200, 72
"""Upper estimates of the bytes of a list or table, and of a value in it."""
RECIPE = 1 << 18
"""Most characters of a TOML text."""
LONGEST_KEY = 16
"""Most parts of a dotted TOML key. tomllib's memory grows with their square."""

_INSIDE = re.compile(r"(?!/)[^\x00-\x1f\\:\ud800-\udfff]{0,200}")  # neither of the root, nor with a drive of Windows
_BLOCK = 1 << 20
_ESCAPE = re.compile(r"\\.", re.DOTALL)
_PART = r"""(?:[A-Za-z0-9_-]++|"(?:[^"\\\n]|\\[^\n])*+"?+|'[^'\n]*+'?+)"""
_DOTTED = rf"(?:[ \t]*+\.[ \t]*+{_PART})"
_TOML = re.compile(
    r"#[^\n]*+"
    r'|"""(?:[^"\\]|\\.|"(?!""))*+(?:"{3,5}|\Z)'
    r"|'''(?:[^']|'(?!''))*+(?:'{3,5}|\Z)"
    rf"|{_PART}{_DOTTED}{{0,{LONGEST_KEY - 1}}}+(?P<more>{_DOTTED})?+",
    re.DOTALL,
)
"""A comment, a multi-line string, or a possible key. A single-line string counts as a key of one part.

Time is linear: no alternative backtracks, and an unclosed string ends with its line or the text.
"""


def leads_below(name: object) -> TypeGuard[str]:
    """Return whether what a folder's file names is a path that stays in the folder, links apart."""
    return isinstance(name, str) and bool(_INSIDE.fullmatch(name)) and ".." not in name.split("/")


def require_regular(path: Path) -> None:
    """Raise UserError where a folder has a pipe or a device for a file: to open one can wait for ever.

    Raises OSError as `stat`. A folder passes: `open` refuses it.
    """
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise UserError(
            f"{path} is a pipe, a socket or a device, not a regular file. Remove it, or copy the folder again.",
            code="not-a-regular-file",
        )


def read_bytes(path: Path, *, most: int = LARGEST) -> bytes:
    """Return a regular file's content.

    Raises UserError if it has more than `most` bytes, and as `require_regular`; OSError as `open` does.
    """
    require_regular(path)
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise UserError(
            f"{path} has {path.stat().st_size:,} bytes; such a file has at most {most:,}. Is it damaged?",
            code="too-large",
        )
    return content


def read_json(path: Path, *, most: int = LARGEST) -> Any:
    """Return the value in a JSON file in UTF-8, with or without a byte-order mark.

    Raises ValueError if it is not JSON or not UTF-8, and UserError and OSError as `read_bytes` does.
    """
    return parse_json(read_bytes(path, most=most).decode("utf-8-sig"))


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs of a JSON object as a dict, which would keep the last value of a key that comes twice.

    >>> unique([("a", 1), ("a", 2)])
    Traceback (most recent call last):
    ValueError: an object has the key 'a' twice
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        known: set[str] = set()
        name = next(name for name, _ in pairs if name in known or known.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"an object has the key {name!r:.100} twice")
    return found


_STRICT = json.JSONDecoder(object_pairs_hook=unique)


def parse_json(text: str, *, unique_keys: bool = False) -> Any:
    """Return the value of a JSON text. With `unique_keys`, no object may have a key twice.

    Raises JSONDecodeError and nothing else, also if the value is nested deeper than DEEPEST or would take far more
    memory than its text.
    """
    _require_bounded(text)
    try:
        return _STRICT.decode(text) if unique_keys else json.loads(text)
    except JSONDecodeError:
        raise
    except RecursionError:
        raise JSONDecodeError("nested too deeply", text, 0) from None
    except ValueError as error:  # a repeated key, or an integer of thousands of digits
        raise JSONDecodeError(str(error), text, 0) from None


def parse_toml(text: str) -> dict[str, Any]:
    """Return the table of a TOML text.

    Raises ValueError for what is no TOML, longer than RECIPE, nested too deeply, or has a key of too many parts.
    """
    if len(text) > RECIPE:
        raise ValueError(f"{len(text):,} characters are too many for a recipe (at most {RECIPE:,})")
    for match in _TOML.finditer(text):
        if match["more"]:
            line = text.count("\n", 0, match.start()) + 1
            raise ValueError(f"line {line} has a key of more than {LONGEST_KEY} parts: {match[0][:40]}...")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


@contextmanager
def native(what: object) -> Iterator[None]:
    """Raise UserError about `what` if a Rust library panics: its PanicException is no Exception in Python."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise UserError(
            f"{what}: the library that reads it failed ({error}). The file is damaged.", code="damaged-file"
        ) from error


def _require_bounded(text: str) -> None:
    """Raise JSONDecodeError if a JSON text has too deep nesting or too many values, those in its strings left out."""
    bytes_allowed = FREE + TIMES * len(text)
    # A cheap upper bound, which also counts characters in strings; the exact scan runs only if it is exceeded.
    opened = text.count("[") + text.count("{")
    if opened <= DEEPEST and CONTAINER * opened + VALUE * text.count(",") <= bytes_allowed:
        return
    import numpy as np  # the command line imports this module before it needs numpy

    depth = containers = commas = start = inside = 0
    while start < len(text):
        end = start + _BLOCK
        while text[end - 1 : end] == "\\":  # do not split an escape
            end += 1
        # Without escapes every quotation mark begins or ends a string, so pieces alternate between outside and inside.
        pieces = _ESCAPE.sub("", text[start:end]).split('"')
        outside = "".join(pieces[inside::2])
        start, inside = end, (inside + len(pieces) - 1) % 2
        containers += outside.count("[") + outside.count("{")
        commas += outside.count(",")
        # +1 for an opening and -1 for a closing bracket; their prefix sum is the depth after each character.
        codes = np.frombuffer(outside.encode("latin-1", "replace"), np.uint8)
        steps = np.isin(codes, list(b"[{")).astype(np.int8) - np.isin(codes, list(b"]}")).astype(np.int8)
        depths = depth + np.cumsum(steps, dtype=np.int64)
        if depths.max(initial=depth) > DEEPEST:
            raise JSONDecodeError(f"nested deeper than {DEEPEST} levels", text, 0)
        depth = int(depths[-1]) if len(depths) else depth
    if CONTAINER * containers + VALUE * commas > bytes_allowed:
        raise JSONDecodeError(f"{containers + commas:,} values are too many for {len(text):,} characters", text, 0)


LARGEST_CONFIG = 1 << 25
"""Most bytes of a config or an index; with a hundred thousand labels it has about 8 million."""


def read_value(path: Path, *, most: int = LARGEST_CONFIG) -> Any:
    """Return the value in a JSON file of at most `most` bytes.

    Raises UserError when the file is missing, larger, or not JSON in UTF-8.
    """
    try:
        return read_json(path, most=most)
    except FileNotFoundError as error:
        raise UserError(f"{path} is missing. Is {path.parent} a model's folder?", code="missing-file") from error
    except ValueError as error:
        raise UserError(
            f"{path}: not valid JSON in UTF-8: {error}. Copy or download it again.", code="wrong-format"
        ) from error


def read_object(path: Path, *, most: int = LARGEST_CONFIG) -> dict[str, Any]:
    """Return the object in a JSON file. Raises UserError as `read_value`, and when it holds something else."""
    value = read_value(path, most=most)
    if not isinstance(value, dict):
        raise UserError(f"{path}: expected a JSON object, found {type(value).__name__}.", code="wrong-format")
    return value


def read_if_there(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file, an empty one where there is no file. Raises UserError as `read_object`."""
    return read_object(path) if path.is_file() else {}
