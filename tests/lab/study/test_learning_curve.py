"""The learning curve in a report: a section that a further curve replaces."""

from __future__ import annotations

from pathlib import Path

from osbert.reports.page import Section, paragraph, write_report
from osbert_lab.study.learning_curve import add_section


def test_a_section_is_added_once_and_replaced(tmp_path: Path) -> None:
    path = write_report(tmp_path / "r.html", "T", [Section(heading="One", parts=[paragraph("begun")])])
    for words in ("second", "third"):
        add_section(path, Section(heading="Learning curve", parts=[paragraph(words)]))
    text = path.read_text()
    assert "begun" in text and "third" in text and "second" not in text
    assert text.count("<h2>Learning curve</h2>") == 1 and text.endswith("</body>\n</html>\n")
    add_section(path, Section(heading="One", parts=[paragraph("again")]))
    assert [words in path.read_text() for words in ("begun", "again", "third")] == [False, True, True]
