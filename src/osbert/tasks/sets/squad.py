"""squad: SQuAD 1.1 and 2.0, and sets in their form (CMRC 2018, XQuAD); the official JSON files (sections 4.2, 4.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from osbert.reading.splits import find_named
from osbert.tasks import Source
from osbert.tasks.kinds.span import Span, SpanSource


class ReleaseSource(SpanSource):
    """Reads the files of the release that the task names."""

    task: Squad

    def find_files(self, data: Path) -> Mapping[str, Path]:
        """Return the file of each split of the chosen release."""
        release = "" if self.task.release == "any" else self.task.release
        return find_named(data, release=release, option="osbert finetune squad --release")


@dataclass(frozen=True, kw_only=True)
class Squad(Span):
    """A folder with train-v1.1.json and dev-v1.1.json, or those of 2.0, or both; or one file in their form."""

    reader: ClassVar[type[Source]] = ReleaseSource

    release: Literal["any", "1.1", "2.0"] = "any"
    """Which release's files to take from a folder that has several."""
