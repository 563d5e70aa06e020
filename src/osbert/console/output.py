"""The options --json and --quiet of every verb: whether events and the result go to a reader, a program or nobody.

The command line takes the two words away before a verb is called, and enters the Output that they mean. A verb prints
its result for people with `print`, passes a `watch` that was made by `watching`, as those below, of
training_consoles.py and of file_consoles.py are, and returns its result. With --json standard output has the events and
the returned result instead of what is printed; with --quiet no event is printed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias

from osbert.errors import UserError
from osbert.runs.contract import Notice, Watch, ignore
from osbert.runs.json_lines import event_line
from osbert.terminal import one_line

if TYPE_CHECKING:
    from rich.console import Console


Result: TypeAlias = Any
"""The return value of a verb: a dataclass or mapping, which --json prints last; None if there is no result."""

OPTIONS = {
    "json": "Print events and the result as JSON, one object a line (docs/output.md).",
    "quiet": "Print the result and errors alone; nothing where the result is a file or folder.",
}
PLAIN = {"--help", "-h", "--version"}
"""Options whose answer is always text for people."""


@dataclass(frozen=True)
class Output:
    """The form of a verb's output. `stream`: standard output for rows and JSON; None for the current sys.stdout."""

    json: bool = False
    quiet: bool = False
    stream: TextIO | None = None

    @classmethod
    def of_words(cls, words: Sequence[str]) -> tuple[Output, list[str]]:
        """Return the output chosen by the words of a command line, and the remaining words.

        In an option such as --model=~/run, ~ becomes the home folder: there the shell leaves it.

        >>> Output.of_words(["bench", "--json", "cpu"])
        (Output(json=True, quiet=False, stream=None), ['bench', 'cpu'])
        """
        # Words after "--" are texts of the user: a text may be "--json".
        end = words.index("--") if "--" in words else len(words)
        given = {*words[:end]}
        rest = [_expand_home(word) for word in words[:end] if word not in ("--json", "--quiet")]
        chosen = cls() if not rest or PLAIN & given else cls("--json" in given, "--quiet" in given)
        return chosen, [*rest, *words[end:]]

    @contextmanager
    def activate(self) -> Iterator[Output]:
        """Make this the output of the block. With --json, text that the block prints does not reach the stream."""
        with ExitStack() as held:
            if self.json:
                # Libraries may print to standard output as well; with --json every line there must be JSON.
                nowhere = held.enter_context(open(os.devnull, "w", encoding="utf-8"))
                self = replace(self, stream=sys.stdout)
                held.enter_context(redirect_stdout(nowhere))
            held.callback(CURRENT.reset, CURRENT.set(self))
            yield self

    def print_line(self, line: str, stream: TextIO | None = None) -> None:
        """Print a line and flush, to standard output unless another stream is given. Lines of threads do not mix."""
        stream = stream or self.stream or sys.stdout
        stream.write(f"{line}\n")
        stream.flush()

    def print_error(self, message: str, *, code: str, codes: Sequence[str] = (), prefix: str = "error: ") -> None:
        """Print an error to standard error: after `prefix` for people, or as JSON with its codes."""
        error = {"code": code, "codes": codes or (code,), "message": message}
        self.print_line(event_line(error, "error") if self.json else f"{prefix}{message}", sys.stderr)


CURRENT: ContextVar[Output] = ContextVar("CURRENT", default=Output())  # noqa: B039 (it is frozen)


def watching(people: Watch, *, stream: TextIO | None = None) -> Watch:
    """Return a `watch` for the current output: `people`, a function that prints JSON to `stream`, or `ignore`.

    Without `stream` JSON goes to standard output. Threads that it is called in need not know the output.
    """
    output = CURRENT.get()
    if output.quiet:
        return ignore
    return (lambda event: output.print_line(event_line(event), stream)) if output.json else people


def for_people() -> bool:
    """Return whether output is for people: neither --json nor --quiet was given."""
    output = CURRENT.get()
    return not (output.json or output.quiet)


def row_stream() -> TextIO:
    """Return standard output for a verb's rows, which are printed in every form of output."""
    return CURRENT.get().stream or sys.stdout


def rows_as_json() -> bool:
    """Return whether rows on standard output must be JSON lines."""
    return CURRENT.get().json


def print_notices(stream: TextIO | None = None) -> Watch:
    """Return a `watch` that prints notices to a stream; by default warnings to standard error, others to standard
    output."""

    def print_notice(event: Any) -> None:
        if isinstance(event, Notice):
            usual = sys.stderr if event.warning else sys.stdout
            print(one_line(line_of(event)), file=stream or usual, flush=True)

    return watching(print_notice, stream=stream)


def print_events() -> Watch:
    """Return a `watch` that prints every event as text."""
    return watching(lambda event: print(event, flush=True))


class EventConsole(ExitStack):
    """A `watch` that passes events to `show`, which starts a bar or table at the first event that needs one.

    With --json and --quiet `show` is not called.
    """

    def __init__(self) -> None:
        super().__init__()
        self.watch = watching(self.show)

    def __call__(self, event: Any) -> None:
        self.watch(event)

    def show(self, event: Any) -> None:
        """Print one event for people."""
        print(event, flush=True)


def line_of(event: object) -> str:
    """Return an event as text; a warning gets the prefix "warning: "."""
    text = name_packaged_models(str(event))
    return f"warning: {text}" if isinstance(event, Notice) and event.warning else text


def name_packaged_models(message: str) -> str:
    """Return a message with the name of a model of an installed package instead of its folder.

    >>> from osbert.interop.hub import minilm
    >>> name_packaged_models(f"{minilm()} was trained")
    'minilm was trained'
    """
    if "-packages" not in message:
        return message
    from osbert.interop.hub import (  # which help and most messages do not need
        find_packaged_folder,
        list_packaged_models,
    )

    for name in list_packaged_models():
        with suppress(UserError):  # a defect of another package
            message = message.replace(str(find_packaged_folder(name)), name)
    return message


def _expand_home(word: str) -> str:
    name, _, value = word.partition("=")
    return f"{name}={os.path.expanduser(value)}" if name.startswith("--") and value.startswith("~/") else word


def say(console: Console, event: object) -> None:
    """Print an event or text literally: rich's markup, highlighting, emoji and wrapping are off."""
    console.print(line_of(event), markup=False, highlight=False, emoji=False, soft_wrap=True)
