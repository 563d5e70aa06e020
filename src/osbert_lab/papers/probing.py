"""The order in which a model's layers encode linguistic tasks, beside that of Tenney et al. 2019 (BERT-large).

The paper uses edge probes on OntoNotes, with two layers and pooled spans; here probes are linear, on words of open
data. So only the order of tasks is comparable, and the paper's figures are not shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from osbert.reports.page import Section, paragraph, table
from osbert.reports.plot import Series, explain_picture, line_plot
from osbert.terminal import in_columns
from osbert_lab.analysis.figures import Figure, select_figures
from osbert_lab.analysis.model_analysis import ModelAnalysis
from osbert_lab.analysis.probing import CONTROL, EMBEDDINGS, RANDOM, UNIFORM
from osbert_lab.papers.analysis_runs import AnalysisPlan, PaperComparison

TASKS = {
    "tags": ("part of speech", "tags"),
    "chunks": ("chunks", "chunks"),
    "structure": ("trees", "tree_arcs"),
    "arcs": ("relations", "arcs"),
    "mentions": ("coreference", "mentions"),
}
"""For each analysis: the task it probes and the name of its figures. Chunks and whole trees are not in the paper."""
ORDER = ("part of speech", "relations", "coreference")
CLAIM = (
    "The paper (abstract): part of speech comes first, then parsing, named entities, semantic roles, and coreference "
    "last. Its probes are not linear, and its data are OntoNotes: its figures do not compare with these."
)
CAUTION = (
    "Accuracies are the best layer's: of words, of pairs of words, of trees the arcs that the structural probe finds. "
    "Bits: of a label, or a distance in a tree, by the shortest online code of a layer, and by a uniform one. The "
    "centre is that of a mix of all layers; what two layers hold alike may lie in either. The expected layer counts "
    "at which layers a mix of those up to each gains."
)
USED = (
    "The height of a curve depends on its task's labels: compare where curves are highest, not how high. That a "
    "probe reads something does not say that the model uses it."
)
HEAD = (
    "task", "embeddings", "best", "at layer", "control task", "random encoder", "bits", "centre", "expected layer", "n",
)  # fmt: skip


class ProbingPlan(AnalysisPlan):
    """Probes of a model's layers on trees, chunks and coreference, as far as the data has them."""

    title: ClassVar[str] = "Which layers hold what (Tenney et al. 2019)"
    kinds: ClassVar[Sequence[str]] = tuple(TASKS)
    needed: ClassVar[str] = "probes: they read trees (.conllu), chunks, or coreference"

    def compare_with_paper(self, analysis: ModelAnalysis) -> PaperComparison | None:
        """Return the table of tasks, the accuracy by layer, and whether the tasks follow the paper's order."""
        results = {
            task: summary(figures, name)
            for kind, (task, name) in TASKS.items()
            if (figures := analysis.figures.get(kind))
        }
        if not results:
            return None
        rows = [_row(task, task_summary) for task, task_summary in results.items()]
        sentences = [CLAIM, *order_sentences(results), CAUTION]
        curves = [
            Series(
                name=task,
                points=[(float(at), value) for at, value in enumerate(task_summary["accuracy"])],
                color=number,
            )
            for number, (task, task_summary) in enumerate(results.items())
        ]
        plot = line_plot(curves, title="Accuracy of linear probes", percent=True, across="layer (0: embeddings)")
        picture = explain_picture(plot, plain=best_layers(results), caution=USED)
        parts = [picture, table(rows, head=HEAD), *map(paragraph, sentences)]
        return PaperComparison(
            results={"tasks": results},
            lines=[*in_columns([[*HEAD], *rows], indent=""), "", *sentences],
            sections=[Section(heading="Probes by layer", parts=parts)],
        )


def best_layers(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a sentence that says from which layer each task is read best."""
    best = {task: Figure.of(task_summary["best"]) for task, task_summary in results.items()}
    phrases = [f"{task} from layer {figure.where['layer']} ({figure.value:.1%})" for task, figure in best.items()]
    return f"A probe of one layer reads best: {', '.join(phrases)}."


def summary(figures: Sequence[Figure], name: str) -> dict[str, Any]:
    """Summarise an analysis over all layers; `name`: the name of a layer's accuracy."""
    layers, bits = select_figures(figures, name), select_figures(figures, f"{name}_bits")
    # Of equal layers the lowest.
    best = max(layers, key=lambda figure: figure.value)
    [centre] = select_figures(figures, f"{name}_centre")
    expected = select_figures(figures, f"{name}_expected_layer")
    return {
        "accuracy": [figure.value for figure in layers],
        "selectivity": [figure.value for figure in select_figures(figures, f"{name}_selectivity")],
        "bits": [figure.value for figure in bits],
        "uniform_bits": bits[0].baselines[UNIFORM] if bits else None,
        "best": best.record(),
        "centre": centre.value,
        "expected_layer": expected[0].value if expected else None,
    }


def order_sentences(results: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield whether two or more of the paper's tasks follow its order here, by either measure."""
    tasks = [task for task in ORDER if task in results]
    for key, called in (("expected_layer", "expected layer"), ("centre", "centre of gravity")):
        if len(tasks) > 1 and all(results[task][key] is not None for task in tasks):
            # `tasks` are in the paper's order, so their layers increase if the order holds here.
            layers = [results[task][key] for task in tasks]
            order = ", ".join(task for _, task in sorted(zip(layers, tasks, strict=True)))
            as_there = "as in the paper" if layers == sorted(layers) else "not as in the paper"
            yield f"By {called} the order here is {as_there}: {order}."


def _row(task: str, task_summary: Mapping[str, Any]) -> list[str]:
    best = Figure.of(task_summary["best"])
    expected, bits, even = task_summary["expected_layer"], task_summary["bits"], task_summary["uniform_bits"]
    return [
        task,
        f"{best.baselines[EMBEDDINGS]:.1%}",
        f"{best.value:.1%}",
        str(best.where["layer"]),
        f"{best.baselines[CONTROL]:.1%}",
        f"{best.baselines[RANDOM]:.1%}",
        f"{min(bits):.2f} of {even:.2f}" if bits else "-",
        f"{task_summary['centre']:.2f}",
        "-" if expected is None else f"{expected:.2f}",
        f"{best.n:,}",
    ]
