"""What a demo does: its sizes, its commands in their order, and the sentences that it predicts on."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SENTENCES = (
    ("networkx", "Finds the shortest route between two vertices, where every edge of the graph has a weight."),
    ("numpy", "Gives back an array with the same elements, its axes swapped and its shape changed accordingly."),
    ("python", "Opens a connection to the server, sends the message and closes the file when the reply has come."),
    ("scipy", "Integrates a system of ordinary differential equations numerically, within the tolerance asked for."),
    ("sklearn", "Fits the classifier to the training samples, then predicts the class of samples it has not seen."),
    ("sympy", "Rewrites the symbolic expression so that the terms in x are collected and common factors cancel."),
    ("torch", "Moves the parameters of the module to the device, so that gradients of the tensor are computed there."),
)
"""New sentences to predict on, written for the demo; each with the library that it had in mind."""


@dataclass(frozen=True, kw_only=True)
class DemoPlan:
    """What a demo does: its folder, and the sizes that decide how long it takes."""

    out: Path
    source: tuple[Path, ...]
    vocabulary: int
    steps: int
    epochs: int
    rows: int

    def folder(self, name: str) -> str:
        """Return a path in the demo's folder, as commands show it."""
        return str(self.out / name)

    def table(self) -> dict[str, Any]:
        """Return the settings as plain values, as they are kept with what was done."""
        return asdict(self) | {"out": str(self.out), "source": [str(folder) for folder in self.source]}


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One command of the chain: what it is for, and the words after `osbert`."""

    title: str
    words: tuple[str, ...]
    kept: bool = False
    """Whether its output goes into the report too."""

    @property
    def command(self) -> str:
        """The command as a reader types it."""
        return shlex.join(("osbert", *self.words))


def stages(plan: DemoPlan) -> list[Stage]:
    """Return the commands of the chain in their order."""
    text, tokenizer, corpus = plan.folder("text/docstrings.jsonl"), plan.folder("tokenizer"), plan.folder("corpus")
    encoder, pretrained, scratch = plan.folder("encoder"), plan.folder("classifier"), plan.folder("from-scratch")
    pretraining = ("--steps", str(plan.steps), "--log-every", "100")
    rate = ("--learning-rate", "1e-3", "--log-every", "100")
    train = ("--data", plan.folder("task"), "--epochs", str(plan.epochs), "--batch", "32", *rate)
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
            kept=True,
        ),
        Stage(
            title="and those of the one from scratch",
            words=("evaluate", scratch, "--data", plan.folder("task/test.csv")),
            kept=True,
        ),
        Stage(
            title="predictions for new sentences, and for some of those passages",
            words=("predict", pretrained, "--file", plan.folder("new.csv"), "--out", plan.folder("predictions.csv")),
        ),
        Stage(title="one of them by itself", words=("predict", pretrained, SENTENCES[0][1])),
    ]
