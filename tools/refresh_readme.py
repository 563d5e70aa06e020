"""Runs the marked commands of the READMEs and puts what they really print below them; takes the READMEs' time.

The first line of a block that stands under `<!-- refresh -->` is its command, after "$ "; all else is what it printed.
With `<!-- refresh first=3 last=8 -->` only so many lines of that are shown, the rest as "...". The outputs of README.md
go into README.zh.md, whose blocks are the same.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "README.zh.md")
_BLOCK = re.compile(r"<!-- refresh(?P<options>[^>]*) -->\n```console\n(?P<body>.*?)```", re.DOTALL)
_TERMINAL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def run(command: str, *, first: int, last: int) -> str:
    """Return what a command prints, as a terminal would leave it, at most `first` + `last` lines of it."""
    environment = os.environ | {"PATH": f"{ROOT / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "100"}
    print(f"$ {command}", flush=True)
    result = subprocess.run(
        ["bash", "-c", command],
        cwd=ROOT,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if result.returncode:
        raise SystemExit(f"`{command}` ended with {result.returncode}:\n{result.stdout}")
    lines = [_TERMINAL.sub("", line.rpartition("\r")[2]).rstrip() for line in result.stdout.strip("\n").split("\n")]
    if len(lines) > first + last:
        lines = [*lines[:first], "...", *lines[len(lines) - last :]]
    return "\n".join(lines)


def refreshed(block: re.Match[str]) -> str:
    """Return a block with its commands run and their outputs renewed."""
    options = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", block["options"])}
    command = block["body"].partition("\n")[0].removeprefix("$ ")
    output = run(command, first=options.get("first", 40), last=options.get("last", 20))
    return f"<!-- refresh{block['options']} -->\n```console\n$ {command}\n{output}\n```"


def main() -> int:
    """Renew the blocks of the first page and give the same to the others."""
    blocks: list[str] = []
    for name in PAGES:
        path = ROOT / name
        text = path.read_text(encoding="utf-8")
        if not blocks:
            blocks = [refreshed(block) for block in _BLOCK.finditer(text)]
        if len(_BLOCK.findall(text)) != len(blocks):
            raise SystemExit(f"{name} has another number of marked blocks than {PAGES[0]}")
        waiting = iter(blocks)
        path.write_text(_BLOCK.sub(lambda _, waiting=waiting: next(waiting), text), encoding="utf-8")  # type: ignore[misc]
    return 0


if __name__ == "__main__":
    sys.exit(main())
