"""Runs the commands that pages of docs/ show and stores what they print; run by `make tutorials`, or with pages' names.

With --check it stores nothing, and ends with 1 if a page shows other words, or numbers that differ much; `make release`
runs that.

Comments in a page, which no reader sees, say what to run. Each page has a folder, in which `examples` is examples/:

    <!-- after NAME -->            this page goes on in the folder of the page NAME
    <!-- file NAME -->             the next block is this file; with lines before the "-->" these are the file
    <!-- run first=6 last=3 -->    the next block has commands, each after "$ "; of what one prints these lines are kept
    <!-- run "A" as "B" -->        the next block is a script; it runs with B in the place of A
    <!-- script NAME.py -->        the next block is this file of examples/, without its docstring
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
MARK = re.compile(
    r"<!-- (?P<verb>after|file|run|script)\b(?P<words>[^\n]*?)(?: -->|\n(?P<hidden>.*?)-->)"
    r"(?P<block>\n```\w*\n(?P<body>.*?)```)?",
    re.DOTALL,
)
"""A comment, and the block of code that stands right below it."""
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
PASSING = re.compile(
    r"127\.0\.0\.1:\d+|[\d.,]+ (?:s|MB/s|tokens/s)\b|sequences a second.*|\b[0-9a-f]{64}\b|\bcpu (?:bf16|fp32)\b"
)
"""What differs from run to run, or between processors: ports, times, rates, the precision of training, and fingerprints
of files whose text may change."""
BAR = re.compile("\u2501.*%")
"""A progress bar, which a terminal removes at the end."""


def pages() -> list[str]:
    """Return the names of the pages that have commands to run, those first that others need."""
    marked = [path for path in sorted(DOCS.rglob("*.md")) if "\n<!-- run" in path.read_text(encoding="utf-8")]
    names = [path.relative_to(DOCS).with_suffix("").as_posix() for path in marked]
    return sorted(names, key=lambda name: len(needed(name)))


def text_of(name: str) -> str:
    """Return the text of a page by its name below docs/, such as "tutorials/classify"."""
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def needed(name: str) -> list[str]:
    """Return the names of the pages that a page goes on from."""
    return [mark["words"].strip() for mark in MARK.finditer(text_of(name)) if mark["verb"] == "after"]


def script(name: str) -> str:
    """Return the code of an example without its docstring."""
    code = (ROOT / "examples" / name).read_text(encoding="utf-8")
    return re.sub(r'^""".*?"""\n+', "", code, count=1, flags=re.DOTALL)


def run_page(name: str, base: Path) -> str:
    """Run a page's commands in its folder below `base`; return its text with what they really print."""
    folder = base / [*needed(name), name][0]
    folder.mkdir(parents=True, exist_ok=True)

    def renewed(mark: re.Match[str]) -> str:
        opening = mark[0].partition("\n```")[0]
        body = mark["body"] or ""
        if mark["verb"] == "file":
            path = folder / mark["words"].strip()
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(body if mark["block"] else mark["hidden"], encoding="utf-8")
        elif mark["verb"] == "script":
            return f"{opening}\n```python\n{script(mark['words'].strip())}```"
        elif mark["verb"] == "run" and (changes := re.findall(r'"([^"]*)" as "([^"]*)"', mark["words"])):
            for old, new in changes:
                body = body.replace(old, new)
            printed(body, folder)
        elif mark["verb"] == "run":
            kept = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", mark["words"])}
            shown = [f"$ {command}\n{shortened(printed(command, folder), **kept)}" for command in commands(body)]
            return f"{opening}\n```console\n{''.join(shown)}```"
        return mark[0]

    if not (folder / "examples").exists():
        (folder / "examples").symlink_to(ROOT / "examples")
    return MARK.sub(renewed, text_of(name))


def commands(body: str) -> list[str]:
    r"""Return the commands of a console block.

    >>> commands("$ osbert tokenizer \\\n    train\nprinted\n$ ls\n")
    ['osbert tokenizer \\\n    train', 'ls']
    """
    return re.findall(r"^\$ ((?:.*\\\n)*.*)$", body, re.MULTILINE)


def printed(command: str, folder: Path) -> str:
    """Return what a command leaves on a terminal. Raises SystemExit with its output if it fails."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # Unbuffered, so that lines of standard output and of standard error come in the order in which they are printed.
    environment = os.environ | {"PATH": programs, "COLUMNS": "100", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    done = subprocess.run(
        ["bash", "-ec", command],
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode:
        raise SystemExit(f"`{command}` ended with {done.returncode}:\n{done.stdout}")
    output = re.sub(r"\S+(?=/lib/python3\.\d+/site-packages/)", ".venv", done.stdout)  # where `make install` puts them
    lines = output.replace(sys.prefix, ".venv").splitlines()
    return "".join(f"{line.rstrip()}\n" for line in lines if not BAR.search(line))


def shortened(text: str, first: int = 40, last: int = 20) -> str:
    r"""Return the first and the last lines of a text, with "..." for those between.

    >>> shortened("a\nb\nc\nd\n", first=1, last=1)
    'a\n...\nd\n'
    """
    lines = text.splitlines(keepends=True)
    if len(lines) <= first + last:
        return text
    return "".join([*lines[:first], "...\n", *lines[len(lines) - last :]])


def differences(stored: str, renewed: str) -> list[str]:
    """Return the lines of a page that its commands no longer print: numbers may differ a little, words may not.

    >>> differences("good 82.0%\\nin 3 s", "good 81.2%\\nin 9 s"), differences("good 82.0%", "bad 82.0%")
    ([], ['good 82.0% -> bad 82.0%'])
    """
    before, after = stored.splitlines(), renewed.splitlines()
    found = [f"{old} -> {new}" for old, new in zip(before, after) if not alike(old, new)]
    return found + [f"{len(before)} lines -> {len(after)} lines"] * (len(before) != len(after))


def alike(old: str, new: str) -> bool:
    """Return whether two lines have the same words, and numbers that differ by at most a tenth, or 5 points of 100."""
    old, new = PASSING.sub("", old), PASSING.sub("", new)
    if " ".join(NUMBER.sub("#", old).split()) != " ".join(NUMBER.sub("#", new).split()):
        return False
    pairs = zip(values(old), values(new))
    least = 5 if "%" in old else 0.05
    return all(abs(one - other) <= max(least, abs(one) / 10) for one, other in pairs)


def values(line: str) -> Iterable[float]:
    """Return the numbers in a line."""
    return [float(number.replace(",", "")) for number in NUMBER.findall(line)]


def main(arguments: list[str]) -> int:
    """Run the pages, or all of them, and store what their commands print; with --check, return whether it differs."""
    names = [argument for argument in arguments if argument != "--check"]
    if unknown := {*names} - {*pages()}:
        raise SystemExit(f"no page has commands and this name: {', '.join(sorted(unknown))}")
    differing = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in pages():
            if names and name not in names and not any(name in needed(other) for other in names):
                continue
            print(name, flush=True)
            renewed = run_page(name, Path(folder))
            if "--check" not in arguments:
                (DOCS / f"{name}.md").write_text(renewed, encoding="utf-8")
            elif lines := differences(text_of(name), renewed):
                differing += 1
                print("\n".join(lines), flush=True)
    return min(differing, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
