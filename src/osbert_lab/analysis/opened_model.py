"""A model and the samples that it is analysed on, opened: which analyses apply, and the figures of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from osbert import __version__, components
from osbert.data.pack import Packer
from osbert.files import write_sealed
from osbert.inference.engine import Engine, load
from osbert.inference.pieces import language_model, predicts_pieces
from osbert.interop.folder import open_folder
from osbert.interop.hub import display_name
from osbert.runs.contract import Watch, report_remarks
from osbert_lab.analysis.advance import Advance
from osbert_lab.analysis.data import AnalysisFiles
from osbert_lab.analysis.figures import Figure
from osbert_lab.analysis.forms.contract import Sampling
from osbert_lab.analysis.kinds.contract import Analysis, Experiment, Investigation, TrainedAnalysis
from osbert_lab.analysis.model import AnalysedModel
from osbert_lab.analysis.passes import PassedModel
from osbert_lab.analysis.sample import Sample, TextSample, punctuation
from osbert_lab.analysis.settings import AnalysisOptions, AnalysisRequest

KINDS = "osbert_lab.analysis.kinds"


@dataclass(frozen=True, kw_only=True)
class AnalysisProgress:
    """Event: `done` of `count` steps of a part. `what` is counted: tokens that are read, or items of training."""

    done: int
    count: int
    what: str = "tokens"

    def __str__(self) -> str:
        """Return one line, so that `watch=print` is readable."""
        return f"{self.done:,} of {self.count:,} {self.what}"


def figures_path(folder: Path, name: str) -> Path:
    """Return the file in the folder of unfinished work for the figures of a finished analysis."""
    return folder / f"{name}.figures.json"


def kinds_of(names: Sequence[str]) -> dict[str, type[Investigation]]:
    """Return analyses by their names, in the order in which they are reported."""
    kinds: dict[str, type[Investigation]] = {name: components.find(KINDS, name, base=Investigation) for name in names}
    return dict(sorted(kinds.items(), key=lambda named_kind: named_kind[1].position))


@dataclass(frozen=True, kw_only=True)
class AnalysisSource:
    """A model and the data that it is analysed on, not opened yet, and how it is done."""

    model: Path
    data: Path
    request: AnalysisRequest


@dataclass(frozen=True, kw_only=True)
class OpenedAnalysis:
    """A model and a sample of each form of the data. `about`: the model's name and hash; `unread`: notes on files."""

    source: AnalysisSource
    engine: Engine
    samples: Mapping[str, Sample]
    options: AnalysisOptions
    about: Mapping[str, str]
    unread: Sequence[str]

    @classmethod
    def open(cls, source: AnalysisSource, watch: Watch) -> OpenedAnalysis:
        """Open the model and read the data. Raises UserError if one of them cannot be used."""
        request = source.request
        folder = open_folder(source.model, request.opening)
        weights = folder.fingerprint  # before `load`, which frees the memory of the weights
        engine = load(folder, device=request.analysis.device)
        report_remarks(engine, watch)
        _ = engine.learner  # an export is refused before the data is read
        longest = engine.backend.architecture.length
        options = replace(request.analysis, length=min(request.analysis.length, longest))
        packer = Packer(tokenizer=engine.tokenizer, length=longest)
        files = AnalysisFiles.find(source.data, engine.task)
        files.refuse_nothing(source.data)
        samples = files.samples(Sampling(packer=packer, options=options, reading=request.file, task=engine.task))
        about = {"model": display_name(source.model), "weights": weights}
        return cls(source=source, engine=engine, samples=samples, options=options, about=about, unread=files.notes())

    @cached_property
    def model(self) -> AnalysedModel:
        """The model as analyses take it."""
        engine = self.engine
        packer = replace(engine.packer, length=engine.backend.architecture.length)
        signs = punctuation(engine.tokenizer)
        return AnalysedModel(
            learner=engine.learner, packer=packer, signs=signs, seed=self.options.seed, masks=engine.masks,
            language=language_model(engine) if predicts_pieces(engine) else None, task=engine.task,
        )  # fmt: skip

    def obstacle(self, kind: type[Investigation]) -> str:
        """Return why an analysis does not apply, "" if it does."""
        if (obstacle := kind.obstacle(self.model)) or len(self.samples[kind.reads]):
            return obstacle
        return f"the data have no {kind.reads.replace('_', ' ')} that could be used"

    @property
    def facts(self) -> dict[str, Any]:
        """The facts that must be equal to resume an analysis, and that analysis.json contains."""
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
            **self.about,
            "tokenizer": self.engine.tokenizer.fingerprint,
            "settings": settings,
            "data": data,
        }

    def notes(self) -> Iterator[str]:
        """Yield what is to be said about the data."""
        for sample in self.samples.values():
            yield from sample.notes

    def compute(self, due: Mapping[str, type[Investigation]], folder: Path, watch: Watch) -> None:
        """Read each form of the data once for all its analyses, then run the experiments; save the figures of each."""
        analyses = {name: kind for name, kind in due.items() if issubclass(kind, Analysis)}
        experiments = {name: kind() for name, kind in due.items() if issubclass(kind, Experiment)}
        read = [form for form in self.samples if form in {kind.reads for kind in analyses.values()}]

        def keep(name: str, figures: Sequence[Figure]) -> None:
            write_sealed(figures_path(folder, name), {"figures": [figure.record() for figure in figures]})

        def report(what: str, done: int, count: int) -> None:
            watch(AnalysisProgress(done=done, count=count, what=what))

        # Each part has its own count: the passes over all forms, the training of probes, and each experiment.
        reading = Advance(report).part("tokens", sum(self.samples[form].tokens for form in read))
        for form in read:
            form_kinds = {name: kind for name, kind in analyses.items() if kind.reads == form}
            for name, figures in self._run_analyses(form_kinds, form, reading):
                keep(name, figures)
        for name, experiment in experiments.items():
            sample = self.samples[experiment.reads]
            advance = reading.part(f"tokens of {name}", experiment.work(self.model, sample))
            keep(name, experiment.measure(self.model, sample, advance))
            advance(advance.count)  # the work was an estimate

    def _run_analyses(
        self, kinds: Mapping[str, type[Analysis]], form: str, advance: Advance
    ) -> Iterator[tuple[str, Sequence[Figure]]]:
        """Add each text of a sample to all analyses that read it; yield the figures of each."""
        model, sample = self.model, self.samples[form]
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
                yield name, analysis.figures(training)
                training(training.count)  # too few items are not trained on
            else:
                yield name, analysis.figures()
