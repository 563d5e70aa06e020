"""The model of a command: its folder by path or name; downloads are shown as bars on standard error."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from osbert.console.output import print_notices, watching
from osbert.interop.hub import DownloadProgress, is_name, locate
from osbert.remote import split_address
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


def resolve_model(model: str) -> str:
    """Return a model for the server as PATH or NAME=PATH; the folder of a name on the hub or an address is its path."""
    # A folder or an address whose name contains "=" is a path, not NAME=PATH.
    whole = "=" not in model or Path(model).is_dir() or split_address(model) is not None
    name, _, path = ("", "", model) if whole else model.partition("=")
    address = split_address(path)
    if not (address or is_name(path)) or (folder := locate_folder(path)) == Path(path):
        return model
    whole_name = address[1] if address else path.partition("@")[0]
    return f"{name or whole_name.rpartition('/')[2]}={folder}"


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
