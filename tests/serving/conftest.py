"""Tiny models of every kind, not trained, and a server that serves them all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from osbert import recipe
from osbert.interop.huggingface.folders import write_model
from osbert.interop.sentence_files import SentenceModel, write_sentence_model
from osbert.interop.tokenizer_files import write_tokenizer
from osbert.models.contract import Learner
from osbert.models.families.transformer import Architecture
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert.tasks import Task
from osbert.tasks.kinds.choose import Choose
from osbert.tasks.kinds.classify import Classify
from osbert.tasks.kinds.contrastive import Contrastive
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
    "number": Regress(text="text", center=3.0, scale=2.0),
    "chooser": Choose(context=("start",), choices=("a", "b"), label="label", counting="1"),
    "reader": Span(unanswerable="yes", threshold=-0.5, stride=6),
    "reader-of-all": Span(unanswerable="no", stride=6),
    "tagger": Tag(types=("PER", "WORK"), decoder="crf"),
}


def write_run(folder: Path, task: Task | None, *, masks: bool = False) -> Path:
    """Write a model with random weights as a run folder."""
    tokenizer = Tokenizer([*SPECIALS, *WORDS])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        backbone = Architecture(layers=1, heads=2, width=16, vocabulary=len(tokenizer), length=LENGTH).build()
        heads = {task.name: task.head(backbone)} if task else {}
        if masks:
            heads = {"mlm": MaskedLanguageHead(backbone)}
        for parameter in [one for head in heads.values() for one in head.parameters()]:
            torch.nn.init.normal_(parameter, std=0.5)  # answers that differ
    write_model(Learner(backbone, heads), folder, **(task.published() if task else {}))
    write_tokenizer(tokenizer, folder, length=LENGTH)
    if task:
        table = recipe.as_table(task)
        (folder / "recipe.toml").write_text(recipe.dump({"task": task.name, task.name: table}))
    return folder


def write_sentences(folder: Path) -> Path:
    """Write a model as `osbert finetune contrastive` does, which has its own pooling, length and normalisation."""
    write_run(folder, Contrastive(text="one", pair="two", pooling="weighted", length=12))
    write_sentence_model(folder, SentenceModel(pooling="weighted", normalize=True, length=12), width=16)
    return folder


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a folder for each kind of model, by name."""
    folder = tmp_path_factory.mktemp("runs")
    made = {name: write_run(folder / name, task) for name, task in TASKS.items()}
    return made | {
        "pretrained": write_run(folder / "pretrained", None, masks=True),
        "encoder": write_run(folder / "encoder", None),
        "sentences": write_sentences(folder / "sentences"),
    }


class Serving:
    """osbert serve as a process of its own."""

    def __init__(self, *arguments: str) -> None:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "osbert", "serve", "--port", "0", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.told: list[str] = []
        self.url = ""
        for line in self.process.stdout:
            self.told.append(line.rstrip())
            if line.startswith("http://"):
                self.url = line.strip()
                break
        if not self.url:
            self.process.wait(30)
            raise AssertionError(self.errors())
        self.client = httpx.Client(base_url=self.url, timeout=30)

    def post(self, call: str, **asked: Any) -> httpx.Response:
        return self.client.post(f"/v1/{call}", json=asked)

    def metric(self, name: str) -> float:
        text = self.client.get("/metrics").text
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))

    def workers(self) -> list[int]:
        """Return the worker processes, which are the server's children."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(number) for number in path.read_text().split()]

    def close(self) -> None:
        """End it whatever it does."""
        self.client.close()
        self.process.kill()
        self.process.communicate(timeout=30)

    def errors(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read()

    def end(self) -> str:
        """Stop it as a service manager does, and return what it wrote to its log."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(30) == 0
        return self.errors()


@pytest.fixture
def start(runs: dict[str, Path]) -> Iterator[Callable[..., Serving]]:
    """Return a maker of servers of one's own; they are ended after the test."""
    made: list[Serving] = []

    def starting(*arguments: str) -> Serving:
        made.append(Serving(*arguments))
        return made[-1]

    yield starting
    for serving in made:
        serving.close()


@pytest.fixture(scope="module")
def server(runs: dict[str, Path]) -> Iterator[Serving]:
    """Serve every kind of model."""
    serving = Serving(*(f"{name}={folder}" for name, folder in runs.items()), "--wait", "1")
    try:
        yield serving
    finally:
        serving.close()
