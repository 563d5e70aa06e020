"""wnut17: WNUT-17, rare and new entities in short messages of the web; two columns, BIO (Derczynski et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass

from osbert.tasks.kinds.tag import Tag


@dataclass(frozen=True, kw_only=True)
class Wnut17(Tag):
    """A folder with wnut17train.conll, emerging.dev.conll and optionally emerging.test."""

    types: tuple[str, ...] = ("corporation", "creative-work", "group", "location", "person", "product")
