"""osbert finetune glue: GLUE's nine sets, a run each, and the table of their official scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from osbert import components
from osbert.errors import Problems, UserError
from osbert.files import refuse_foreign, write_json, write_text
from osbert.interop.hub import locate
from osbert.lock import claim
from osbert.reading.splits import find_splits
from osbert.remote import local_data, reading_copies
from osbert.runs.contract import Notice, Watch, ignore
from osbert.runs.finetune.finetune import finetune
from osbert.runs.finetune.model import ModelReader
from osbert.runs.finetune.plan import read_plan
from osbert.runs.finetune.records import SPLITS
from osbert.tasks import Task, load
from osbert.training.interruption import Interruption
from osbert.training.run_folder import RunFolder
from osbert_lab.papers.glue import COLUMNS, SETS, GlueSet, average
from osbert_lab.study.runner import Study, StudyTrial

RESULTS, TABLE = "glue.json", "glue.txt"
WRONG = "GLUE cannot be run so"


@dataclass(frozen=True, kw_only=True)
class GlueData:
    """A set whose data are there. `alone`: there is only a development file, part of which is held out."""

    glue: GlueSet
    data: Path
    alone: bool = False


def finetune_glue(
    *,
    model: str | Path,
    data: str | Path,
    out: str | Path,
    watch: Watch = ignore,
    wish: Interruption | None = None,
    **settings: Any,
) -> dict[str, float]:
    """Fine-tune a run for each of GLUE's sets; return the official scores in per cent, by column.

    `data`: the folder with the sets' own (CoLA, SST-2, ...). `out`: the folder of the runs, each named for its task,
    and of glue.json and glue.txt. `settings`, `watch` and `wish` are those of `finetune`. All sets are checked before
    the first is trained. Raises UserError when no set is there, when data cannot be used, and when a set has failed.
    """
    with claim(Path(out)) as folder, reading_copies():
        model_path = locate(model, watch=watch).path
        glue = GlueStudy(model=model_path, reader=ModelReader.of(model_path), settings=settings, watch=watch, wish=wish)
        return glue.run(Path(local_data(data)), folder)


@dataclass(frozen=True, kw_only=True)
class GlueStudy:
    """Fine-tunes a model on each set, with the same settings."""

    model: Path
    reader: ModelReader
    settings: Mapping[str, Any]
    watch: Watch = ignore
    wish: Interruption | None = None

    def run(self, data: Path, out: Path) -> dict[str, float]:
        """Fine-tune on every set whose data are there; report the table of all that is finished, return its scores.

        The data of all sets are checked first. A set that fails is named at the end; the others are kept.

        Raises UserError when no set is there, when data cannot be used, and when a set has failed.
        """
        refuse_foreign(out, "GLUE's runs", (RESULTS, TABLE, *(glue.task for glue in SETS)))
        sets = self.find(data)
        for dataset in sets:
            if dataset.alone:
                message = (
                    f"{dataset.glue.name}: only {dataset.data} is there; a share of its rows is held out "
                    "for development."
                )
                self.watch(Notice(message))
        wrong = Problems(heading=WRONG)
        for dataset in sets:
            with _noting(wrong, dataset.glue):
                plan = read_plan(dataset.glue.task, self.settings, model=self.model, data=dataset.data)
                self.reader.check(*load(plan.task, SPLITS))
        wrong.stop_if_any()
        failed = Problems(heading="Some sets failed; the others are kept, and the same command tries again")
        # A set that is finished is given to its run as well, which refuses other settings.
        study = Study(work=self._tune, problems=failed, resumed=lambda trial: False, watch=self.watch)
        study.run(
            [StudyTrial(name=dataset.glue.name, folder=out / dataset.glue.task, settings=dataset) for dataset in sets]
        )
        scores, text = report(sets, out)
        self.watch(Notice(f"\n{text}".removesuffix("\n")))
        failed.stop_if_any()
        return scores

    def _tune(self, trial: StudyTrial) -> None:
        dataset: GlueData = trial.settings
        call: dict[str, Any] = {"model": self.model, "data": dataset.data, "out": trial.folder}
        finetune(dataset.glue.task, **call, watch=self.watch, wish=self.wish, **self.settings)

    def find(self, data: Path) -> list[GlueData]:
        """Return the sets that are there, and report which are not.

        Raises UserError when none is, and when the files of a set's folder are not plain: two for one split, or parts.
        """
        if not data.is_dir():
            raise UserError(
                f"{data}: no such folder. --data takes a folder with GLUE's own: CoLA, SST-2, MRPC, ...",
                code="missing-file",
            )
        sets: list[GlueData] = []
        wrong = Problems(heading=WRONG)
        for glue in SETS:
            with _noting(wrong, glue):
                sets += _data(glue, data)
        wrong.stop_if_any()
        absent = [glue.name for glue in SETS if glue not in [here.glue for here in sets]]
        if not sets:
            raise UserError(
                f"{data} has none of GLUE's folders with a training file: {', '.join(absent)}.", code="missing-split"
            )
        if absent:
            self.watch(Notice(f"No data for {', '.join(absent)} in {data}: left out."))
        return sets


def report(sets: Sequence[GlueData], out: Path) -> tuple[dict[str, float], str]:
    """Write glue.json and glue.txt: the official scores of all finished runs; return them, and the table."""
    scores: dict[str, float] = {}
    compared: list[str] = []
    for dataset in sets:
        facts: Mapping[str, Any] = RunFolder(out / dataset.glue.task).facts
        metrics = facts["finished"]["best"]["metrics"] if "finished" in facts else {}
        scores |= {column: 100 * metrics[name] for column, name in dataset.glue.scores.items() if name in metrics}
        compared += [dataset.glue.name] if "comparison" in facts.get("finished", {}) else []
    text = table(scores, starred={column for dataset in sets if dataset.alone for column in dataset.glue.scores})
    if compared:
        text += (
            f"The best of several runs, chosen on the same rows: {', '.join(compared)}. Medians: report.html of each.\n"
        )
    write_json(out / RESULTS, scores)
    write_text(out / TABLE, text)
    return scores, text


def table(scores: Mapping[str, float], starred: set[str]) -> str:
    """Return the official scores, in per cent by column, and their average, in words and figures."""
    names = {column: name for glue in SETS for column, name in glue.scores.items()}
    lines = ["GLUE, development rows, best epoch, in per cent"]
    for column, value in scores.items():
        star = "*" if column in starred else ""
        lines.append(f"  {column + star:<15} {value:6.1f}  {names[column].replace('_', ', ')}")
    missing = [column for column in COLUMNS if column not in scores]
    measured = [column for column in COLUMNS if column in scores]
    if measured:
        of = "nine columns" if not missing else f"{len(measured)} of the 9 columns"
        lines.append(
            f"  {'average':<15} {average(scores, measured):6.1f}  of {of}, without WNLI, as the paper's Table 1"
        )
    if missing:
        lines.append(f"Not measured: {', '.join(missing)}.")
    if "WNLI" in scores:
        lines.append("WNLI is answered with the majority class of its training rows, unless --rule model was given.")
    if starred & set(scores):
        lines.append("*: trained and scored on parts of the development file; not to be compared with others' scores.")
    return "\n".join(lines) + "\n"


def _data(glue: GlueSet, data: Path) -> list[GlueData]:
    folder = glue.folder(data)
    if folder is None:
        return []
    kind: Any = components.find("tasks", glue.task, base=Task)
    files = find_splits(folder, kind.layout.files, instead=kind.layout.instead)
    if "train" in files:
        return [GlueData(glue=glue, data=folder)]
    return [GlueData(glue=glue, data=files["dev"], alone=True)] if "dev" in files else []


@contextmanager
def _noting(problems: Problems, glue: GlueSet) -> Iterator[None]:
    try:
        yield
    except UserError as error:
        problems.add_from(glue.name, error)
