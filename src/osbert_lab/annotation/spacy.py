"""spaCy's JSON: training files of version 2, pairs of a text and its annotations, and the output of Doc.to_json.

Positions are code points. A class counts if its value is at least 0.5.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from osbert.reading.record_forms.contract import RecordForm
from osbert.reading.tagged.schemes import OUTSIDE, read_tags
from osbert.text.words import Range
from osbert_lab.annotation.record_values import objects, require_list, span_of, text_in

_ANNOTATIONS = ("entities", "ents", "cats", "spans", "links", "words", "tags", "heads", "deps")


class Spacy(RecordForm):
    """{"id", "paragraphs"}; (text, {"entities", "cats"}); {"text", "ents", "cats", "tokens"}."""

    title: ClassVar[str] = "spaCy JSON"

    @classmethod
    def claims(cls, record: Mapping[str, Any]) -> bool:
        """Return whether a record has paragraphs, ents of objects, or an object of annotations."""
        if isinstance(record.get("paragraphs"), list):
            parts = [
                paragraph for paragraph in record["paragraphs"] if isinstance(paragraph, dict)
            ]  # SQuAD has paragraphs, too
            return any("sentences" in paragraph or "raw" in paragraph for paragraph in parts)
        label = record.get("label")
        pair = isinstance(label, dict) and bool(label) and {*label} <= {*_ANNOTATIONS}
        return isinstance(record.get("text"), str) and (isinstance(record.get("ents"), list) or pair)

    def read(self, record: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
        """Return one row for each paragraph, or the single row of a text."""
        if "paragraphs" in record:
            return [_paragraph(paragraph) for paragraph in objects(record["paragraphs"], "the paragraphs")]
        annotations = record["label"] if isinstance(record.get("label"), dict) else record
        row: dict[str, Any] = {"text": text_in(record)}
        marked = annotations.get("entities", annotations.get("ents"))
        if marked is not None:
            row["entities"] = [list(_span(entity)) for entity in require_list(marked, "the entities")]
        return [row | classes(annotations.get("cats"))]


def classes(cats: Any) -> dict[str, Any]:
    """Return {"label": classes with a value of at least 0.5}; {} if there are no classes."""
    if not cats:
        return {}
    if not isinstance(cats, dict) or not all(isinstance(value, int | float) for value in cats.values()):
        raise ValueError(f"the cats are not numbers by their names: {str(cats)[:60]}")
    return {"label": [str(name) for name, value in cats.items() if value >= 0.5]}


def _span(value: Any) -> tuple[int, int, str]:
    if isinstance(value, list) and len(value) >= 3:
        return span_of(*value[:3])
    if isinstance(value, dict):
        return span_of(value.get("start"), value.get("end"), value.get("label"))
    raise ValueError(f"an entity is neither [start, end, label] nor an object: {str(value)[:60]}")


def _paragraph(paragraph: Mapping[str, Any]) -> dict[str, Any]:
    tokens = [
        token
        for sentence in objects(paragraph.get("sentences"), "the sentences")
        for token in objects(sentence.get("tokens"), "the tokens")
    ]
    words = [text_in(token, "orth") for token in tokens]
    raw = paragraph.get("raw")
    text = raw if isinstance(raw, str) else " ".join(words)
    row: dict[str, Any] = {"text": text}
    tags = [token.get("ner", "-") for token in tokens]
    if tokens and not all(tag == "-" for tag in tags):
        spelt = [OUTSIDE if tag in ("-", "", None) else str(tag) for tag in tags]
        word_ranges = list(_find_ranges(text, words))
        row["entities"] = [
            [word_ranges[span.start][0], word_ranges[span.end - 1][1], span.type] for span in read_tags(spelt)
        ]
    elif "entities" in paragraph:
        row["entities"] = [list(_span(entity)) for entity in require_list(paragraph["entities"], "the entities")]
    cats = {category.get("label"): category.get("value") for category in objects(paragraph.get("cats"), "the cats")}
    return row | classes(cats)


def _find_ranges(text: str, words: Sequence[str]) -> Iterator[Range]:
    """Yield the ranges of consecutive words in a text. Raises ValueError if a word does not follow."""
    position = 0
    for word in words:
        start = text.find(word, position)
        if start < 0 or text[position:start].strip():
            raise ValueError(
                f"the token {word!r:.40} does not follow in the text at {position}: {text[position : position + 20]!r}"
            )
        position = start + len(word)
        yield start, position
