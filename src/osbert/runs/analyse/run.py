"""One analysis of a model: all that the data allows, in one pass over each form; finished parts are kept."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from osbert import __version__, components, recipe
from osbert.analysis.advance import Advance
from osbert.analysis.figures import Figure
from osbert.analysis.kinds.contract import Analysis, Experiment, Investigation, TrainedAnalysis
from osbert.analysis.model import AnalysedModel
from osbert.analysis.passes import PassedModel
from osbert.analysis.sample import Sample, TextSample, punctuation
from osbert.data.pack import Packer
from osbert.errors import UserError
from osbert.files import read_own, refuse_foreign, write_sealed, write_text
from osbert.inference.engine import Engine, load
from osbert.inference.score import language_model, predicts_pieces
from osbert.interop.folder import open_folder
from osbert.interop.hub import display_name
from osbert.interop.json_files import read_object
from osbert.lock import claim
from osbert.reports.page import Section, paragraph, table, write_report
from osbert.runs.analyse.data import AnalysisFiles
from osbert.runs.analyse.forms.contract import Sampling
from osbert.runs.analyse.settings import AnalysisOptions, AnalysisRequest
from osbert.runs.contract import Notice, Watch, ignore, report_remarks
from osbert.runs.unfinished import UnfinishedOutput, explaining_stops, unfinished_output
from osbert.training.checkpoint import disk_needed

JSON, REPORT = "analysis.json", "report.html"
KINDS = "analysis.kinds"


@dataclass(frozen=True, kw_only=True)
class AnalysisProgress:
    """Event: `done` of `count` steps of a part. `what` is counted: tokens that are read, or items of training."""

    done: int
    count: int
    what: str = "tokens"


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
        return {name: len(found) for name, found in self.figures.items()}

    def figure(self, name: str, **where: int | str) -> Figure:
        """Return the one figure of a name and a place, such as "previous", layer=2, head=3. Raises KeyError."""
        # `where` may name a part of a figure's coordinates only: the first figure that agrees is returned.
        for found in self.figures.values():
            for one in found:
                if one.name == name and where.items() <= one.where.items():
                    return one
        raise KeyError(f"{name} of {where}")

    def lines(self) -> list[str]:
        """Return sentences on the figures and the notes."""
        counts = ", ".join(f"{name} {count:,}" for name, count in self.counts.items())
        return [*self.notes, f"figures: {counts}", f"-> {self.folder / REPORT}"]


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
    AnalysisFiles.find(data).refuse_nothing(data, tables=True)  # before the model is opened, which may read tables
    refuse_foreign(out, "an analysis", (JSON, REPORT))
    options = request.analysis
    options.check()
    with ExitStack() as held:
        held.enter_context(disk_needed(out, goes_on="after the last finished analysis"))
        folder = held.enter_context(claim(out))
        work = held.enter_context(unfinished_output(folder, "an analysis that was begun"))
        source = open_folder(model, request.opening)
        weights = source.fingerprint  # before `load`, which frees the memory of the weights
        engine = load(source, device=options.device)
        report_remarks(engine, watch)
        _ = engine.learner  # an export is refused before the data is read
        longest = engine.backend.architecture.length
        options = replace(options, length=min(options.length, longest))
        packer = Packer(tokenizer=engine.tokenizer, length=longest)
        files = AnalysisFiles.find(data, engine.task)
        files.refuse_nothing(data)
        samples = files.samples(Sampling(packer=packer, options=options, reading=request.file, task=engine.task))
        run = _AnalysisRun(engine=engine, samples=samples, options=options, work=work, watch=watch)
        about = {"model": display_name(model), "weights": weights}
        return run.complete(folder, about, data, files.notes())


@dataclass(frozen=True, kw_only=True)
class _AnalysisRun:
    """One analysis, started or resumed. `work`: the unfinished output."""

    engine: Engine
    samples: Mapping[str, Sample]
    options: AnalysisOptions
    work: UnfinishedOutput
    watch: Watch

    def complete(self, folder: Path, about: Mapping[str, str], data: Path, unread: Sequence[str]) -> ModelAnalysis:
        """Run the remaining analyses, and write both files. `unread`: notes on files that are not read."""
        kinds: dict[str, type[Investigation]] = {
            name: components.find(KINDS, name, base=Investigation)
            for name in self.options.names or components.names(KINDS)
        }
        ordered = sorted(kinds.items(), key=lambda one: one[1].place)
        reasons = {name: self._reason(kind) for name, kind in ordered}
        due = {name: kind for name, kind in ordered if not reasons[name]}
        if not due:
            why = "".join(f"\n  - {note}" for note in [*self._notes(), *unread]) or " Its files are empty."
            raise UserError(f"{data} holds nothing that this model can be analysed on:{why}", code="no-data")
        facts = self._facts(about)
        refuse_other_analysis(folder, facts)
        if finished := finished_analysis(folder, facts, due):
            self.watch(Notice(f"{folder / JSON} already holds this analysis: nothing is computed again."))
            return finished
        # Finished analyses have a file in the folder of unfinished work; only the others are computed below.
        if before := self.work.begun:
            self.work.refuse_other(before["facts"], facts)
        else:
            self.work.begin(facts, len(due))
        with explaining_stops(self.work, lambda: len(self._finished()), f"{len(due)} analyses", self.watch):
            self._compute({name: kind for name, kind in due.items() if name not in self._finished()})
        found = {
            name: [Figure.of(record) for record in read_own(self._path(name), self._again)["figures"]] for name in due
        }
        few = (
            f"{name}: too little data for a figure{f', which takes {kind.least}' if kind.least else ''}"
            for name, kind in due.items()
            if not found[name]
        )
        notes = [*self._notes(), *unread, *left_undone(reasons), *few]
        if not any(found.values()):
            self.work.end()
            why = "".join(f"\n  - {note}" for note in notes)
            raise UserError(f"{data} holds too little to measure anything:{why}", code="too-little-data")
        folder.mkdir(exist_ok=True)
        write_text(folder / JSON, analysis_text({**facts, "notes": notes}, found))
        self._report(folder, facts, {name: (kind, found[name]) for name, kind in due.items()}, notes)
        self.work.end()
        return ModelAnalysis(folder=folder, figures=found, notes=notes)

    @cached_property
    def _model(self) -> AnalysedModel:
        engine = self.engine
        packer = replace(engine.packer, length=engine.backend.architecture.length)
        signs = punctuation(engine.tokenizer)
        return AnalysedModel(
            learner=engine.learner, packer=packer, signs=signs, seed=self.options.seed, masks=engine.masks,
            language=language_model(engine) if predicts_pieces(engine) else None, task=engine.task,
        )  # fmt: skip

    def _reason(self, kind: type[Investigation]) -> str:
        """Return why an analysis does not apply, "" if it does."""
        if (obstacle := kind.obstacle(self._model)) or len(self.samples[kind.reads]):
            return obstacle
        return f"the data have no {kind.reads.replace('_', ' ')} that could be used"

    @property
    def _again(self) -> str:
        return f"Remove {self.work.folder} to begin anew."

    def _path(self, name: str) -> Path:
        return self.work.folder / f"{name}.figures.json"

    def _finished(self) -> set[str]:
        return {name for name in components.names(KINDS) if self._path(name).is_file()}

    def _compute(self, due: Mapping[str, type[Investigation]]) -> None:
        """Read each form of the data once for all its analyses, then run the experiments; save the figures of each."""
        analyses = {name: kind for name, kind in due.items() if issubclass(kind, Analysis)}
        experiments = {name: kind() for name, kind in due.items() if issubclass(kind, Experiment)}
        read = [form for form in self.samples if form in {one.reads for one in analyses.values()}]

        def report(what: str, done: int, count: int) -> None:
            self.watch(AnalysisProgress(done=done, count=count, what=what))

        # Each part has its own count: the passes over all forms, the training of probes, and each experiment.
        reading = Advance(report).part("tokens", sum(self.samples[form].tokens for form in read))
        for form in read:
            self._pass({name: kind for name, kind in analyses.items() if kind.reads == form}, form, reading)
        for name, experiment in experiments.items():
            sample = self.samples[experiment.reads]
            advance = reading.part(f"tokens of {name}", experiment.work(self._model, sample))
            self._keep(name, experiment.measure(self._model, sample, advance))
            advance(advance.count)  # the work was an estimate

    def _pass(self, kinds: Mapping[str, type[Analysis]], form: str, advance: Advance) -> None:
        """Add each text of a sample to all analyses that read it."""
        model, sample = self._model, self.samples[form]
        assert isinstance(sample, TextSample), f"the {form} are not laid out as texts"
        # All analyses of a form share one forward pass over its texts.
        analyses = {name: kind(model.backbone.architecture, model.seed) for name, kind in kinds.items()}
        passed = PassedModel(
            backbone=model.backbone, form=model.packer.tokenizer.form, signs=model.signs, seed=model.seed
        )
        for texts in passed.passes(sample):
            for text in texts:
                for analysis in analyses.values():
                    analysis.add(text)
            advance(sum(len(text.marks.first) for text in texts))
        for name, analysis in analyses.items():
            if isinstance(analysis, TrainedAnalysis):
                training = advance.part(f"training items of {name}", analysis.training)
                self._keep(name, analysis.figures(training))
                training(training.count)  # too few items are not trained on
            else:
                self._keep(name, analysis.figures())

    def _keep(self, name: str, figures: Sequence[Figure]) -> None:
        write_sealed(self._path(name), {"figures": [one.record() for one in figures]})

    def _facts(self, about: Mapping[str, str]) -> dict[str, Any]:
        """Return the facts that must be equal to resume an analysis, and that analysis.json contains."""
        # The device changes no figure beyond rounding, so a run may be resumed on another one.
        settings = {name: value for name, value in asdict(self.options).items() if name != "device"}
        data = {
            form: {
                "read": sample.read,
                "sequences": len(sample),
                "tokens": sample.tokens,
                "sha256": sample.sha256,
            }
            for form, sample in self.samples.items()
            if sample.read
        }
        return {
            "osbert": __version__,
            **about,
            "tokenizer": self.engine.tokenizer.fingerprint,
            "settings": settings,
            "data": data,
        }

    def _notes(self) -> Iterator[str]:
        for sample in self.samples.values():
            yield from sample.notes

    def _report(
        self,
        folder: Path,
        facts: Mapping[str, Any],
        found: Mapping[str, tuple[type[Investigation], Sequence[Figure]]],
        notes: Sequence[str],
    ) -> None:
        sections = [kind.section(figures) for kind, figures in found.values() if figures]
        rows = [("model", facts["model"]), ("weights (sha256)", facts["weights"]), ("seed", self.options.seed)]
        rows += [(form, facts["data"][form]["sha256"]) for form, sample in self.samples.items() if len(sample)]
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
    kept = {name: before.get(name) for name in facts if name != "osbert"}
    if lines := recipe.difference(kept, {name: json.loads(json.dumps(facts[name])) for name in kept}):
        raise UserError(
            f"{folder} already holds an analysis with other settings or inputs:\n"
            + "\n".join(f"  {line}" for line in lines)
            + "\nGive another --out, or remove it.",
            code="output-holds-something-else",
        )


def finished_analysis(folder: Path, facts: Mapping[str, Any], due: Collection[str]) -> ModelAnalysis | None:
    """Return the analysis in a folder if it has these facts and exactly the analyses `due`, else None."""
    if not all((folder / name).is_file() for name in (JSON, REPORT)):
        return None
    before = read_object(folder / JSON)
    found = before.get("analyses", {})
    if {*found} != {*due} or any(before.get(name) != json.loads(json.dumps(fact)) for name, fact in facts.items()):
        return None
    figures = {name: [Figure.of(record) for record in records] for name, records in found.items()}
    return ModelAnalysis(folder=folder, figures=figures, notes=before["notes"])


def analysis_text(about: Mapping[str, Any], found: Mapping[str, Sequence[Figure]]) -> str:
    """Return the text of analysis.json, with one line for each figure."""
    # Without the closing "\n}": the figures are appended to this object by hand, one per line.
    head = json.dumps(about, ensure_ascii=False, indent=1)[:-2]
    parts = []
    for name, figures in found.items():
        lines = ",\n".join(f"   {json.dumps(one.record(), ensure_ascii=False)}" for one in figures)
        parts.append(f"  {json.dumps(name)}: [\n{lines}\n  ]")
    return f'{head},\n "analyses": {{\n' + ",\n".join(parts) + "\n }\n}\n"
