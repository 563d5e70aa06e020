"""swag: SWAG, the most plausible of four endings of a sentence; the official CSVs (section 4.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from osbert_lab.multiple_choice.choose import Choose


@dataclass(frozen=True, kw_only=True)
class Swag(Choose):
    """A folder with train.csv, val.csv and test.csv: text A is sent1, text B is sent2 with one of the endings."""

    context: tuple[str, ...] = ("sent1",)
    choices: tuple[str, ...] = ("ending0", "ending1", "ending2", "ending3")
    prefix: str = "sent2"
    label: str = "label"
    counting: Literal["auto", "0", "1", "A", "text"] = "0"
