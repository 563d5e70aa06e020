"""A text with links between its mentions, and whether heads are chosen or scored on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from osbert.reading.coreference import LinkedText


@dataclass(frozen=True, kw_only=True)
class LinkedItem:
    """A text of the sample; `part`: whether heads are chosen or scored on it."""

    text: LinkedText
    part: Literal["select", "score"]
