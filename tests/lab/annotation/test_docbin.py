"""spaCy's DocBin, read through spaCy: one of its own, a damaged one, and what is said without spaCy."""

from __future__ import annotations

import base64
import sys
from pathlib import Path

import pytest

from osbert.errors import Problems
from osbert.reading.table import open_table
from osbert.reading.tagged.files import TagReading, read_tagged
from osbert.tasks.kinds.classify import Classify
from refusals import refusal

OWN = (
    "eJzrWl6WWlScmZ+32EDPcGliSUlR8VxHZ08vbx9fP/+As4xHzjIePct4bFlJfnZqXvFRVo+jFjM6p3zj1obRDAQAEw5xRgL6HnEWGj2qNnebNK"
    "vYdFkaXzq59hACe1U4zqp/kvwHo2llz76doccePvTmgdG0sueye1IMn/hlvqv2RRdiha1MCalnhtL1hCIEDXAG5TyN3By2+4FfQd79xEhBQuph"
    "xpNqD8tEs3f3JujuhdGE1JMbbjB3vVGSOuT6tW0prezJ08lu27FlzWIYTSt7Fh1a4/PmZv16GE0re5qU1kd+KtTfCqPJNIZgeeD+Lkuz4fyvKT"
    "CaXHsIgeyirVEzereywmha2bOsuCAxObX4CC8jFACDgJFheU5qXnpJRvERDi4GSN5cXlxSlJmXXnyHQWjBQr0VrqVF+QWpiXmL/YPcF4dkpC4N"
    "zQMW3stS80oySypXpEJll2SkFqUuzcksLilekpeYm7ooL39Rftri/KL0pUX5+SXFi0uAOktBOpd8mD+zaUlyYknxpKYl6fn5KaftP0AcuDgpMe"
    "U0zLUNS9NyEtOLJzVuykgsji/Ny87LL8+Lh3jhEFbB1UA6Lz69KL+0oHjSEcYJQLSytDi1KD4lsSQRKNAARACWSuPO"
)
"""What DocBin.to_disk of spaCy 3.8 writes for the texts of `test_a_docbin_of_spacys_own`."""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.spacy"
    path.write_bytes(base64.b64decode(OWN))
    return path


def test_without_spacy_the_message_names_a_way(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "spacy", None)
    with refusal("missing-library", "own.spacy", "pip install spacy", "Doc.to_json"):
        open_table(own)


def test_a_docbin_of_spacys_own(own: Path) -> None:
    pytest.importorskip("spacy")
    first, second = open_table(own).rows(Problems(heading=""))
    assert first.source == {
        "text": "🙂 The name of European Union lists ORG roots.",
        "entities": [[14, 28, "ORG"]],
        "label": ["good"],
    }
    assert first.source["text"][14:28] == "European Union"
    assert second.source == {"text": "no entity here", "entities": None}
    problems = Problems(heading="")
    tagged = read_tagged(own, TagReading(), problems, labelled=True)
    assert not problems.count and "DocBin" in tagged.describe()
    records = [*Classify(data=str(own)).source.read(own, Problems(heading=""), labelled=True)]
    assert records[0].label == "good"


def test_a_damaged_docbin_is_refused(own: Path) -> None:
    pytest.importorskip("spacy")
    for content in (own.read_bytes()[:-40], b"\0\1\2 no zlib"):
        own.write_bytes(content)
        with refusal("damaged-file", "own.spacy"):
            open_table(own)
