"""One analysis of a model: all that the data allows, in one pass over each form; finished parts are kept."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from osbert import components, recipe
from osbert.corpus.task_options import TaskPlan
from osbert.errors import UserError
from osbert.files import disk_needed, read_own, refuse_foreign, write_text
from osbert.guarded import read_object
from osbert.lock import claim
from osbert.remote import FolderForm, display_path, local_copy, output_folder, reading_copies
from osbert.reports.page import Section, paragraph, table, write_report
from osbert.runs.contract import Notice, Watch, ignore
from osbert.runs.rows.machine import UnfinishedOutput, explaining_stops, open_unfinished_output
from osbert_lab.analysis.data import AnalysisFiles
from osbert_lab.analysis.figures import Figure
from osbert_lab.analysis.kinds.contract import Investigation
from osbert_lab.analysis.opened_model import KINDS, AnalysisSource, OpenedAnalysis, figures_path, kinds_of
from osbert_lab.analysis.settings import AnalysisRequest
from osbert_lab.analysis.tasks import AnalysisWork, compute_in_tasks

JSON, REPORT = "analysis.json", "report.html"
FORM = FolderForm(marker=JSON)
"""An analysis on an object store."""


@dataclass(frozen=True, kw_only=True)
class ModelAnalysis:
    """A finished analysis: its folder, the figures of each analysis by its name, and what was left out.

    >>> import osbert
    >>> text = Path("text.txt").write_text("the good film\\n\\na bad play\\n\\n" * 10)
    >>> found = osbert.analyse("encoder", data="text.txt", out="analysis", shortest=3, length=12)
    >>> found.figure("previous", layer=1, head=2).n
    20
    """

    reported: ClassVar[tuple[str, ...]] = ("folder", "counts", "notes")

    folder: Path
    figures: Mapping[str, Sequence[Figure]]
    notes: Sequence[str]

    @property
    def counts(self) -> dict[str, int]:
        """The number of figures of each analysis."""
        return {name: len(figures) for name, figures in self.figures.items()}

    def figure(self, name: str, **where: int | str) -> Figure:
        """Return the one figure of a name and a place, such as "previous", layer=2, head=3. Raises KeyError."""
        # `where` may name a part of a figure's coordinates only: the first figure that agrees is returned.
        for figures in self.figures.values():
            for candidate in figures:
                if candidate.name == name and where.items() <= candidate.where.items():
                    return candidate
        raise KeyError(f"{name} of {where}")

    def lines(self) -> list[str]:
        """Return sentences on the figures and the notes."""
        counts = ", ".join(f"{name} {count:,}" for name, count in self.counts.items())
        return [*self.notes, f"figures: {counts}", f"-> {display_path(self.folder / REPORT)}"]


def analyse(
    model: Path,
    *,
    data: Path,
    out: Path,
    request: AnalysisRequest = AnalysisRequest(),  # noqa: B008 (frozen)
    watch: Watch = ignore,
) -> ModelAnalysis:
    """Analyse a model on a file or a folder, from where an earlier run with the same arguments stopped.

    Writes analysis.json and report.html into the folder `out` when all is done; the analyses that are finished before
    are kept in OUT.unfinished. If `out` holds this very analysis, it is read and nothing is computed. Raises UserError
    when the arguments cannot be, and when the earlier run was another one.
    """
    request.analysis.check()
    plan = request.work.plan()
    with local_analysis(data, out) as (local_data, folder):
        source = AnalysisSource(model=model, data=local_data, request=request)
        return replace(_analyse(source, plan, out=folder, watch=watch), folder=out)


@contextmanager
def local_analysis(data: Path, out: Path) -> Iterator[tuple[Path, Path]]:
    """Yield the local paths of data and of an output folder, which is uploaded when the block ends.

    An earlier analysis that lies there is fetched first. Errors of the block name the addresses.
    """
    with output_folder(out, FORM, inputs=[data]) as output, reading_copies():
        yield local_copy(data), output.path


def _analyse(source: AnalysisSource, plan: TaskPlan | None, *, out: Path, watch: Watch) -> ModelAnalysis:
    """Analyse a model on local data into a local folder."""
    data = source.data
    AnalysisFiles.find(data).refuse_nothing(data, tables=True)  # before the model is opened, which may read tables
    refuse_foreign(out, "an analysis", (JSON, REPORT))
    with ExitStack() as held:
        held.enter_context(disk_needed(out, goes_on="after the last finished analysis"))
        folder = held.enter_context(claim(out))
        work = held.enter_context(open_unfinished_output(folder, "an analysis that was begun"))
        opened = OpenedAnalysis.open(source, watch)
        return _AnalysisRun(opened=opened, plan=plan, work=work, watch=watch).complete(folder)


@dataclass(frozen=True, kw_only=True)
class _AnalysisRun:
    """One analysis, started or resumed. `plan`: of its tasks, or None; `work`: the unfinished output."""

    opened: OpenedAnalysis
    plan: TaskPlan | None
    work: UnfinishedOutput
    watch: Watch

    def complete(self, folder: Path) -> ModelAnalysis:
        """Run the remaining analyses, and write both files."""
        opened, data = self.opened, self.opened.source.data
        kinds = kinds_of(opened.options.names or components.names(KINDS))
        obstacles = {name: opened.obstacle(kind) for name, kind in kinds.items()}
        due = {name: kind for name, kind in kinds.items() if not obstacles[name]}
        if not due:
            why = "".join(f"\n  - {note}" for note in [*opened.notes(), *opened.unread]) or " Its files are empty."
            raise UserError(f"{data} contains nothing that this model can be analysed on:{why}", code="no-data")
        facts = opened.facts
        refuse_other_analysis(folder, facts)
        if finished := read_analysis(folder, facts, due):
            self.watch(Notice(f"{folder / JSON} already contains this analysis. Nothing was computed again."))
            return finished
        # Finished analyses have a file in the folder of unfinished work; only the others are computed below.
        if before := self.work.begun:
            self.work.refuse_other(before["facts"], facts)
        else:
            self.work.begin(facts, len(due))
        with explaining_stops(self.work, lambda: len(self._list_finished()), f"{len(due)} analyses", self.watch):
            if self.plan is None:
                missing = {name: kind for name, kind in due.items() if name not in self._list_finished()}
                opened.compute(missing, self.work.folder, self.watch)
            else:
                work = AnalysisWork(source=opened.source, facts=facts, names=[*due])
                compute_in_tasks(work, self.plan, self.work.folder, self.watch)
        figures = {
            name: [Figure.of(record) for record in read_own(self._path(name), self._again)["figures"]] for name in due
        }
        few = (
            f"{name}: too little data for a figure{f', which takes {kind.least}' if kind.least else ''}"
            for name, kind in due.items()
            if not figures[name]
        )
        notes = [*opened.notes(), *opened.unread, *left_undone(obstacles), *few]
        if not any(figures.values()):
            self.work.end()
            why = "".join(f"\n  - {note}" for note in notes)
            raise UserError(f"{data} contains too little data to measure anything:{why}", code="too-little-data")
        folder.mkdir(exist_ok=True)
        write_text(folder / JSON, analysis_text({**facts, "notes": notes}, figures))
        self._report(folder, facts, {name: (kind, figures[name]) for name, kind in due.items()}, notes)
        self.work.end()
        return ModelAnalysis(folder=folder, figures=figures, notes=notes)

    @property
    def _again(self) -> str:
        return f"Remove {self.work.folder} to begin anew."

    def _path(self, name: str) -> Path:
        return figures_path(self.work.folder, name)

    def _list_finished(self) -> set[str]:
        return {name for name in components.names(KINDS) if self._path(name).is_file()}

    def _report(
        self,
        folder: Path,
        facts: Mapping[str, Any],
        analyses: Mapping[str, tuple[type[Investigation], Sequence[Figure]]],
        notes: Sequence[str],
    ) -> None:
        sections = [kind.section(figures) for kind, figures in analyses.values() if figures]
        rows = [("model", facts["model"]), ("weights (sha256)", facts["weights"]), ("seed", self.opened.options.seed)]
        rows += [(form, facts["data"][form]["sha256"]) for form, sample in self.opened.samples.items() if len(sample)]
        about = Section(heading="What was read", parts=[*map(paragraph, notes), table(rows)])
        write_report(
            folder / REPORT,
            f"What {facts['model']} has learnt",
            [*sections, about],
            lead="Each figure, with its interval and what it is compared with, is in analysis.json beside this page.",
        )


def left_undone(reasons: Mapping[str, str]) -> list[str]:
    """Return the analyses that do not apply with their reason, grouped by it. An analysis with reason "" applies.

    >>> left_undone({"heads": "", "tags": "there are no trees", "arcs": "there are no trees"})
    ['tags, arcs: there are no trees']
    """
    names: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        names.setdefault(reason, []).append(name)
    return [f"{', '.join(together)}: {reason}" for reason, together in names.items() if reason]


def refuse_other_analysis(folder: Path, facts: Mapping[str, Any]) -> None:
    """Raise UserError if the folder holds an analysis of another model, other data or settings."""
    path = folder / JSON
    if not path.is_file():
        return
    before = read_object(path)
    # In another version the same arguments may give other figures: they replace those before.
    earlier_facts = {name: before.get(name) for name in facts if name != "osbert"}
    if lines := recipe.difference(earlier_facts, {name: json.loads(json.dumps(facts[name])) for name in earlier_facts}):
        raise UserError(
            f"{folder} already holds an analysis with other settings or inputs:\n"
            + "\n".join(f"  {line}" for line in lines)
            + "\nGive another --out, or remove it.",
            code="output-holds-something-else",
        )


def read_analysis(folder: Path, facts: Mapping[str, Any], due: Collection[str]) -> ModelAnalysis | None:
    """Return the analysis in a folder if it has these facts and exactly the analyses `due`, else None."""
    if not all((folder / name).is_file() for name in (JSON, REPORT)):
        return None
    before = read_object(folder / JSON)
    records_by_name = before.get("analyses", {})
    if {*records_by_name} != {*due} or any(
        before.get(name) != json.loads(json.dumps(fact)) for name, fact in facts.items()
    ):
        return None
    figures = {name: [Figure.of(record) for record in records] for name, records in records_by_name.items()}
    return ModelAnalysis(folder=folder, figures=figures, notes=before["notes"])


def analysis_text(about: Mapping[str, Any], figures_by_name: Mapping[str, Sequence[Figure]]) -> str:
    """Return the text of analysis.json, with one line for each figure."""
    # Without the closing "\n}": the figures are appended to this object by hand, one per line.
    head = json.dumps(about, ensure_ascii=False, indent=1)[:-2]
    parts = []
    for name, figures in figures_by_name.items():
        lines = ",\n".join(f"   {json.dumps(figure.record(), ensure_ascii=False)}" for figure in figures)
        parts.append(f"  {json.dumps(name)}: [\n{lines}\n  ]")
    return f'{head},\n "analyses": {{\n' + ",\n".join(parts) + "\n }\n}\n"
