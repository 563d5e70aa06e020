"""Writes the tables of docs/results.md from the measurements in benchmarks/results; run without words.

With the name of a topic or of a measurement, such as `few-rows` or `few-rows/tags`, it prints all that is known of it.

A measurement is a TOML file, benchmarks/results/TOPIC/NAME.toml:

    what = "what was measured"
    machine = "..."       # left out where nobody wrote it down, as is all that follows but the table
    commit = "..."
    conditions = "..."
    command = "what repeats it"
    columns = ["side", "tokens/s"]
    rows = [["osbert", "7,600"]]
    findings = "..."

Cells are texts, so that a figure keeps its digits and its spread. In the page a table stands between two comments:

    <!-- table few-rows/tags columns=1,2 rows=1,3 bold=2 -->
    <!-- end -->

`columns` and `rows` choose some, `bold` sets some of the shown columns in bold. `<!-- index -->` counts them by topic.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "results.md"
OPTIONAL = ("machine", "commit", "conditions", "command", "findings")
GENERATED = re.compile(r"<!-- (table|index)\b *(.*?) -->\n.*?<!-- end -->", re.DOTALL)


def names() -> list[str]:
    """Return the names of all measurements, such as "few-rows/tags", by topic."""
    return [path.relative_to(FOLDER).with_suffix("").as_posix() for path in sorted(FOLDER.glob("*/*.toml"))]


def read(name: str) -> dict[str, Any]:
    """Return a measurement; raise ValueError if a key is missing or unknown, or a row has another length."""
    measurement = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    needed = {"what", "columns", "rows"}
    if wrong := ({*measurement} - needed - {*OPTIONAL}) | (needed - {*measurement}):
        raise ValueError(f"{name}: {', '.join(sorted(wrong))}: missing or unknown")
    if short := [row for row in measurement["rows"] if len(row) != len(measurement["columns"])]:
        raise ValueError(f"{name}: the row of {short[0][0]!r} has not {len(measurement['columns'])} cells")
    return measurement


def table(columns: list[str], rows: list[list[str]], bold: tuple[int, ...] = ()) -> str:
    """Return a Markdown table.

    >>> print(table(["side", "tokens/s"], [["osbert", "7,600"]], bold=(2,)))
    | side | tokens/s |
    |---|---|
    | osbert | **7,600** |
    """
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    for row in rows:
        cells = [f"**{cell}**" if number in bold and cell else cell for number, cell in enumerate(row, 1)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def numbers(text: str | None, most: int) -> list[int]:
    """Return the numbers of "1,3-5", from 1, or all up to `most` if there is no text.

    >>> numbers("1,3-5", 9)
    [1, 3, 4, 5]
    """
    ranges = [part.partition("-") for part in text.split(",")] if text else [("1", "-", str(most))]
    return [number for first, _, last in ranges for number in range(int(first), int(last or first) + 1)]


def part_of_page(words: list[str]) -> str:
    """Return the table that a comment of the page names, with the line that says where its figures are from."""
    name, *others = words
    options = dict(word.partition("=")[::2] for word in others)
    measurement = read(name)
    columns = numbers(options.get("columns"), len(measurement["columns"]))
    rows = numbers(options.get("rows"), len(measurement["rows"]))
    chosen = [[measurement["rows"][row - 1][column - 1] for column in columns] for row in rows]
    bold = tuple(numbers(options["bold"], 0)) if "bold" in options else ()
    text = table([measurement["columns"][column - 1] for column in columns], chosen, bold)
    source = ", ".join(measurement[key] for key in ("machine", "commit") if key in measurement)
    return f"{text}\n\n{source + '; ' if source else ''}[{name}](../benchmarks/results/{name}.toml)"


def index() -> str:
    """Return the topics, each with the number of its measurements."""
    topics = Counter(name.partition("/")[0] for name in names())
    return "\n".join(f"- [{topic}](../benchmarks/results/{topic}): {count}" for topic, count in topics.items())


def page(text: str) -> str:
    """Return the text of the page with its tables and the index made anew."""

    def renew(match: re.Match[str]) -> str:
        kind, words = match.groups()
        body = index() if kind == "index" else part_of_page(words.split())
        return f"<!-- {' '.join([kind, *words.split()])} -->\n\n{body}\n\n<!-- end -->"

    return GENERATED.sub(renew, text)


def whole(name: str) -> str:
    """Return all that is known of a measurement, as Markdown."""
    measurement = read(name)
    machine = ", ".join(f"{key}: {measurement[key]}" for key in ("machine", "commit") if key in measurement)
    command = "".join(f"    {line}\n" for line in measurement.get("command", "").splitlines())
    parts = [f"## {measurement['what']}", name, machine, measurement.get("conditions", "").strip(), command.rstrip()]
    parts += [table(measurement["columns"], measurement["rows"]), measurement.get("findings", "").strip()]
    return "\n\n".join(part for part in parts if part)


def main(words: list[str]) -> None:
    """Write the page anew, or print the measurements that the words name."""
    if not words:
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    for word in words:
        found = [name for name in names() if name == word or name.startswith(f"{word}/")]
        if not found:
            topics = sorted({name.partition("/")[0] for name in names()})
            sys.exit(f"{word}: no topic and no measurement; topics: {', '.join(topics)}")
        print("\n\n".join(map(whole, found)))


if __name__ == "__main__":
    main(sys.argv[1:])
