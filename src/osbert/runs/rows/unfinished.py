"""OUT.unfinished: what a stopped command has done of its output, with the facts that identify the command."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from osbert import recipe
from osbert.errors import UserError
from osbert.files import read_own, refuse_foreign, write_sealed
from osbert.runs.contract import Notice, Watch
from osbert.runs.rows.standard_input import KEPT

FACTS = "run.json"
OTHERS = ("progress.json", f"{KEPT}*", "*.bin", "*.figures.json", "tasks-*", "submitted.json")
"""The other files of unfinished work."""


@dataclass(frozen=True, kw_only=True)
class UnfinishedOutput:
    """The folder `folder` of the unfinished work on the output `out`."""

    out: Path
    folder: Path

    @property
    def begun(self) -> dict[str, Any]:
        """Return what `begin` wrote, {} if it was not called yet. Raises UserError if that is damaged."""
        path = self.folder / FACTS
        return read_own(path, f"Remove {self.folder} to begin anew.") if path.is_file() else {}

    def begin(self, facts: Mapping[str, Any], count: int) -> None:
        """Write the facts of the work and the number of its rows: the folder now stays until `end`."""
        write_sealed(self.folder / FACTS, {"facts": facts, "count": count})

    def end(self) -> None:
        """Mark the work as done: the folder goes."""
        # The facts file marks unfinished work; without it `unfinished_output` removes the folder.
        (self.folder / FACTS).unlink(missing_ok=True)

    def refuse_other(self, before: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
        """Raise UserError if the facts that the work was begun with are not those of the command given now."""
        # Through JSON and back, as `before` was: tuples are lists in both.
        if lines := recipe.difference(before, json.loads(json.dumps(facts))):
            raise UserError(
                f"{self.out} was begun with other settings or inputs:\n"
                + "\n".join(f"  {line}" for line in lines)
                + f"\nGive the command that it was begun with to go on, remove {self.folder} to begin anew, or choose "
                "another --out.",
                code="begun-with-other-settings",
            )


@contextmanager
def open_unfinished_output(out: Path, what: str) -> Iterator[UnfinishedOutput]:
    """Give the folder beside `out`, made if it is missing; at the end it goes if nothing was begun, or all is done.

    `what`: the name of the work, for the message where the folder holds something else, which raises UserError.
    """
    folder = out.with_name(f"{out.name}.unfinished")
    if not (folder / FACTS).is_file():
        refuse_foreign(folder, what, OTHERS)
    folder.mkdir(exist_ok=True)
    try:
        yield UnfinishedOutput(out=out, folder=folder)
    finally:
        if not (folder / FACTS).is_file():
            shutil.rmtree(folder)


@contextmanager
def explaining_stops(work: UnfinishedOutput | None, done: Callable[[], int], of: str, watch: Watch) -> Iterator[None]:
    """If the block ends early, report how much is done and how to go on.

    The end may be a KeyboardInterrupt, the SystemExit of `sigterm_as_exit`, or a UserError. `done`: returns the number
    of finished rows. `of`: the total, in words. `work`: None if the output is a stream, which no command can continue.
    """

    def describe_progress() -> str:
        if work is None:
            return f"{done():,} of {of} were written"
        if not done():
            return f"0 of {of} are done"
        return f"{done():,} of {of} are done and kept in {work.folder}: the same command goes on from there"

    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        watch(Notice(f"stopped: {describe_progress()}", warning=True))
        raise
    except UserError as error:
        if not done():
            raise
        raise UserError(f"{error}\n{describe_progress()}.", code=error.code, codes=error.codes) from error
