"""A process that opens hostile files one by one and prints the outcome of each, its memory and processor time.

Memory is the highest above what the process had before, as Linux counts it.
"""

from __future__ import annotations

import gc
import importlib
import json
import resource
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from osbert.errors import UserError

PROCESS = Path("/proc/self")


def memory(name: str) -> int:
    """Return a number of bytes that the system keeps of this process."""
    (line,) = [one for one in (PROCESS / "status").read_text().splitlines() if one.startswith(name)]
    return 1024 * int(line.split()[1])


def processor_time() -> float:
    """Return the processor seconds, user and system, of this process and of its children that have ended."""
    return sum(
        used.ru_utime + used.ru_stime
        for used in (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    )


def size(folder: Path) -> int:
    """Return the bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def opened(function: Callable[[Path], Callable[[], object]], folder: Path) -> Iterator[tuple[str, object]]:
    """Yield what opening hostile files in a folder came to."""
    opening = function(folder)
    gc.collect()
    (PROCESS / "clear_refs").write_text("5")
    before, began = memory("VmRSS"), processor_time()
    try:
        opening()
        yield "error", ""
    except UserError as error:
        yield "error", str(error)
    except BaseException as error:
        yield "fault", repr(error)[:300]
    yield "seconds", processor_time() - began
    yield "memory", memory("VmHWM") - before
    yield "size", size(folder)


def main() -> None:
    """Open each of a module's ATTACKS, or those named, and print a line of JSON for each."""
    module = importlib.import_module(sys.argv[1])
    for name in sys.argv[2:] or module.ATTACKS:
        with tempfile.TemporaryDirectory() as parent:
            folder = Path(parent) / "folder"
            folder.mkdir()
            print(json.dumps({"name": name, **dict(opened(module.ATTACKS[name], folder))}), flush=True)


if __name__ == "__main__":
    main()
