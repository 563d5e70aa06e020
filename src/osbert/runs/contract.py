"""The contract of a run: settings in by keyword, events out through a callback, a `Run` at the end.

A function of runs/ prints nothing, catches no signal and never exits the process. It raises UserError for problems that
the user can fix. It passes each event to `watch`; a command prints the events, a library call ignores them by default.
A command whose run should end in good order at a signal passes `wish`, an Interruption: pretraining expects it to be
entered, fine-tuning enters it while it trains. StopRequest is raised after a signal. Without `wish`, KeyboardInterrupt
passes through. In both cases the same call resumes from the last checkpoint.

Events are small frozen dataclasses: those of every run are here, those of one kind of run are beside it. With --json an
event and a result are JSON objects (json_lines.py), which docs/output.md lists.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from osbert.remote import OF_RUNS, local_copy, split_address, with_addresses
from osbert.terminal import format_count

if TYPE_CHECKING:
    from osbert.inference.engine import Engine
    from osbert.inference.model import LoadedModel


@dataclass(frozen=True)
class Notice:
    """One sentence for people, with addresses for the copies of remote inputs. `warning`: something may be wrong."""

    text: str
    warning: bool = False

    def __post_init__(self) -> None:
        """Name the addresses of copies that this process reads."""
        object.__setattr__(self, "text", with_addresses(self.text))

    def __str__(self) -> str:
        """Return the sentence, so that `watch=print` is readable."""
        return self.text


@dataclass(frozen=True, kw_only=True)
class WorkProgress:
    """Event: `done` of `count` items are finished. `of`: the work; "search" is a `search-progress` with --json."""

    reported: ClassVar[tuple[str, ...]] = ("done", "count")

    of: str
    done: int
    count: int

    @property
    def event(self) -> str:
        """The event's name in JSON."""
        return f"{self.of}-progress"

    def __str__(self) -> str:
        """Return one line, so that `watch=print` is readable."""
        return f"{self.of}: {self.done:,} of {self.count:,}"


Watch: TypeAlias = Callable[[Any], None]
"""A callback for events, called in the thread that does the work."""


def ignore(event: Any) -> None:
    """Ignore an event: the default of `watch`."""


def describe_remarks(engine: LoadedModel) -> list[str]:
    """Return the remarks on the folder of an opened model."""
    return [f"{engine.folder}: {remark}" for remark in engine.remarks]


def report_remarks(engine: LoadedModel, watch: Watch) -> None:
    """Report `describe_remarks` as notices."""
    for remark in describe_remarks(engine):
        watch(Notice(remark))


def warn_unknown(count: int, watch: Watch) -> None:
    """Report a warning if there are texts that the model's vocabulary mostly lacks. `count`: the number of these."""
    if count:
        texts = format_count(count, "text")
        lacks = "the model's vocabulary lacks their script, so it reads next to nothing of them"
        watch(Notice(f"{texts} with mostly unknown pieces: {lacks}. Give a model of their language.", warning=True))


@dataclass(frozen=True)
class Run:
    """A finished run: its folder and its measurements. The model is loaded at its first use."""

    reported: ClassVar[tuple[str, ...]] = ("folder", "facts")

    folder: Path
    """The run's folder, as an absolute path; `osbert.load` opens it."""

    def __post_init__(self) -> None:
        """Make a local path absolute: the current folder may have changed when the model is loaded."""
        if split_address(self.folder) is None:
            object.__setattr__(self, "folder", self.folder.absolute())

    def __fspath__(self) -> str:
        """Return the folder on this machine, so that a run may be given in place of its path."""
        return str(self.local_folder)

    @property
    def local_folder(self) -> Path:
        """The folder on this machine: a copy, without checkpoints, if the run is on an object store."""
        return local_copy(self.folder, without=OF_RUNS)

    @property
    def facts(self) -> dict[str, Any]:
        """The facts in run.json on the end of the run."""
        from osbert.training.run_folder import RunFolder

        return dict(RunFolder(self.local_folder).facts["finished"])

    @cached_property
    def model(self) -> Engine:
        """The run's model, opened like `osbert.load` does."""
        from osbert.inference.engine import load  # torch takes seconds to import

        return load(self.local_folder)
