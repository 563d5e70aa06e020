"""--json and --quiet, which every verb has: who gets its events and its result, a reader, a program or nobody.

The command line takes the two words away before a verb is called, and enters the Output that they mean. A verb prints
its result for people with `print`, passes a `watch` that was made by `watching`, as those of printing.py,
training_consoles.py and file_consoles.py are, and returns its result. With --json standard output has the events and
the returned result instead of what is printed; with --quiet no event is printed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, TextIO, TypeAlias

from osbert.runs.contract import Watch, ignore
from osbert.runs.json_lines import event_line

Result: TypeAlias = Any
"""What a verb returns: a dataclass or a mapping, whose fields --json prints last; None where it has none."""

OPTIONS = {
    "json": "Print events and the result as JSON, one object a line (docs/output.md).",
    "quiet": "Print the result and errors alone; nothing where the result is a file or folder.",
}
PLAIN = {"--help", "-h", "--version"}
"""Words whose answer is for people."""


@dataclass(frozen=True)
class Output:
    """The form of a verb's output. `stream`: standard output, where rows and JSON go; None for that of the moment."""

    json: bool = False
    quiet: bool = False
    stream: TextIO | None = None

    @classmethod
    def of_words(cls, words: Sequence[str]) -> tuple[Output, list[str]]:
        """Return the output that the words of a command line choose, and the other words.

        >>> Output.of_words(["bench", "--json", "cpu"])
        (Output(json=True, quiet=False, stream=None), ['bench', 'cpu'])
        """
        end = words.index("--") if "--" in words else len(words)
        given = {*words[:end]}
        rest = [word for word in words[:end] if word not in ("--json", "--quiet")]
        chosen = cls() if not rest or PLAIN & given else cls("--json" in given, "--quiet" in given)
        return chosen, [*rest, *words[end:]]

    @contextmanager
    def entered(self) -> Iterator[Output]:
        """Make it the output of all that runs inside; with --json nothing that is printed there reaches the stream."""
        with ExitStack() as held:
            if self.json:
                nowhere = held.enter_context(open(os.devnull, "w", encoding="utf-8"))
                self = replace(self, stream=sys.stdout)
                held.enter_context(redirect_stdout(nowhere))
            held.callback(CURRENT.reset, CURRENT.set(self))
            yield self

    def print_line(self, line: str, stream: TextIO | None = None) -> None:
        """Print a line at once, to standard output unless another stream is given; lines of threads do not mix."""
        stream = stream or self.stream or sys.stdout
        stream.write(f"{line}\n")
        stream.flush()

    def print_result(self, result: Result) -> None:
        """Print what a verb returned, with --json; for people it has printed it."""
        if self.json and result is not None:
            self.print_line(event_line(result, "result"))

    def print_error(self, message: str, *, code: str, codes: Sequence[str] = (), prefix: str = "error: ") -> None:
        """Print an error to standard error: for people after `prefix`, or as JSON with its codes."""
        error = {"code": code, "codes": codes or (code,), "message": message}
        self.print_line(event_line(error, "error") if self.json else f"{prefix}{message}", sys.stderr)


CURRENT: ContextVar[Output] = ContextVar("CURRENT", default=Output())  # noqa: B039 (it is frozen)


def watching(people: Watch, *, stream: TextIO | None = None) -> Watch:
    """Return a `watch` for the output of the moment: `people`, or one that prints JSON to `stream`, or to none.

    Without `stream` JSON goes to standard output. Threads that it is called in need not know the output.
    """
    output = CURRENT.get()
    if output.quiet:
        return ignore
    return (lambda event: output.print_line(event_line(event), stream)) if output.json else people


def for_people() -> bool:
    """Return whether all is printed, for people: neither --json nor --quiet was given."""
    output = CURRENT.get()
    return not (output.json or output.quiet)


def row_stream() -> TextIO:
    """Return standard output for a verb's rows, which are printed whatever the form of its events."""
    return CURRENT.get().stream or sys.stdout


def rows_as_json() -> bool:
    """Return whether rows on standard output are to be JSON lines."""
    return CURRENT.get().json
