"""Runs the commands of a demo, writes their input files, and keeps a record of finished work."""

from __future__ import annotations

import contextlib
import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from osbert.errors import UserError
from osbert.files import refuse_foreign, write_json
from osbert.interop.hub import find_packaged_folder
from osbert.recipe import difference
from osbert.runs.contract import Notice, Watch, ignore
from osbert_lab.demo.docstrings import collect
from osbert_lab.demo.report import write_demo_report
from osbert_lab.demo.stages import NONE, SENTENCES, DemoPlan, Stage, plan_published_stages, plan_server_stage, stages
from osbert_lab.demo.task import WORDS, make_task, split, write_table

COLLECT = "collecting the docstrings"
TEXT = Path("text", "docstrings.jsonl")
PASSAGES = 3000
"""Most passages of the text that are embedded."""


def run_demo(plan: DemoPlan, *, shows_output: bool = True, watch: Watch = ignore) -> Path:
    """Run all commands that are not yet done in the plan's folder; return the path of the report.

    The second half is left out, with a notice, if the published encoder is not installed. `shows_output`: commands
    print to this process's standard output; else they run with --quiet, and `watch` gets their output. Raises UserError
    if a command fails, and if the folder holds a demo with other settings.
    """
    record = DemoRecord(plan.out / "demo.json", plan.table())
    watch(Notice(f"osbert demo writes everything into {plan.out}/\n"))
    # Finished stages are recorded by name; a repeated call continues with the first one that is missing.
    if COLLECT not in record.seconds:
        record.do(COLLECT, partial(prepare, plan, watch))
    chosen = [*stages(plan), *second_half(plan, watch)]
    for stage in chosen:
        if stage.command in record.seconds:
            watch(Notice(f"$ {stage.command}\n  finished earlier, in {record.seconds[stage.command]:.0f} s\n"))
            continue
        watch(Notice(f"# {stage.title}\n$ {stage.command}"))
        record.do(stage.command, partial(run, stage, watch, shows_output=shows_output))
        watch(Notice(""))
    outputs: dict[str, dict[str, str]] = {}
    for stage in chosen:
        if stage.report_heading:
            outputs.setdefault(stage.report_heading, {})[stage.command] = record.outputs[stage.command]
    seconds = {name: record.seconds[name] for name in (COLLECT, *(stage.command for stage in chosen))}
    return write_demo_report(plan.out, model=plan.model, seconds=seconds, outputs=outputs, watch=watch)


def second_half(plan: DemoPlan, watch: Watch = ignore) -> list[Stage]:
    """Return the commands that need the published encoder, and write their texts; [] and a notice if it is not
    installed."""
    if plan.model == NONE:
        return []
    try:
        find_packaged_folder(plan.model)
    except UserError as error:
        watch(
            Notice(f"The second half, with a published encoder, is left out. {error} Then give this command again.\n")
        )
        return []
    if not (passages := plan.out / "passages.csv").is_file():
        write_passages(plan.out / TEXT, passages)
    return plan_published_stages(plan)


def serve_demo(plan: DemoPlan, *, port: int, shows_output: bool = True, watch: Watch = ignore) -> None:
    """Serve all models of a finished demo on one page until a signal. Raises UserError if they cannot be served."""
    stage = plan_server_stage(plan, published=bool(second_half(plan)), port=port)
    watch(Notice(f"# {stage.title}\n$ {stage.command}"))
    with contextlib.suppress(KeyboardInterrupt):  # the server gets Ctrl-C as well, and ends in its own order
        run(stage, watch, shows_output=shows_output)


