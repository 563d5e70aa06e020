"""squad: SQuAD 1.1 and 2.0, and sets in their form (CMRC 2018, XQuAD); the official JSON files (sections 4.2, 4.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from osbert.reading.splits import find_named
from osbert.tasks.kinds.span import Span


@dataclass(frozen=True, kw_only=True)
class Squad(Span):
    """A folder with train-v1.1.json and dev-v1.1.json, or those of 2.0, or both; or one file in their form."""

    release: Literal["any", "1.1", "2.0"] = "any"
    """Which release's files to take from a folder that has several."""

    def split_files(self) -> Mapping[str, Path]:
        """Return the file of each split of the release asked for."""
        release = "" if self.release == "any" else self.release
        return find_named(Path(self.data), release=release, option="osbert finetune squad --release")
