"""Cards of rows: whatever is in the texts, the page shows it and runs nothing of it."""

from __future__ import annotations

import base64
import hashlib
import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from osbert.reports.examples import LONGEST, Answer, cards, mark_text
from osbert.reports.page import write_report
from osbert.tasks import Record
from osbert.tasks.record import RecordOutcome, TextMark

HOSTILE = '</p><script>alert(1)</script><img src=x onerror="alert(2)"> & \u202eevil\ud800'
PLACES = st.integers(0, 40)


def outcome(text: str, marks: tuple[TextMark, ...] = ()) -> RecordOutcome:
    return RecordOutcome(truth=text, guess=text, score=0.0, right=False, error=1.0, confidence=0.5, marks=marks)


def plain(html: str) -> str:
    return unescape(re.sub(r"<small.*?</small>|<[^>]*>", "", html))


@given(
    text=st.text(max_size=40),
    spans=st.lists(st.tuples(PLACES, PLACES, st.sampled_from(["truth", "prediction"])), max_size=6),
)
def test_a_marked_text_is_the_text(text: str, spans: list[tuple[int, int, str]]) -> None:
    marks = [TextMark(start=min(a, b), end=max(a, b), name="<T>", of=of) for a, b, of in spans]  # type: ignore[arg-type]
    assert plain(mark_text(text, [mark for mark in marks if mark.end <= len(text)])) == text


def test_marks_that_overlap_are_cut_where_they_do() -> None:
    marks = [TextMark(start=0, end=4, name="A"), TextMark(start=2, end=6, name="B", of="prediction")]
    assert mark_text("abcdefg", marks) == (
        '<mark class="truth">ab</mark>'
        '<mark class="truth prediction">cd<small class="truth">A</small></mark>'
        '<mark class="prediction">ef<small class="prediction">B</small></mark>g'
    )


def test_a_long_text_is_shown_around_its_first_mark() -> None:
    shown = mark_text("x" * 5000 + "Rome" + "y" * 5000, [TextMark(start=5000, end=5004)])
    assert "Rome" in shown and len(plain(shown)) < LONGEST + 60 and f"{10_004 - LONGEST:,} more characters" in shown


class Seen(HTMLParser):
    """Notes the tags and attributes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.handlers: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.handlers += [name for name, _ in attrs if name.startswith("on")]


def test_a_page_of_hostile_rows_runs_its_own_script_alone(tmp_path: Path) -> None:
    record = Record(number=0, texts=(HOSTILE, HOSTILE), label=HOSTILE, path=HOSTILE, line=3)
    mark = TextMark(start=0, end=len(HOSTILE), name=HOSTILE)
    rows = [(record, [Answer(outcome=outcome(HOSTILE, (mark,)), model=HOSTILE)])] * 2
    path = write_report(tmp_path / "r.html", HOSTILE, [cards(HOSTILE, rows, note=HOSTILE, total=7)], lead=HOSTILE)
    text = path.read_text()
    seen = Seen()
    seen.feed(text)
    assert not seen.handlers and "img" not in seen.tags
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{allowed}'" in text and "default-src 'none'" in text
    assert "5 more are left out" in text and not re.search(r"https?://|src=\"", text.replace("src=x", ""))
