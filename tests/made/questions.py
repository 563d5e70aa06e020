"""Questions on a paragraph, in the form of SQuAD."""

from __future__ import annotations

from typing import Any

from osbert.tasks import Record
from osbert.tasks.kinds.span.windows import QuestionWindow

PARAGRAPH = "The film was long. A good play, a bad film; the film was good."


def answers(*pairs: tuple[str, Any]) -> dict[str, Any]:
    return {"answers": [{"text": text, "answer_start": start} for text, start in pairs]}


def squad(*asked: dict[str, Any], context: Any = PARAGRAPH) -> dict[str, Any]:
    qas = [{"id": f"q{place}", "question": "what is long?", **one} for place, one in enumerate(asked)]
    return {"version": "x", "data": [{"title": "t", "paragraphs": [{"context": context, "qas": qas}]}]}


def pointed_text(window: QuestionWindow, record: Record) -> str | None:
    """Return the text that a window's target points to, "" for [CLS]."""
    target = window.targets["span"]
    assert target.labels.tolist() == [0, 1] and target.index is not None
    first, last = (int(token) - window.first for token in target.index)
    if first < 0:
        assert target.index.tolist() == [0, 0]
        return ""
    return record.texts[1][window.starts[first] : window.ends[last]]
