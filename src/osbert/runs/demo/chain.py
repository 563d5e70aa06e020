"""The commands of a demo in their order, the files that they begin from, and the record of what is done."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from osbert.errors import UserError
from osbert.files import refuse_foreign, write_json
from osbert.recipe import difference
from osbert.runs.contract import Notice, Watch, ignore
from osbert.runs.demo.docstrings import collect
from osbert.runs.demo.report import write_demo_report
from osbert.runs.demo.task import make_task, split, write_table

COLLECT = "collecting the docstrings"
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


def run_demo(plan: DemoPlan, *, shown: bool = True, watch: Watch = ignore) -> Path:
    """Run the whole chain into the plan's folder, but for what was done before; return the path of the report.

    `shown`: commands print where this process prints. Otherwise they print what `--quiet` leaves, which `watch` gets.
    Raises UserError when a command fails, and when the folder holds a demo with other settings.
    """
    record = DemoRecord(plan.out / "demo.json", plan.table())
    watch(Notice(f"osbert demo: everything goes into {plan.out}/\n"))
    if COLLECT not in record.seconds:
        record.do(COLLECT, partial(prepare, plan, watch))
    for stage in stages(plan):
        if stage.command in record.seconds:
            watch(Notice(f"$ {stage.command}\n  done before, in {record.seconds[stage.command]:.0f} s\n"))
            continue
        watch(Notice(f"# {stage.title}\n$ {stage.command}"))
        record.do(stage.command, partial(run, stage, watch, shown=shown))
        watch(Notice(""))
    return write_demo_report(plan.out, seconds=record.seconds, scores=record.outputs, watch=watch)


def stages(plan: DemoPlan) -> list[Stage]:
    """Return the commands of the chain in their order."""
    text, tokenizer, corpus = plan.folder("text/docstrings.jsonl"), plan.folder("tokenizer"), plan.folder("corpus")
    encoder, pretrained, scratch = plan.folder("encoder"), plan.folder("classifier"), plan.folder("from-scratch")
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


def prepare(plan: DemoPlan, watch: Watch = ignore) -> None:
    """Write the corpus's text, the task's tables and the new sentences.

    The files of the task's dev and test rows are left out of the text, so that what is measured has been seen by
    nothing.
    """
    watch(Notice("# the English in the docstrings of every installed library, and a task drawn from it"))
    passages = collect(folders=plan.source or None)
    documents: dict[str, list[str]] = {}
    owners = {}
    for passage in passages:
        if split(passage.file) == "train":
            documents.setdefault(passage.file, []).append(passage.text)
            owners[passage.file] = passage.library
    text = plan.out / "text" / "docstrings.jsonl"
    text.parent.mkdir(parents=True, exist_ok=True)
    with text.open("w", encoding="utf-8") as stream:
        for file, texts in documents.items():
            document = {"text": "\n".join(texts), "library": owners[file]}
            stream.write(json.dumps(document, ensure_ascii=False) + "\n")
    task = make_task(passages, train=plan.rows)
    for name in ("train", "dev", "test"):
        write_table(plan.out / "task" / f"{name}.csv", getattr(task, name))
    new = [(sentence, library if library in task.labels else "") for library, sentence in SENTENCES]
    unseen = {label: row for row, label in reversed(task.test)}
    rows = [row for row in new if row[1]] or new
    rows += [(row, label) for label, row in sorted(unseen.items())]
    write_table(plan.out / "new.csv", rows, header=("text", "meant"))
    libraries = len({passage.library for passage in passages})
    size = text.stat().st_size / 1e6
    said = (
        f"  {len(passages):,} docstrings of {libraries} libraries; {size:.1f} MB of English in {len(documents):,} "
        "documents, one a source file\n"
        f"  the task: which of {', '.join(task.labels)} does a passage describe, names masked?\n"
        f"  {len(task.train):,} rows to train on; {len(task.dev):,} to choose an epoch by and {len(task.test):,} to "
        "score, from files of which nothing is in the text\n"
        f'  such as "{task.test[0][0]}" ({task.test[0][1]})\n'
    )
    watch(Notice(said))


def run(stage: Stage, watch: Watch = ignore, *, shown: bool = True) -> str:
    """Run a command in a process of its own; return its output if it is kept, which `watch` gets line by line.

    The output of others goes where ours goes if it is `shown`, with progress on a terminal. Raises UserError when the
    command fails. An exit from this process, as at SIGTERM, ends the command's as well.
    """
    lines = []
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "osbert", *([] if shown else ["--quiet"]), *stage.words],
        text=True,
        stdout=subprocess.PIPE if stage.kept or not shown else None,
    ) as process:
        try:
            for line in process.stdout or ():
                watch(Notice(line.removesuffix("\n")))
                lines.append(line)
            process.wait()
        except SystemExit:
            process.terminate()
            raise
    if process.returncode:
        raise UserError(
            f"`{stage.command}` ended with status {process.returncode}. What came before it is kept: once the cause is "
            "mended, the same demo goes on from here.",
            code="child-failed",
        )
    return "".join(lines) if stage.kept else ""


class DemoRecord:
    """What a demo has done so far, in how many seconds, with what output; kept in its folder so that it can go on."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self.path = path
        self.settings = settings
        self.seconds: dict[str, float] = {}
        self.outputs: dict[str, str] = {}
        if not path.is_file():
            refuse_foreign(path.parent, "a demo", ("text", "task", "new.csv"))
        else:
            before = json.loads(path.read_text(encoding="utf-8"))
            if changes := difference(before["settings"], settings):
                raise UserError(
                    f"{path.parent} holds a demo with other settings ({'; '.join(changes)}). Remove it, or "
                    "give another folder with --out.",
                    code="begun-with-other-settings",
                )
            self.seconds, self.outputs = before["seconds"], before["outputs"]

    def do(self, name: str, work: Callable[[], str | None]) -> None:
        """Do a piece of work and write down that it is done; a piece that fails is not written down."""
        started = time.perf_counter()
        output = work()
        self.seconds[name] = time.perf_counter() - started
        if output:
            self.outputs[name] = output
        write_json(self.path, {"settings": self.settings, "seconds": self.seconds, "outputs": self.outputs})
