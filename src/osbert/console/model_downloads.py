"""Locates the model of a command; downloads are shown as bars on standard error."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from osbert.console.output import print_notices, watching
from osbert.interop.hub import DownloadProgress, locate
from osbert.runs.contract import Notice
from osbert.terminal import open_console


def locate_folder(model: str) -> Path:
    """Return the folder of a model: a path, or a name on the hub or of an installed package, downloaded if necessary.

    Downloads and remarks are shown on standard error. Raises UserError as `locate`.
    """
    with _downloads() as watch:
        location = locate(model, watch=watch)
    note = print_notices(sys.stderr)
    for remark in location.remarks:
        note(Notice(remark))
    return location.path


@contextlib.contextmanager
def _downloads() -> Iterator[Callable[[DownloadProgress], None]]:
    """Show downloads as bars on standard error; they appear with the first download."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

    text = TextColumn("{task.description}", markup=False)
    columns = (text, BarColumn(), DownloadColumn(), TransferSpeedColumn())
    bars = Progress(*columns, console=open_console(stderr=True))
    tasks: dict[str, TaskID] = {}

    def show(event: DownloadProgress) -> None:
        if not tasks:
            bars.start()
        # One bar per file, added when its first event comes.
        if event.file not in tasks:
            tasks[event.file] = bars.add_task(f"{event.model} {event.file}", total=event.total or None)
        bars.update(tasks[event.file], completed=event.done)

    try:
        yield watching(show, stream=sys.stderr)
    finally:
        if tasks:
            bars.stop()
