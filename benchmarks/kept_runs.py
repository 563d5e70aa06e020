"""Measured runs kept in a file of JSON lines, for small_data.py and distil.py: a table is filled over several days."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol, TypeVar


class KeptRun(Protocol):
    """A dataclass of what a run is known by, and what came out of it."""

    __dataclass_fields__: dict[str, Any]

    @property
    def key(self) -> tuple[Any, ...]:
        """Return what it is known by."""
        ...


Run = TypeVar("Run", bound=KeptRun)


def read_runs(path: Path, kind: type[Run]) -> list[Run]:
    """Return the runs of a file, none if there is no such file."""
    return [kind(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


def make_missing(wanted: Iterable[Run], path: Path, kind: type[Run], make: Callable[[Run], Run]) -> None:
    """Make the runs that a file lacks, and append each of them as it ends."""
    known = {run.key for run in read_runs(path, kind)}
    for run in wanted:
        if run.key not in known:
            made = make(run)
            print(made, file=sys.stderr, flush=True)
            with path.open("a") as file:
                file.write(json.dumps(dataclasses.asdict(made)) + "\n")
