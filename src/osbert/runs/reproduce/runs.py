"""The fine-tuning runs of a table: where each lies, and which run stands in for one that has collapsed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from osbert.runs.reproduce.encoders import run_folder
from osbert.runs.study.runner import RESTART
from osbert.training.run_folder import RunFolder

MARK = "!"
"""What stands behind a figure that counts a collapsed run."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """The run of a row with one seed on a data set. If it has collapsed, one with another seed counts in its place."""

    row: str
    column: str
    seed: int
    out: Path

    @property
    def name(self) -> str:
        """Return what it is called for the user."""
        return f"{self.row}, seed {self.seed}, {self.column}"

    @property
    def folder(self) -> Path:
        """Return its own folder."""
        return run_folder(self.row, self.seed, self.column, self.out)

    @property
    def replacement(self) -> Path:
        """Return the folder of the run in its place."""
        return run_folder(self.row, self.seed, f"{self.column} again", self.out)

    @property
    def counted(self) -> Path:
        """Return the folder of the run that counts, once it has ended."""
        return self.replacement if _collapsed(self.folder) else self.folder

    @property
    def metrics(self) -> Mapping[str, float]:
        """Return the scores of the best epoch of the run that counts."""
        return _best(self.counted)["metrics"]

    @property
    def collapsed(self) -> str:
        """Return the one answer that the run itself gives all development rows, "" where all is well."""
        return _collapsed(self.folder)

    @property
    def counts_collapsed(self) -> bool:
        """Return whether even the run that counts has collapsed."""
        return bool(_collapsed(self.counted))

    def remark(self) -> str:
        """Return what became of it if it has collapsed, "" where all is well."""
        if not self.collapsed:
            return ""
        told = f"{self.name}: every development row is {self.collapsed}; in its place: seed {self.seed + RESTART}"
        return f"{told}, collapsed as well and counted all the same" if self.counts_collapsed else told


def remarks(runs: Sequence[Run]) -> list[str]:
    """Return in words which runs have collapsed and what became of them, a line each under a heading; [] for none."""
    said = [f"  {line}" for run in runs if (line := run.remark())]
    if not said:
        return []
    marked = any(run.counts_collapsed for run in runs)
    mark = f" {MARK}: a figure with such a run in it." if marked else ""
    return ["", f"Collapsed runs, which gave all rows one answer; each was run once more.{mark}", *said]


def _best(folder: Path) -> Mapping[str, Any]:
    return RunFolder(folder).facts.get("finished", {}).get("best", {})


def _collapsed(folder: Path) -> str:
    return _best(folder).get("collapsed", "")
