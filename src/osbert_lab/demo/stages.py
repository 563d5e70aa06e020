"""The stages of a demo: its sizes, its commands in order, and the sentences that it predicts on."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

PUBLISHED = "minilm"
"""The published encoder of the second half: all-MiniLM-L6-v2, from an optional extra."""
NONE = "none"
"""In place of a published encoder: run the first half only."""
TUNED = ("classifier", "from-scratch", "from-published")
"""The folders of the classifiers, in the order of their evaluations; the last one belongs to the second half."""
SCORES, NEIGHBOURS, REASONS = "Scores", "Nearest passages", "Why?"
"""The report's headings for the outputs of commands."""

SENTENCES = (
    ("networkx", "Finds the shortest route between two vertices, where every edge of the graph has a weight."),
    ("numpy", "Gives back an array with the same elements, its axes swapped and its shape changed accordingly."),
    ("python", "Opens a connection to the server, sends the message and closes the file when the reply has come."),
    ("scipy", "Integrates a system of ordinary differential equations numerically, within the tolerance asked for."),
    ("sklearn", "Fits the classifier to the training samples, then predicts the class of samples it has not seen."),
    ("sympy", "Rewrites the symbolic expression so that the terms in x are collected and common factors cancel."),
    ("torch", "Moves the parameters of the module to the device, so that gradients of the tensor are computed there."),
)
"""New sentences to predict on, written for the demo, each with the library it is about."""


@dataclass(frozen=True, kw_only=True)
class DemoPlan:
    """A demo's folder, and the sizes that decide how long it takes."""

    out: Path
    source: tuple[Path, ...]
    vocabulary: int
    steps: int
    epochs: int
    rows: int
    model: str = PUBLISHED
    """The published encoder of the second half: a folder or a name."""

    def folder(self, name: str) -> str:
        """Return a path in the demo's folder, in the form that commands show."""
        return str(self.out / name)

    def table(self) -> dict[str, Any]:
        """Return the settings as plain values, for the record of the demo.

        Without the published encoder: it does not affect the first half.
        """
        settings = {name: value for name, value in asdict(self).items() if name != "model"}
        return settings | {"out": str(self.out), "source": [str(folder) for folder in self.source]}


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One command of the chain: a title, and the words after `osbert`."""

    title: str
    words: tuple[str, ...]
    report_heading: str = ""
    """The report's heading for its output; "" if the report does not show the output."""

    @property
    def command(self) -> str:
        """The command as a reader types it."""
        return shlex.join(("osbert", *self.words))


def stages(plan: DemoPlan) -> list[Stage]:
    """Return the commands of the first half in order: tokenizer, encoder and classifiers are made from text."""
    text, tokenizer, corpus = plan.folder("text/docstrings.jsonl"), plan.folder("tokenizer"), plan.folder("corpus")
    encoder, pretrained, scratch = plan.folder("encoder"), *map(plan.folder, TUNED[:2])
    pretraining = ("--steps", str(plan.steps), "--log-every", "100")
    epochs = ("--epochs", str(plan.epochs)) if plan.epochs else ()
    train = ("--data", plan.folder("task"), *epochs, "--log-every", "100")
    return [
        Stage(
            title="a vocabulary of word pieces",
            words=("tokenizer", "train", text, "--out", tokenizer, "--vocabulary", str(plan.vocabulary)),
        ),
        Stage(
            title="the text as pieces, in files that training reads",
            words=("corpus", "build", text, "--tokenizer", tokenizer, "--out", corpus),
        ),
        Stage(
            title="a small BERT, pretrained: masked pieces and next sentences",
            words=("pretrain", "cpu", "--corpus", corpus, "--out", encoder, *pretraining),
        ),
        Stage(
            title="a classifier on the pretrained encoder: which library does a passage describe?",
            words=("finetune", "classify", "--model", encoder, *train, "--out", pretrained),
        ),
        Stage(
            title="the same with the same budget, but from random weights",
            words=("finetune", "classify", "--model", encoder, *train, "--out", scratch, "--from-scratch"),
        ),
        Stage(
            title="its scores on passages that played no part in the training",
            words=("evaluate", pretrained, "--data", plan.folder("task/test.csv")),
            report_heading=SCORES,
        ),
        Stage(
            title="and those of the one from scratch",
            words=("evaluate", scratch, "--data", plan.folder("task/test.csv")),
            report_heading=SCORES,
        ),
        Stage(
            title="predictions for new sentences, and for some of those passages",
            words=("predict", pretrained, "--file", plan.folder("new.csv"), "--out", plan.folder("predictions.csv")),
        ),
        Stage(title="one of them by itself", words=("predict", pretrained, SENTENCES[0][1])),
    ]


def plan_published_stages(plan: DemoPlan) -> list[Stage]:
    """Return the commands of the second half in order, which start from a published encoder."""
    tuned, vectors = plan.folder(TUNED[-1]), plan.folder("vectors.npz")
    given = ("--data", plan.folder("task"), "--few-shot", "linear")  # seconds; all of MiniLM would take a minute or two
    return [
        Stage(
            title=f"the same rows, from a published encoder: one layer on the sentence vectors of {plan.model}",
            words=(*("finetune", "classify", "--model", plan.model), *given, "--out", tuned),
        ),
        Stage(
            title="its scores on the same passages",
            words=("evaluate", tuned, "--data", plan.folder("task/test.csv")),
            report_heading=SCORES,
        ),
        Stage(
            title="which words made it say so? What each adds to the score of the answer",
            words=("explain", tuned, SENTENCES[3][1]),
            report_heading=REASONS,
        ),
        Stage(
            title="vectors of passages",
            words=("embed", plan.model, plan.folder("passages.csv"), "--out", vectors),
        ),
        Stage(
            title="the passages nearest to a sentence, by their vectors",
            words=("search", vectors, SENTENCES[0][1], "--top", "3"),
            report_heading=NEIGHBOURS,
        ),
    ]


def plan_server_stage(plan: DemoPlan, *, published: bool, port: int) -> Stage:
    """Return the command that serves all models of the demo on one page, opened at the first one."""
    demo_folders = [plan.folder(name) for name in (*TUNED[:2], "encoder")]
    models = [plan.folder(TUNED[-1]), *demo_folders, plan.model] if published else demo_folders
    return Stage(
        title="all models on one page; Ctrl-C ends it",
        words=("serve", *models, "--port", str(port)),
    )
