"""weibo: Weibo NER, persons, places and organisations in Chinese messages, by character (Peng and Dredze 2015)."""

from __future__ import annotations

from dataclasses import dataclass

from osbert.tasks.kinds.tag import Tag
from osbert.text.words import Split


@dataclass(frozen=True, kw_only=True)
class Weibo(Tag):
    """A folder with weiboNER_2nd_conll.train, .dev, .test; the number after a character is its index in a word."""

    types: tuple[str, ...] = tuple(
        f"{category}.{kind}" for category in ("GPE", "LOC", "ORG", "PER") for kind in ("NAM", "NOM")
    )
    split: Split = "characters"

    def spell(self, cell: str) -> str:
        """Return the character without its number."""
        return cell[:-1] if len(cell) > 1 and cell[-1].isdigit() else cell
