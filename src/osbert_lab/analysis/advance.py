"""The progress of an analysis, in parts: the tokens that it reads, and the items that its probes are trained on."""

from __future__ import annotations

from collections.abc import Callable

Report = Callable[[str, int, int], None]
"""Receives what is counted in a part, how much of it is done, and how much there is."""


class Advance:
    """The progress of one part: it is called with the steps since the last call.

    >>> reading = Advance(print, "tokens", 8)
    >>> reading(3)
    tokens 3 8
    >>> reading.part("training items", 2)(1)
    training items 0 2
    training items 1 2
    >>> reading(99)
    tokens 8 8
    """

    def __init__(self, report: Report = lambda what, done, count: None, what: str = "tokens", count: int = 0) -> None:
        """Start a part of `count` steps, of which none is done. By default nothing is reported."""
        self.report, self.what, self.count = report, what, count
        self.done = 0

    def __call__(self, steps: int) -> None:
        """Report further steps. The count may be an estimate: no more steps than these are reported."""
        self.done = min(self.done + steps, self.count)
        self.report(self.what, self.done, self.count)

    def part(self, what: str, count: int) -> Advance:
        """Return the progress of another part, and report its start."""
        part = Advance(self.report, what, count)
        part(0)
        return part


SILENT = Advance()
"""Progress that nobody watches."""
