"""Data sets of named entities: CoNLL-2003, WNUT-17, CLUENER and Weibo."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from osbert.tasks.kinds.tag import Tag
from osbert.text.words import Split


@dataclass(frozen=True, kw_only=True)
class Conll2003(Tag):
    """CoNLL-2003: persons, places, organisations and others in news (section 5.3); the official columns.

    A folder with eng.train, eng.testa and optionally eng.testb, or train, valid and test; tags in IOB1 or BIO.
    A sequence holds as many sentences of a document as fit (maximal document context). Cased models score higher.
    """

    component = "conll2003"

    types: tuple[str, ...] = ("LOC", "MISC", "ORG", "PER")
    context: Literal["sentence", "document"] = "document"


@dataclass(frozen=True, kw_only=True)
class Wnut17(Tag):
    """WNUT-17: rare and new entities in short messages of the web; two columns, BIO (Derczynski et al. 2017).

    A folder with wnut17train.conll, emerging.dev.conll and optionally emerging.test.
    """

    component = "wnut17"

    types: tuple[str, ...] = ("corporation", "creative-work", "group", "location", "person", "product")


@dataclass(frozen=True, kw_only=True)
class Cluener(Tag):
    """CLUENER 2020: ten types of entities in Chinese news, by character; JSON lines (Xu et al. 2020).

    A folder with train.json, dev.json and maybe test.json: {"text", "label": {type: {mention: [[start, last]]}}}.
    """

    component = "cluener"

    types: tuple[str, ...] = (
        "address",
        "book",
        "company",
        "game",
        "government",
        "movie",
        "name",
        "organization",
        "position",
        "scene",
    )
    split: Split = "characters"


@dataclass(frozen=True, kw_only=True)
class Weibo(Tag):
    """Weibo NER: persons, places and organisations in Chinese messages, by character (Peng and Dredze 2015).

    A folder with weiboNER_2nd_conll.train, .dev, .test; the number after a character is its index in a word.
    """

    component = "weibo"

    types: tuple[str, ...] = tuple(
        f"{category}.{kind}" for category in ("GPE", "LOC", "ORG", "PER") for kind in ("NAM", "NOM")
    )
    split: Split = "characters"

    def spell(self, cell: str) -> str:
        """Return the character without its number."""
        return cell[:-1] if len(cell) > 1 and cell[-1].isdigit() else cell
