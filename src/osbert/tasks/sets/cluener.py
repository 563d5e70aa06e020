"""cluener: CLUENER 2020, ten types of entities in Chinese news, by character; JSON lines (Xu et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass

from osbert.tasks.kinds.tag import Tag
from osbert.text.words import Split


@dataclass(frozen=True, kw_only=True)
class Cluener(Tag):
    """A folder with train.json, dev.json and maybe test.json: {"text", "label": {type: {mention: [[start, last]]}}}."""

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
