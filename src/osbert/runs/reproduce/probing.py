"""In which order a model's layers hold what probes read, beside the order of Tenney et al. 2019 (BERT-large).

Theirs are edge probes of OntoNotes, with two layers and pooled spans; here probes are linear, on words of open data. So
the order of tasks compares, and single figures do not: none of the paper's stand beside these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from osbert.analysis.figures import Figure, named
from osbert.analysis.probing import CONTROL, EMBEDDINGS, RANDOM
from osbert.errors import UserError
from osbert.files import refuse_foreign, write_json, write_text
from osbert.interop.opening import CAREFUL, Opening
from osbert.reports.page import Section, paragraph, table, write_report
from osbert.reports.plot import Series, line_plot
from osbert.runs.analyse.run import AnalysisProgress, ModelAnalysis, analyse
from osbert.runs.analyse.settings import AnalysisRequest
from osbert.runs.contract import Notice, Watch, ignore
from osbert.terminal import in_columns

NAME = "probing"
TASKS = {"tags": "part of speech", "chunks": "chunks", "arcs": "relations", "mentions": "coreference"}
"""The analyses, by what is probed, in the order of the paper's abstract; chunks are no task of the paper."""
ORDER = ("part of speech", "relations", "coreference")
TITLE = "Which layers hold what (Tenney et al. 2019)"
CLAIM = (
    "The paper (abstract): part of speech comes first, then parsing, named entities, semantic roles, and coreference "
    "last. Its probes are not linear, and its data are OntoNotes: its figures do not compare with these."
)
CAUTION = (
    "A mix looks at the layers that a linear probe needs together; what two layers hold alike may lie in either. The "
    "expected layer counts at which layer the mix of all layers up to it gains."
)
HEAD = ("task", "embeddings", "best", "at layer", "control task", "random encoder", "centre", "expected layer", "n")
PARTS = ("analysis", "results.json", "table.txt", "report.html")


@dataclass(frozen=True, kw_only=True)
class ProbingPlan:
    """One analysis of a model on a folder with trees, chunks and coreference, whichever there are."""

    model: Path
    data: Path
    out: Path
    opening: Opening = CAREFUL

    def run(self, *, watch: Watch = ignore) -> None:
        """Do what is not done, and write results.json, table.txt and report.html beside the analysis's own folder.

        Raises UserError where the data has nothing that is probed here.
        """
        refuse_foreign(self.out, "a reproduced table", PARTS)
        request = AnalysisRequest(opening=self.opening)
        shown = -1

        def note(event: object) -> None:
            nonlocal shown
            if not isinstance(event, AnalysisProgress):
                watch(event)
            elif (tenth := 10 * event.done // max(1, event.count)) > shown:
                shown = tenth
                watch(Notice(f"{event.done:,} of {event.count:,} tokens read"))

        found = analyse(self.model, data=self.data, out=self.out / "analysis", request=request, watch=note)
        self._write(found)

    @property
    def text(self) -> str:
        """Return the table, once it is written."""
        return (self.out / "table.txt").read_text("utf-8")

    def _write(self, found: ModelAnalysis) -> None:
        probed = {task: found.figures[name] for name, task in TASKS.items() if found.figures.get(name)}
        if not probed:
            raise UserError(
                f"{self.data} holds too little for probes: trees (.conllu), chunks, or coreference are read.",
                code="no-data",
            )
        results = {task: summary(figures, name) for name, task in TASKS.items() if (figures := probed.get(task))}
        write_json(self.out / "results.json", {"model": self.model.name, "notes": [*found.notes], "tasks": results})
        rows = [_row(task, one) for task, one in results.items()]
        said = [CLAIM, *order_sentences(results), CAUTION]
        lines = [TITLE, "", *in_columns([[*HEAD], *rows], indent=""), "", *said, "", *found.notes]
        write_text(self.out / "table.txt", "\n".join(lines) + "\n")
        curves = [
            Series(name=task, points=[(float(at), value) for at, value in enumerate(one["accuracy"])], color=number)
            for number, (task, one) in enumerate(results.items())
        ]
        plot = line_plot(curves, title="Accuracy of linear probes", percent=True, across="layer (0: embeddings)")
        sections = [
            Section(heading="Probes by layer", parts=[plot, table(rows, head=HEAD), *map(paragraph, said)]),
            Section(heading="What was read", parts=[paragraph(note) for note in found.notes]),
        ]
        lead = f"{self.model.name}. All figures, with their intervals, are in analysis/report.html."
        write_report(self.out / "report.html", TITLE, sections, lead=lead)


def summary(figures: Sequence[Figure], name: str) -> dict[str, Any]:
    """Return what the figures of an analysis say of all layers."""
    layers = named(figures, name)
    best = max(layers, key=lambda one: one.value)
    [centre] = named(figures, f"{name}_centre")
    expected = named(figures, f"{name}_expected_layer")
    return {
        "accuracy": [one.value for one in layers],
        "best": best.record(),
        "centre": centre.value,
        "expected_layer": expected[0].value if expected else None,
    }


def order_sentences(results: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield whether two or more of the paper's tasks come in its order here, by either measure."""
    tasks = [task for task in ORDER if task in results]
    for key, called in (("expected_layer", "expected layer"), ("centre", "centre of gravity")):
        if len(tasks) > 1 and all(results[task][key] is not None for task in tasks):
            layers = [results[task][key] for task in tasks]
            ours = ", ".join(task for _, task in sorted(zip(layers, tasks, strict=True)))
            as_there = "as in the paper" if layers == sorted(layers) else "not as in the paper"
            yield f"By {called} the order here is {as_there}: {ours}."


def _row(task: str, found: Mapping[str, Any]) -> list[str]:
    best = Figure.of(found["best"])
    expected = found["expected_layer"]
    return [
        task,
        f"{best.baselines[EMBEDDINGS]:.1%}",
        f"{best.value:.1%}",
        str(best.where["layer"]),
        f"{best.baselines[CONTROL]:.1%}",
        f"{best.baselines[RANDOM]:.1%}",
        f"{found['centre']:.2f}",
        "-" if expected is None else f"{expected:.2f}",
        f"{best.n:,}",
    ]
