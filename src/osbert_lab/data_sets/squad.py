"""squad: SQuAD 1.1 and 2.0, and sets in the same format (CMRC 2018, XQuAD); official JSON files (section 4.2, 4.3)."""

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
    """A folder with train-v1.1.json and dev-v1.1.json, or those of 2.0, or both; or one file in the same format."""

    reader: ClassVar[type[Source]] = ReleaseSource

    release: Literal["any", "1.1", "2.0"] = "any"
    """The release whose files are read, if a folder has several."""
