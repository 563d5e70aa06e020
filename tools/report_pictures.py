"""Write the pictures of a report as SVG files that stand alone: python tools/report_pictures.py REPORT.html FOLDER."""

from __future__ import annotations

import re
import sys
from html import unescape
from pathlib import Path

FIGURE = re.compile(r"<figure.*?<figcaption><b>(.*?)</b>(.*?)</figcaption>.*?(<svg .*?</svg>)", re.DOTALL)
LEGEND = re.compile(r'<span class="key k(\d)">(.*?)</span>')
ROOM = 20
"""Height of a line of the legend, which the page sets as text."""


def pictures(page: str) -> dict[str, str]:
    """Return the pictures of a report, by file name, with the page's colours and their legends."""
    style = page.partition("<style>")[2].partition("</style>")[0]
    kept = "\n".join(
        rule for rule in re.findall(r"[^{}]+\{(?:[^{}]|\{[^}]*\})*\}", style) if "svg" in rule or ":root" in rule
    )
    found: dict[str, str] = {}
    for title, legend, svg in FIGURE.findall(page):
        name = "-".join(re.findall(r"[a-z0-9]+", unescape(title).lower())) + ".svg"
        found.setdefault(name, standing_alone(svg, kept.replace("svg ", ""), LEGEND.findall(legend)))
    return found


def standing_alone(svg: str, style: str, legend: list[tuple[str, str]]) -> str:
    """Return an <svg> with a style, a ground, and its legend above."""
    width, height = (float(number) for number in re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)[0])
    body = svg[svg.index(">") + 1 : svg.rindex("</svg>")]
    label = re.findall(r'aria-label="(.*?)"', svg)[0]
    entries, x, y = [], 8.0, 6
    for color, text in legend:
        wide = 26 + 6.2 * len(unescape(text))
        if x + wide > width:
            x, y = 8.0, y + ROOM
        entries.append(f'<rect class="bar c{color}" x="{x:.0f}" y="{y}" width="9" height="9"/>')
        entries.append(f'<text class="tick" x="{x + 13:.0f}" y="{y + 9}">{text}</text>')
        x += wide
    top = y - 6 + ROOM if legend else 0
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height + top:g}" width="{width:g}" '
        f'role="img" aria-label="{label}">\n<style>{style}</style>\n'
        '<rect width="100%" height="100%" fill="var(--page)"/>\n'
        f'{"".join(entries)}<g transform="translate(0 {top})">{body.strip()}</g></svg>\n'
    )


def main() -> None:
    """Write each picture of the report into the folder."""
    report, folder = map(Path, sys.argv[1:])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pictures(report.read_text(encoding="utf-8")).items():
        (folder / name).write_text(text, encoding="utf-8")
        print(folder / name)


if __name__ == "__main__":
    main()
