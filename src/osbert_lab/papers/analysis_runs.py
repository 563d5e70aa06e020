"""Reproductions that analyse a model instead of training one, and compare it with a paper."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from osbert.errors import UserError
from osbert.files import refuse_foreign, write_json, write_text
from osbert.interop.hub import display_name
from osbert.interop.opening import CAREFUL, Opening
from osbert.reports.page import Section, paragraph, write_report
from osbert.runs.contract import Notice, Watch, ignore
from osbert_lab.analysis.model_analysis import ModelAnalysis, analyse
from osbert_lab.analysis.opened_model import AnalysisProgress
from osbert_lab.analysis.settings import AnalysisOptions, AnalysisRequest

PARTS = ("analysis", "results.json", "table.txt", "report.html")


@dataclass(frozen=True, kw_only=True)
class PaperComparison:
    """A comparison: the content of results.json, the lines of table.txt and the sections of report.html."""

    results: Mapping[str, Any]
    lines: Sequence[str]
    sections: Sequence[Section]


@dataclass(frozen=True, kw_only=True)
class AnalysisPlan(ABC):
    """One analysis of the model in the folder `model`, and its comparison with a paper."""

    title: ClassVar[str]
    kinds: ClassVar[Sequence[str]]
    """The analyses that the comparison needs."""
    needed: ClassVar[str]
    """The data that the comparison needs, for the error message if it is missing."""

    model: Path
    data: Path
    out: Path
    opening: Opening = CAREFUL

    @abstractmethod
    def compare_with_paper(self, analysis: ModelAnalysis) -> PaperComparison | None:
        """Return the comparison; None if the analysis has none of the figures that it needs."""

    def run(self, *, watch: Watch = ignore) -> None:
        """Run the missing analyses; write results.json, table.txt and report.html beside the folder `analysis`.

        Raises UserError if the data holds nothing to compare.
        """
        refuse_foreign(self.out, "a reproduced table", PARTS)
        request = AnalysisRequest(analysis=AnalysisOptions(only=",".join(self.kinds)), opening=self.opening)
        analysis = analyse(self.model, data=self.data, out=self.out / "analysis", request=request, watch=_tenths(watch))
        comparison = self.compare_with_paper(analysis)
        if comparison is None:
            raise UserError(f"{self.data} contains too little data for {self.needed}.", code="no-data")
        name = display_name(self.model)
        write_json(self.out / "results.json", {"model": name, "notes": [*analysis.notes], **comparison.results})
        lines = [self.title, "", *comparison.lines, "", *analysis.notes]
        write_text(self.out / "table.txt", "\n".join(lines) + "\n")
        read = Section(heading="What was read", parts=[paragraph(note) for note in analysis.notes])
        lead = f"The model {name}. All figures, with their intervals, are in analysis/report.html."
        write_report(self.out / "report.html", self.title, [*comparison.sections, read], lead=lead)

    @property
    def text(self) -> str:
        """The text of the table, available after `run`."""
        return (self.out / "table.txt").read_text("utf-8")


def _tenths(watch: Watch) -> Watch:
    """Return a watch that gets a notice for every tenth of each part's progress, and passes on all other events."""
    last_tenths: dict[str, int] = {}

    def note(event: object) -> None:
        if not isinstance(event, AnalysisProgress):
            watch(event)
        # Integer division: the value rises by 1 at each tenth.
        elif (tenth := 10 * event.done // max(1, event.count)) > last_tenths.get(event.what, -1):
            last_tenths[event.what] = tenth
            watch(Notice(f"{event.done:,} of {event.count:,} {event.what}"))

    return note
