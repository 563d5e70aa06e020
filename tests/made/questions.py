"""Questions on a paragraph, in the form of SQuAD."""

from __future__ import annotations

from typing import Any

PARAGRAPH = "The film was long. A good play, a bad film; the film was good."


def answers(*pairs: tuple[str, Any]) -> dict[str, Any]:
    return {"answers": [{"text": text, "answer_start": start} for text, start in pairs]}


def squad(*asked: dict[str, Any], context: Any = PARAGRAPH) -> dict[str, Any]:
    qas = [{"id": f"q{place}", "question": "what is long?", **one} for place, one in enumerate(asked)]
    return {"version": "x", "data": [{"title": "t", "paragraphs": [{"context": context, "qas": qas}]}]}