def prepare(plan: DemoPlan, watch: Watch = ignore) -> None:
    """Write the corpus's text, the task's tables and the new sentences.

    The files of the task's dev and test rows are left out of the text: no model has seen the rows that are scored.
    """
    watch(Notice("# the English docstrings of all installed packages, and a task made of them"))
    passages = collect(folders=plan.source or None)
    documents: dict[str, list[str]] = {}
    owners = {}
    for passage in passages:
        if split(passage.file) == "train":
            documents.setdefault(passage.file, []).append(passage.text)
            owners[passage.file] = passage.library
    text = plan.out / TEXT
    text.parent.mkdir(parents=True, exist_ok=True)
    with text.open("w", encoding="utf-8") as stream:
        for file, texts in documents.items():
            document = {"text": "\n".join(texts), "library": owners[file]}
            stream.write(json.dumps(document, ensure_ascii=False) + "\n")
    task = make_task(passages, train=plan.rows)
    for name in ("train", "dev", "test"):
        write_table(plan.out / "task" / f"{name}.csv", getattr(task, name))
    new = [(sentence, library if library in task.labels else "") for library, sentence in SENTENCES]
    # Reversed, so that the first test row of each label wins.
    unseen = {label: row for row, label in reversed(task.test)}
    rows = [row for row in new if row[1]] or new
    rows += [(row, label) for label, row in sorted(unseen.items())]
    write_table(plan.out / "new.csv", rows, header=("text", "meant"))
    libraries = len({passage.library for passage in passages})
    size = text.stat().st_size / 1e6
    summary = (
        f"  {len(passages):,} docstrings of {libraries} libraries; {size:.1f} MB of English in {len(documents):,} "
        "documents, one a source file\n"
        f"  the task: which of {', '.join(task.labels)} does a passage describe, names masked?\n"
        f"  {len(task.train):,} rows to train on; {len(task.dev):,} to choose an epoch by and {len(task.test):,} to "
        "score, from files of which nothing is in the text\n"
        f'  such as "{task.test[0][0]}" ({task.test[0][1]})\n'
    )
    watch(Notice(summary))


def write_passages(text: Path, path: Path) -> None:
    """Write up to PASSAGES paragraphs of the demo's text, chosen by hash, as a table with their libraries."""
    least, most = WORDS
    passages = []
    with text.open(encoding="utf-8") as stream:
        for line in stream:
            document = json.loads(line)
            for part in document["text"].split("\n"):
                if least <= len(part.split()) <= most:
                    passages.append((part, document["library"]))
    passages.sort(key=lambda row: hashlib.sha256(row[0].encode()).digest())
    write_table(path, passages[:PASSAGES], header=("text", "library"))


def run(stage: Stage, watch: Watch = ignore, *, shows_output: bool = True) -> str:
    """Run a command in a child process; return its output if the stage keeps it. `watch` gets it line by line.

    With `shows_output`, other output goes to this process's standard output, with progress on a terminal. Raises
    UserError if the command fails. If this process exits, for example by SIGTERM, the command is terminated as well.
    """
    lines = []
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "osbert", *([] if shows_output else ["--quiet"]), *stage.words],
        text=True,
        stdout=subprocess.PIPE if stage.report_heading or not shows_output else None,
    ) as process:
        try:
            for line in process.stdout or ():
                watch(Notice(line.removesuffix("\n")))
                lines.append(line)
            process.wait()
        # SIGTERM arrives here as SystemExit: pass it on, or the child would outlive the demo.
        except SystemExit:
            process.terminate()
            raise
    if process.returncode:
        raise UserError(
            f"`{stage.command}` ended with status {process.returncode}. All earlier steps are kept: when the cause "
            "is fixed, the same command continues here.",
            code="child-failed",
        )
    return "".join(lines) if stage.report_heading else ""


class DemoRecord:
    """The finished work of a demo: its seconds and outputs, kept in the demo's folder so that it can be resumed."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self.path = path
        self.settings = settings
        self.seconds: dict[str, float] = {}
        self.outputs: dict[str, str] = {}
        if not path.is_file():
            refuse_foreign(path.parent, "a demo", ("text", "task", "new.csv", "passages.csv"))
        else:
            before = json.loads(path.read_text(encoding="utf-8"))
            if changes := difference(before["settings"], settings):
                raise UserError(
                    f"{path.parent} contains a demo with other settings ({'; '.join(changes)}). Remove it, or "
                    "choose another folder with --out.",
                    code="begun-with-other-settings",
                )
            self.seconds, self.outputs = before["seconds"], before["outputs"]

    def do(self, name: str, work: Callable[[], str | None]) -> None:
        """Do a piece of work and record it as done; work that fails is not recorded."""
        started = time.perf_counter()
        output = work()
        self.seconds[name] = time.perf_counter() - started
        if output:
            self.outputs[name] = output
        write_json(self.path, {"settings": self.settings, "seconds": self.seconds, "outputs": self.outputs})
