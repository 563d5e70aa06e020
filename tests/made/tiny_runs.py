"""Tiny models of every kind, not trained, as run folders."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from osbert import recipe
from osbert.inference.engine import load
from osbert.interop.huggingface.folders import write_model
from osbert.interop.sentence_files import SentenceModel, write_sentence_model
from osbert.interop.tokenizers import write_tokenizer
from osbert.interop.tuned_files import keep_tuned
from osbert.models.adapting.tuning import Factors
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.models.forms import Writing
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert.runs.export import write
from osbert.tasks import Task
from osbert.tasks.kinds.classify import Classify
from osbert.tasks.kinds.contrastive import Contrastive
from osbert.tasks.kinds.multilabel import Multilabel
from osbert.tasks.kinds.regress import Regress
from osbert.tasks.kinds.span import Span
from osbert.tasks.kinds.tag import Tag
from osbert.text.tokenizer import SPECIALS, Tokenizer

WORDS = ["good", "fine", "bad", "poor", "film", "a", "the", "play", "##s", "actor", "."]
LENGTH = 24
TASKS: dict[str, Task] = {
    "classifier": Classify(labels=("neg", "pos"), text="text", temperature=0.7),
    "windows": Classify(labels=("neg", "pos"), text="text", long="window", overlap=4),
    "pairs": Classify(labels=("no", "yes"), text="one", pair="two"),
    "labeller": Multilabel(labels=("art", "war"), text="text", thresholds=(0.3, 0.6)),
    "number": Regress(text="text", center=3.0, scale=2.0, training_range=(1.0, 5.0)),
    "reader": Span(unanswerable="yes", threshold=-0.5, stride=6),
    "reader-of-all": Span(unanswerable="no", stride=6),
    "tagger": Tag(types=("PER", "WORK"), decoder="crf"),
}

if importlib.util.find_spec("osbert_lab"):
    from osbert_lab.multiple_choice.choose import Choose

    TASKS["chooser"] = Choose(context=("start",), choices=("a", "b"), label="label", counting="1")

EXPORTED: dict[tuple[object, ...], dict[str, bytes]] = {}
"""The files of each export that was made, by those of its run."""


def write_run(
    folder: Path,
    task: Task | None,
    *,
    masks: bool = False,
    words: Sequence[str] = WORDS,
    writes: Writing | None = None,
    **more: Any,
) -> Path:
    """Write a model with random weights as a run folder; `more`: other sizes than one layer of 16.

    `masks`: with a head for masked pieces, which `writes` in one way or none.
    """
    tokenizer = Tokenizer([*SPECIALS, *words])
    sizes: dict[str, Any] = {"layers": 1, "heads": 2, "width": 16, "length": LENGTH, **more}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        backbone = Architecture(vocabulary=len(tokenizer), **sizes).build()
        heads = {task.name: task.head(backbone)} if task else {}
        if masks:
            heads = {"mlm": MaskedLanguageHead(backbone, writes=writes)}
        for parameter in [one for head in heads.values() for one in head.parameters()]:
            torch.nn.init.normal_(parameter, std=0.5)  # answers that differ
    write_model(Learner(backbone, heads), folder, **(task.export_metadata() if task else {}))
    write_tokenizer(tokenizer, folder, length=LENGTH)
    if task:
        table = recipe.as_table(task)
        (folder / "recipe.toml").write_text(recipe.dump({"task": task.name, task.name: table}))
    return folder


def write_exported(folder: Path, run: Path, *, int8: bool = False) -> Path:
    """Export a run to ONNX. It takes seconds, so of runs with the same files one is exported and its files are kept."""
    folder.mkdir()
    same = (int8, *sorted(files(run).items()))
    if same not in EXPORTED:
        write(load(run, device="cpu"), run, folder, int8=int8)
        EXPORTED[same] = files(folder)
    for name, content in EXPORTED[same].items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def files(folder: Path) -> dict[str, bytes]:
    """Return the content of all files below a folder, by their paths in it."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def write_tuned(folder: Path, task: Task, changes: Mapping[str, Factors]) -> Path:
    """Write a run that keeps only what differs from the model in the folder `base` beside it: a head, and `changes`."""
    base = write_run(folder.with_name("base"), None)
    write_run(folder, task)
    keep_tuned(folder, base, changes)
    return folder


def write_sentences(folder: Path) -> Path:
    """Write a model as `osbert finetune contrastive` does, which has its own pooling, length and normalisation."""
    write_run(folder, Contrastive(text="one", pair="two", pooling="weighted", length=12))
    write_sentence_model(folder, SentenceModel(pooling="weighted", normalize=True, length=12), width=16)
    return folder


def write_runs(folder: Path) -> dict[str, Path]:
    """Write a folder for each kind of model; return them by name."""
    made = {name: write_run(folder / name, task) for name, task in TASKS.items()}
    return made | {
        "pretrained": write_run(folder / "pretrained", None, masks=True),
        "encoder": write_run(folder / "encoder", None),
        "sentences": write_sentences(folder / "sentences"),
    }
