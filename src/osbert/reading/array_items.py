"""Splits a JSON array into its items in bounded memory, without parsing them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

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
        yield ValueError("something stands behind the end of the array")
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
