"""Rows of data as cards: texts with their labels and predictions marked, and a search box."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from osbert.reports.page import Section, paragraph
from osbert.tasks import Record
from osbert.tasks.record import RecordOutcome, TextMark

LONGEST, BEFORE = 600, 150
"""Most characters shown of a text; of a longer one, how many before its first mark."""
MOST_TEXTS = 8
"""Most texts shown of a row."""
LONGEST_ANSWER = 200
"""Most characters shown of a label or a prediction."""

STYLE = """
.find { font: inherit; width: 100%; max-width: 24rem; padding: .3rem .6rem; color: inherit; background: transparent;
  border: 1px solid var(--soft); border-radius: 6px; }
.card { border: 1px solid var(--grid); border-radius: 8px; padding: .55rem .8rem; margin: .6rem 0; }
.card p { margin: .15rem 0; } .card .text { white-space: pre-wrap; unicode-bidi: isolate; }
.card .text + .text { border-top: 1px dashed var(--grid); padding-top: .2rem; }
.card b { font-weight: 600; } .true { color: var(--c2); } .wrong { color: var(--c1); }
.card .soft { font-size: .85rem; }
mark { color: inherit; background: transparent; border-radius: 3px; }
mark.truth { border-bottom: 3px solid var(--c2); }
mark.prediction { background: color-mix(in srgb, var(--c0) 28%, transparent); }
mark small { white-space: nowrap; font-size: .7em;
  margin-left: .25em; padding: 0 .25em; border-radius: 3px; border: 1px solid; }
mark small.truth { color: var(--c2); } mark small.prediction { color: var(--c0); }
"""
SCRIPT = """
for (const box of document.querySelectorAll("input.find")) {
  const cards = [...box.closest("section").querySelectorAll(".card")], count = box.parentNode.querySelector(".count");
  box.addEventListener("input", () => {
    const words = box.value.toLowerCase();
    let shown = 0;
    for (const card of cards) {
      card.hidden = !card.textContent.toLowerCase().includes(words);
      shown += card.hidden ? 0 : 1;
    }
    count.textContent = words ? `${shown} of ${cards.length}` : "";
  });
}
"""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The prediction of a model for a row and its outcome. `model`: its name if there are several."""

    outcome: RecordOutcome
    model: str = ""


def cards(
    heading: str, rows: Sequence[tuple[Record, Sequence[Answer]]], *, note: str, total: int | None = None
) -> Section:
    """Return a section with a searchable card for each row; `note` explains which rows are shown.

    `total`: the number of all rows, if only some are shown.
    """
    left = (total or len(rows)) - len(rows)
    parts = [paragraph(note + (f" {left:,} more are left out." if left else ""))]
    if rows and any(answer.outcome.marks for _, answers in rows for answer in answers):
        legend = '<mark class="truth">labelled</mark>, <mark class="prediction">predicted</mark>'
        parts.append(f"<p>In the texts: {legend}, or both.</p>")
    if len(rows) > 1:
        parts.append(search_box("Search the rows"))
    parts += [card(record, answers) for record, answers in rows]
    return Section(heading=heading, parts=parts, style=STYLE, script=SCRIPT)


def search_box(label: str) -> str:
    """Return the HTML of the box that searches the cards of its section."""
    box = f'<input class="find" type="search" placeholder="Search" aria-label="{escape(label)}">'
    return f'<p>{box} <span class="count soft"></span></p>'


def card(record: Record, answers: Sequence[Answer]) -> str:
    """Return a row as HTML: its label, the answer of each model, its texts and its place."""
    truth = answers[0].outcome.truth
    lines = [f'<p>label <b class="true">{escape(cut_text(truth, LONGEST_ANSWER))}</b></p>']
    for answer in answers:
        outcome = answer.outcome
        sure = "" if outcome.confidence is None else f' <span class="soft">{outcome.confidence:.1%}</span>'
        look = "" if outcome.right is None else ' class="true"' if outcome.right else ' class="wrong"'
        who = f"{escape(answer.model)}: " if answer.model else ""
        lines.append(f"<p>{who}predicted <b{look}>{escape(cut_text(outcome.guess, LONGEST_ANSWER))}</b>{sure}</p>")
    for number, text in enumerate(record.texts[:MOST_TEXTS]):
        # With several models only what is true is marked: their answers would lie on each other.
        marks = [mark for mark in answers[0].outcome.marks if mark.text == number]
        visible_marks = marks if len(answers) == 1 else [mark for mark in marks if mark.of == "truth"]
        lines.append(f'<p class="text" dir="auto">{mark_text(text, visible_marks)}</p>')
    if len(record.texts) > MOST_TEXTS:
        lines.append(f'<p class="soft">and {len(record.texts) - MOST_TEXTS:,} more texts</p>')
    lines.append(f'<p class="soft">{escape(record.place)}</p>')
    return f'<article class="card">{"".join(lines)}</article>'


def mark_text(text: str, marks: Sequence[TextMark]) -> str:
    """Return a text as HTML with its marks, which may overlap; of a long text the part around the first mark.

    >>> mark_text("in <Rome>", [TextMark(start=4, end=8, name="LOC")])
    'in &lt;<mark class="truth">Rome<small class="truth">LOC</small></mark>&gt;'
    """
    start, end = 0, len(text)
    if end > LONGEST:
        first = min((mark.start for mark in marks), default=0)
        start = max(0, min(first - BEFORE, end - LONGEST))
        end = start + LONGEST
    inside = [mark for mark in marks if mark.start < end and mark.end > start and mark.end > mark.start]
    edges = {start, end} | {edge for mark in inside for edge in (mark.start, mark.end) if start < edge < end}
    borders = sorted(edges)
    parts = ["… "] if start else []
    # Between two neighbouring borders the set of marks is constant: overlaps become separate runs.
    for left, right in pairwise(borders):
        over = [mark for mark in inside if mark.start <= left and right <= mark.end]
        html = escape(text[left:right])
        if over:
            looks = " ".join(dict.fromkeys(mark.of for mark in over))
            names = "".join(
                f'<small class="{mark.of}">{escape(mark.name)}</small>'
                for mark in over
                if mark.name and right == min(mark.end, end)
            )
            html = f'<mark class="{looks}">{html}{names}</mark>'
        parts.append(html)
    if end < len(text):
        parts.append(f' … <span class="soft">({len(text) - end + start:,} more characters)</span>')
    return "".join(parts)


def cut_text(text: str, most: int) -> str:
    """Return a text of at most so many characters; a longer one ends in an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
