"""What a verb prints of the events of a run."""

from __future__ import annotations

import sys
from typing import Any, TextIO

from osbert.runs.contract import Notice, Watch
from osbert.terminal import one_line


def print_notices(stream: TextIO | None = None) -> Watch:
    """Return a `watch` that prints notices to a stream. Without one: warnings to standard error, others to output."""

    def printed(event: Any) -> None:
        if isinstance(event, Notice):
            usual = sys.stderr if event.warning else sys.stdout
            print(one_line(event.text), file=stream or usual, flush=True)

    return printed
