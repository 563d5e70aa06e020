"""conll2003: CoNLL-2003, persons, places, organisations and others in news (section 5.3); the official columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from osbert.tasks.kinds.tag import Tag


@dataclass(frozen=True, kw_only=True)
class Conll2003(Tag):
    """A folder with eng.train, eng.testa and optionally eng.testb, or train, valid and test; tags in IOB1 or BIO.

    A sequence holds as many sentences of a document as fit (maximal document context). Cased models score higher.
    """

    types: tuple[str, ...] = ("LOC", "MISC", "ORG", "PER")
    context: Literal["sentence", "document"] = "document"
