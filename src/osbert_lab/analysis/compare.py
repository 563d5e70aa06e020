"""Compares models on the same texts: several models, or the intermediate models of a pretraining run."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from osbert import __version__, recipe
from osbert.data.pack import Packer
from osbert.errors import UserError
from osbert.files import disk_needed, read_own, refuse_foreign, write_sealed, write_text, writing_output
from osbert.inference.engine import load
from osbert.interop.folder import Folder, open_folder
from osbert.interop.hub import display_name
from osbert.lock import claim
from osbert.reports.page import Section, paragraph, table, write_report
from osbert.runs.contract import Watch, ignore
from osbert.runs.pretrain.pretraining_run import MODELS
from osbert.runs.rows.machine import UnfinishedOutput, explaining_stops, open_unfinished_output
from osbert.terminal import format_count
from osbert.training.run_folder import RECIPE
from osbert_lab.analysis.comparison import ComparedModel, head_figures, own_figures, reference_figures
from osbert_lab.analysis.comparison_sections import comparison_sections
from osbert_lab.analysis.data import TEXTS, AnalysisFiles
from osbert_lab.analysis.figures import Figure
from osbert_lab.analysis.forms.texts import documents
from osbert_lab.analysis.kinds.heads import Heads
from osbert_lab.analysis.likeness import LEAST
from osbert_lab.analysis.model_analysis import (
    JSON,
    REPORT,
    ModelAnalysis,
    analysis_text,
    local_analysis,
    refuse_other_analysis,
)
from osbert_lab.analysis.opened_model import AnalysisProgress
from osbert_lab.analysis.passes import PassedModel
from osbert_lab.analysis.sample import oddities, punctuation
from osbert_lab.analysis.settings import ComparisonRequest
from osbert_lab.analysis.shared_words import SharedSample, draw_shared_sample, word_states


@dataclass(frozen=True, kw_only=True)
class _NamedModel:
    """A model to compare. `step`: of its run; None if the models are not from one run."""

    name: str
    source: Folder
    step: int | None = None


def compare(
    models: Sequence[Path],
    *,
    data: Path,
    out: Path,
    request: ComparisonRequest = ComparisonRequest(),  # noqa: B008 (frozen)
    watch: Watch = ignore,
) -> ModelAnalysis:
    """Compare models with the first one on the same texts; for a single run, its intermediate models with the last.

    Writes analysis.json and report.html into the folder `out`. Results of finished models are kept in OUT.unfinished.
    Raises UserError for data without texts, models that cannot be read, and a run without intermediate models.
    """
    request.analysis.check()
    with local_analysis(data, out) as (local_data, folder):
        return replace(_compare(models, data=local_data, out=folder, request=request, watch=watch), folder=out)


def _compare(
    models: Sequence[Path], *, data: Path, out: Path, request: ComparisonRequest, watch: Watch
) -> ModelAnalysis:
    """Compare models on local data into a local folder."""
    refuse_foreign(out, "a comparison", (JSON, REPORT))
    files = AnalysisFiles.find(data).forms[TEXTS]
    if not files:
        raise UserError(f"{data} contains no text to compare the models on.", code="no-data")
    with ExitStack() as held:
        held.enter_context(disk_needed(out, goes_on="after the last finished model"))
        folder = held.enter_context(claim(out))
        work = held.enter_context(open_unfinished_output(folder, "a comparison that was begun"))
        # Folders are opened, but weights are not loaded yet.
        named = [*_name_models(models, request)]
        # The same cut for all models: the shortest limit among them.
        length = min(request.analysis.length, *(model.source.architecture.length for model in named))
        options = replace(request.analysis, length=length)
        sample = draw_shared_sample(
            documents(files, request.file),
            [Packer(tokenizer=model.source.tokenizer, length=length) for model in named],
            count=options.texts,
            shortest=options.shortest,
            rng=np.random.default_rng([options.seed, 0]),
        )
        if not len(sample.samples[0]):
            raise UserError(
                f"{data} contains no text of at least {options.shortest} tokens with a word that all models read.",
                code="no-data",
            )
        run = _Comparison(models=named, sample=sample, request=replace(request, analysis=options), work=work)
        return run.complete(folder, watch)


def _name_models(models: Sequence[Path], request: ComparisonRequest) -> Iterator[_NamedModel]:
    """Yield the models with unique names, the reference first; for a single run, its intermediate models.

    Raises UserError if there is only one.
    """
    if not models:
        raise UserError("Give at least two models, or one pretraining run.", code="missing-option")
    if len(models) == 1:
        yield from _on_the_way(models[0], request)
        return
    paths = [Path(os.path.abspath(path)) for path in models]  # a link keeps its name
    names = [*map(display_name, paths)]
    for path, name in zip(paths, names, strict=True):
        if paths.count(path) > 1:
            raise UserError(f"{path} is given twice.", code="invalid-value")
        # The shortest end of the path that no other model has.
        size = next(
            size
            for size in range(1, 99)
            if [other_path.parts[-size:] for other_path in paths].count(path.parts[-size:]) == 1
        )
        # The folder of a model of the hub or of a package says nothing.
        uses_display_name = name != path.name and names.count(name) == 1
        yield _NamedModel(
            name=name if uses_display_name else "/".join(path.parts[-size:]), source=open_folder(path, request.opening)
        )


def _on_the_way(run: Path, request: ComparisonRequest) -> Iterator[_NamedModel]:
    names = ((re.fullmatch(r"step-(\d+)", path.name), path) for path in (run / MODELS).glob("step-*"))
    paths_by_step = {int(match[1]): path for match, path in names if match}
    settings = recipe.read(run / RECIPE) if (run / RECIPE).is_file() else {}
    steps = int(settings.get("training", {}).get("steps", max(paths_by_step, default=0)))
    earlier = sorted(step for step in paths_by_step if step < steps)  # one of the last step is the run's model itself
    if not earlier:
        raise UserError(
            f"{run} has no models of earlier steps (in {MODELS}/), and there is no other model to compare it with. "
            "Give two models or more, or pretrain with --models-every.",
            code="too-little-data",
        )
    yield _NamedModel(name="the end", source=open_folder(run, request.opening), step=steps)
    for step in earlier:
        yield _NamedModel(name=f"step {step}", source=open_folder(paths_by_step[step], request.opening), step=step)


@dataclass(frozen=True, kw_only=True)
class _Comparison:
    """One comparison, started or resumed. `work`: the unfinished output."""

    models: Sequence[_NamedModel]
    sample: SharedSample
    request: ComparisonRequest
    work: UnfinishedOutput

    def complete(self, folder: Path, watch: Watch) -> ModelAnalysis:
        """Measure the remaining models, and write both files."""
        facts = self._facts()
        refuse_other_analysis(folder, facts)
        if before := self.work.begun:
            self.work.refuse_other(before["facts"], facts)
        else:
            self.work.begin(facts, len(self.models))
        keys: list[str] = []
        with explaining_stops(self.work, lambda: len(keys), format_count(len(self.models), "model"), watch):
            for number, key in enumerate(facts["weights"].values()):
                self._measure(number, key, watch)
                keys.append(key)
        figures = self._figures(keys)
        notes = [*self._notes()]
        folder.mkdir(exist_ok=True)
        write_text(folder / JSON, analysis_text({**facts, "notes": notes}, figures))
        self._report(folder, figures, facts["weights"], notes)
        self.work.end()
        return ModelAnalysis(folder=folder, figures=figures, notes=notes)

    def _measure(self, number: int, key: str, watch: Watch) -> None:
        """Save the hidden states of the sampled words and the figures of the heads; `key`: a hash of the weights.

        Only one model is in memory at a time.
        """
        source, sample = self.models[number].source, self.sample.samples[number]
        if self._path(number, key, "figures.json").is_file():
            return
        options = self.request.analysis
        engine = load(source, device=options.device)
        backbone = engine.learner.backbone
        passed = PassedModel(
            backbone=backbone, form=engine.tokenizer.form, signs=punctuation(engine.tokenizer), seed=options.seed
        )
        heads = Heads(backbone.architecture, options.seed)
        states: list[Any] = [None] * len(sample)
        tokens = [model_sample.tokens for model_sample in self.sample.samples]
        done = sum(tokens[:number])
        for texts in passed.passes(sample):
            for text in texts:
                states[text.number] = word_states(text.states, self.sample.words[number][text.number])
                if backbone.attends:
                    heads.add(text)
                done += len(text.marks.first)
            watch(AnalysisProgress(done=done, count=sum(tokens)))
        # States before figures: the file of figures marks the model as done.
        with writing_output(self._path(number, key, "states.bin")) as aside, aside.open("wb") as stream:
            np.save(stream, np.array(states, np.float32))
        figures = [figure.record() for figure in heads.figures()] if backbone.attends else []
        write_sealed(self._path(number, key, "figures.json"), {"figures": figures})

    def _figures(self, keys: Sequence[str]) -> dict[str, list[Figure]]:
        seed = self.request.analysis.seed
        reference = self._read_model(0, keys[0])
        figures: dict[str, list[Figure]] = {"likeness": [], "geometry": [], "heads": []}
        for number in self._order():
            model = self._read_model(number, keys[number])
            if number:
                figures["likeness"] += reference_figures(model, reference, seed)
            figures["geometry"] += own_figures(model, seed)
            figures["heads"] += head_figures(model)
        return figures

    def _order(self) -> list[int]:
        """Return the indices of the models, sorted by step, else in the order given."""
        return sorted(range(len(self.models)), key=lambda number: (self.models[number].step or 0, number))

    def _read_model(self, number: int, key: str) -> ComparedModel:
        path = self._path(number, key, "figures.json")
        heads = read_own(path, f"Remove {self.work.folder} to begin anew.")["figures"]
        states = np.load(self._path(number, key, "states.bin"))
        return ComparedModel(
            name=self.models[number].name, states=states, heads=[Figure.of(record) for record in heads]
        )

    def _path(self, number: int, key: str, ending: str) -> Path:
        # The hash is in the name, so results of other weights at the same position are never read.
        return self.work.folder / f"{number}-{key[:16]}.{ending}"

    def _facts(self) -> dict[str, Any]:
        # The device changes no figure beyond rounding, so a run may be resumed on another one.
        settings = {name: value for name, value in asdict(self.request.analysis).items() if name != "device"}
        samples = zip(self.models, self.sample.samples, strict=True)
        data = {
            model.name: {
                "read": sample.read, "sequences": len(sample), "tokens": sample.tokens, "sha256": sample.sha256,
                "tokenizer": model.source.tokenizer.fingerprint,
            }
            for model, sample in samples
        }  # fmt: skip
        weights = {}
        for model in self.models:
            weights[model.name] = model.source.fingerprint
            # The hash needs all weights of a model in memory: free them before those of the next one are read.
            model.source.release()
        return {
            "osbert": __version__,
            "weights": weights,
            "reference": self.models[0].name,
            "steps": {model.name: model.step for model in self.models if model.step is not None},
            "settings": settings,
            "data": data,
        }

    def _notes(self) -> Iterator[str]:
        first = self.sample.samples[0]
        yield (
            f"{format_count(len(first), 'text')} of {first.read:,} read by {format_count(len(self.models), 'model')}; "
            f"{first.short:,} had fewer than {self.request.analysis.shortest} tokens, or no word that all of them read"
        )
        if len(first) < LEAST:
            yield f"fewer than {LEAST} texts give no figure of the layers"
        for model, sample in zip(self.models, self.sample.samples, strict=True):
            yield f"{model.name}: {sample.tokens:,} tokens, {sample.cut:,} texts not read whole"
            yield from (f"{model.name}: {note}" for note in oddities(sample, model.source.tokenizer.unknown))

    def _report(
        self, folder: Path, figures: Mapping[str, Sequence[Figure]], hashes: Mapping[str, str], notes: Sequence[str]
    ) -> None:
        names = [self.models[number].name for number in self._order()]
        steps = {model.name: model.step for model in self.models if model.step is not None}
        sections = comparison_sections(figures, names, self.models[0].name, steps)
        rows = [(name, hashes[name]) for name in names]
        about = [*map(paragraph, notes), table(rows, head=("model", "weights (sha256)"))]
        write_report(
            folder / REPORT,
            f"{format_count(len(names), 'model')} on the same texts",
            [*sections, Section(heading="What was read", parts=about)],
            lead=f"All are compared with {self.models[0].name}. Each figure, with its interval and what it is compared "
            "with, is in analysis.json beside this page.",
        )
