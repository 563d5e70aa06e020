"""Prodigy's JSON lines: marked spans, choices, and texts with one label to accept or reject.

Positions are code points, as in spaCy. Ignored and rejected examples count as unlabelled, except in a file with a
single label: there a rejected text is "not LABEL".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from osbert.reading.record_forms.contract import RecordForm, Suggestion
from osbert_lab.annotation.record_values import objects, require_list, span_of, text_in

_ANSWERS = ("accept", "reject", "ignore")
_HASHES = ("_input_hash", "_task_hash")


class Prodigy(RecordForm):
    """{"text", "tokens", "spans": [{"start", "end", "label"}], "answer"}; or "label"; or "options" and "accept"."""

    title: ClassVar[str] = "Prodigy"

    def __init__(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Detect whether the file has a single label to accept or reject."""
        labels = {record["label"] for record in records if isinstance(record.get("label"), str)}
        rejected = any(record.get("answer") == "reject" for record in records)
        self.only = labels.pop() if rejected and len(labels) == 1 else ""

    @classmethod
    def claims(cls, record: Mapping[str, Any]) -> bool:
        """Return whether a record has a hash or an answer of Prodigy, or spans beside tokens with positions."""
        if not isinstance(record.get("text"), str) or "ents" in record:  # spaCy's Doc.to_json has tokens, too
            return False
        tokens = record.get("tokens")
        placed = isinstance(tokens, list) and bool(tokens) and isinstance(tokens[0], dict) and "start" in tokens[0]
        return placed or any(name in record for name in _HASHES) or record.get("answer") in _ANSWERS

    def read(self, record: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
        """Return the text with its spans, or its classes."""
        dropped = ("tokens", "spans", "label", "accept", "options", "answer")
        row: dict[str, Any] = {name: value for name, value in record.items() if name not in dropped}
        row |= {"text": text_in(record)}
        answer = record.get("answer", "accept")
        taken = answer == "accept"
        if "spans" in record:
            spans = [
                span_of(mark.get("start"), mark.get("end"), mark.get("label"))
                for mark in objects(record["spans"], "the spans")
            ]
            row["entities"] = [list(span) for span in spans] if taken else None
        if "accept" in record or "options" in record:
            chosen = require_list(record.get("accept"), "the accepted options")
            row["label"] = chosen if taken and "accept" in record else None
        elif isinstance(record.get("label"), str):
            label = record["label"]
            refused = [f"not {label}"] if self.only and answer == "reject" else None
            row["label"] = [label] if taken else refused
        elif "spans" not in record:
            row["entities"] = [] if "answer" in record and taken else None
        return [row]

    def add_suggestion(self, record: Mapping[str, Any], suggestion: Suggestion) -> dict[str, Any] | None:
        """Return the record with predicted spans, accepted options or a label, if it has none, for review."""
        marked = ("spans",) if suggestion.marks is not None else ("label", "accept")
        nothing = suggestion.marks is None and suggestion.labels is None
        if nothing or record.get("answer") in _ANSWERS or any(record.get(name) for name in marked):
            return dict(record)
        row = {name: value for name, value in record.items() if name != "_task_hash"}
        if suggestion.marks is not None:
            first, last = _token_numbers(record, "start"), _token_numbers(record, "end")
            row["spans"] = []
            for mark in suggestion.marks:
                span = {"start": mark.start, "end": mark.end, "label": mark.type, "score": mark.probability}
                if mark.start in first and mark.end in last:
                    span |= {"token_start": first[mark.start], "token_end": last[mark.end]}
                row["spans"].append(span)
        elif suggestion.labels is not None and ("options" in record or len(suggestion.labels) != 1):
            known = [{"id": name, "text": name} for name in suggestion.probabilities]
            row |= {
                "options": record.get("options", known),
                "accept": list(suggestion.labels),
                "score": suggestion.score,
            }
        elif suggestion.labels is not None:
            row |= {"label": suggestion.labels[0], "score": suggestion.score}
        return row


def _token_numbers(record: Mapping[str, Any], end: str) -> dict[int, Any]:
    """Return the ids of the tokens by their "start" or "end"; malformed tokens are skipped."""
    tokens = record.get("tokens")
    listed_tokens = enumerate(tokens if isinstance(tokens, list) else [])
    known = (
        (index, token) for index, token in listed_tokens if isinstance(token, dict) and type(token.get(end)) is int
    )
    return {token[end]: token.get("id", index) for index, token in known}
