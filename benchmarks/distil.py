"""A teacher distilled into smaller encoders: score kept, speed gained and size, beside its int8 export.

    python benchmarks/distil.py --data ../shared/data --out distil.jsonl --runs FOLDER [--sets sst2,mrpc,conll2003]
        [--rows 4000] [--texts 12000] [--sides teacher,int8,layers=3,...] [--seeds 0] [--model MODEL] [--small ENCODER]
    python benchmarks/distil.py --out distil.jsonl --table

A run is one line of --out, and runs that are there are not repeated, so that a table can be filled over several days.
The seed draws the training rows, --rows with labels and --texts more without, the same for all sides, and is the seed
of the training. The teacher is MODEL fine-tuned with osbert's defaults, and all else starts from it.

Sides: "teacher"; "int8", its export; settings of `osbert distil` joined by "+", of which "texts" gives the unlabelled
rows and "student=small" an encoder of 4 layers of 256 with the teacher's vocabulary: --small, or random weights.
"labels" in front of them fine-tunes the same student without the teacher; "int8" behind them exports the student.

Score: accuracy, or entities' F1, on at most --dev development rows, with the 95% interval by the bootstrap. Rows a
second: predictions for the first --timed of these rows, the best of three, on as many threads as OMP_NUM_THREADS says;
the teacher is timed before each side, so that a busy machine slows both.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import osbert
from kept_runs import make_missing, read_runs
from osbert.evaluation.bootstrap import score_intervals
from osbert.inference.engine import Engine
from osbert.interop.folder import open_folder
from osbert.interop.hub import minilm
from osbert.interop.huggingface.folders import write_model
from osbert.interop.tokenizers import write_any_tokenizer
from osbert.models.architecture import Architecture
from osbert.models.contract import Backbone, Learner
from osbert.tasks import load
from osbert_lab.distillation.layers import fewer_layers

SMALL = {"layers": 4, "width": 256, "heads": 4}
Rows = list[Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """A side by what it is known by, and what came out of it. `relative`: its speed over the teacher's."""

    set: str
    rows: int
    texts: int
    side: str
    seed: int
    score: float = 0.0
    interval: Sequence[float] = (0.0, 0.0)
    speed: float = 0.0
    relative: float = 0.0
    megabytes: float = 0.0
    seconds: float = 0.0

    @property
    def key(self) -> tuple[Any, ...]:
        """Return what it is known by."""
        return (self.set, self.rows, self.texts, self.side, self.seed)

    @property
    def teaching(self) -> tuple[Any, ...]:
        """Return what has one teacher."""
        return (self.set, self.rows, self.seed)


def sst2(data: Path) -> tuple[str, Rows, Rows]:
    """Return the kind of SST-2 and its training and development rows."""
    train, dev = (
        [line.rsplit("\t", 1) for line in (data / "glue/SST-2" / name).read_text().splitlines()[1:]]
        for name in ("train.tsv", "dev.tsv")
    )
    return "classify", [(text.strip(), label) for text, label in train], [(text.strip(), label) for text, label in dev]


def mrpc(data: Path) -> tuple[str, Rows, Rows]:
    """Return the kind of MRPC, and its rows; every tenth is for development."""
    lines = (data / "glue/MRPC/msr_paraphrase_train.txt").read_text(encoding="utf-8-sig").splitlines()[1:]
    rows = [(one, two, label) for label, _, _, one, two in (line.split("\t") for line in lines)]
    return "classify", [row for place, row in enumerate(rows) if place % 10], rows[::10]


def conll2003(data: Path) -> tuple[str, Rows, Rows]:
    """Return the kind of CoNLL 2003, and its sentences."""
    parts = ((data / "ner/conll2003" / name).read_text().split("\n\n") for name in ("eng.train", "eng.testa"))
    train, dev = ([tagged(part) for part in own if part.strip() and "-DOCSTART-" not in part] for own in parts)
    return "tag", train, dev


def tagged(sentence: str) -> dict[str, list[str]]:
    """Return the words and the tags of a sentence in columns."""
    cells = [line.split() for line in sentence.strip().splitlines()]
    return {"words": [line[0] for line in cells], "tags": [line[-1] for line in cells]}


SETS = {"sst2": sst2, "mrpc": mrpc, "conll2003": conll2003}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bench:
    """A set's rows, drawn by a seed, and the folders of its runs."""

    options: argparse.Namespace
    wanted: Measured

    def splits(self) -> tuple[str, dict[str, Rows], Rows]:
        """Return the kind, the labelled rows by split, and the rows of which the labels are not read."""
        kind, train, dev = SETS[self.wanted.set](self.options.data)
        order = np.random.default_rng(self.wanted.seed).permutation(len(train)).tolist()
        rows = [train[place] for place in order]
        held = [dev[place] for place in np.random.default_rng(0).permutation(len(dev))[: self.options.dev].tolist()]
        more = rows[self.wanted.rows : self.wanted.rows + self.wanted.texts]
        bare = [row["words"] if kind == "tag" else row[:-1] for row in more]
        unlabelled = [{"words": row} if kind == "tag" else dict(zip(("text", "pair"), row)) for row in bare]
        return kind, {"train": rows[: self.wanted.rows], "dev": held}, unlabelled

    @property
    def teacher(self) -> Path:
        """Return the teacher's folder, fine-tuned unless it is there."""
        kind, data, _ = self.splits()
        out = self.options.runs / "-".join(map(str, self.wanted.teaching))
        osbert.finetune(kind, model=self.options.model, data=data, out=out, seed=self.wanted.seed, length=128)
        return out

    def made(self) -> Path:
        """Return the folder of the side's model."""
        names = self.wanted.side.split("+")
        float32 = [name for name in names if name != "int8"]
        folder = self.teacher if float32 in ([], ["teacher"]) else self.student(float32)
        if float32 == names:
            return folder
        out = self.options.runs / "int8"
        shutil.rmtree(out, ignore_errors=True)
        osbert.export(folder, out=out, int8=True, unchecked=True)
        return out

    def student(self, names: Sequence[str]) -> Path:
        """Return the folder of a student, taught unless it is there."""
        kind, data, texts = self.splits()
        teacher = self.teacher
        out = self.options.runs / "-".join(map(str, (*self.wanted.teaching, *names))).replace("=", "-")
        parts = dict(part.split("=") for part in names if "=" in part)
        settings: dict[str, Any] = {name: json.loads(value) for name, value in parts.items() if name != "student"}
        settings |= {"seed": self.wanted.seed}
        if "student" in parts:
            settings["student"] = self.small()
        if "labels" in names:
            model = settings.pop("student", None) or self.cut(settings.pop("layers"))
            osbert.finetune(kind, model=model, data=data, out=out, length=128, **settings)
        else:
            more = {"texts": texts} if "texts" in names else {}
            osbert.distil(teacher, data=data, out=out, **more, **settings)
        return out

    def small(self) -> Path:
        """Return the folder of the small encoder."""
        if self.options.small:
            return Path(self.options.small)
        source = open_folder(self.options.model)
        torch.manual_seed(self.wanted.seed)
        sizes = Architecture(**SMALL, vocabulary=source.architecture.vocabulary, length=source.architecture.length)
        return self.encoder(self.options.runs / "small", sizes.build())

    def cut(self, layers: int) -> Path:
        """Return the folder of some layers of the model that the teacher was fine-tuned from."""
        backbone = fewer_layers(open_folder(self.options.model).backbone, layers)
        return self.encoder(self.options.runs / f"layers-{layers}", backbone)

    def encoder(self, folder: Path, backbone: Backbone) -> Path:
        """Write an encoder with the tokenizer of the model."""
        sizes = backbone.architecture
        write_model(Learner(backbone, {}), folder)
        tokenizer = open_folder(self.options.model).tokenizer
        write_any_tokenizer(tokenizer, folder, length=sizes.length, segments=sizes.segments)
        return folder

    def measured(self) -> Measured:
        """Make the side, and measure it beside the teacher."""
        started = time.perf_counter()
        folder = self.made()
        seconds = time.perf_counter() - started
        engine, teacher = osbert.load(folder, verify=False), osbert.load(self.teacher)
        task = engine.fine_tuned
        _, data, _ = self.splits()
        _, records = load(task.source.switch_data(tables_of(data), {}), ("dev",), fit=False)
        found = engine.predict_records(records["dev"])
        interval = score_intervals(task, found, records["dev"]).get(task.criterion)
        timed = records["dev"][: self.options.timed]
        theirs, own = speed(teacher, timed), speed(engine, timed)
        weights = [path for name in ("model.safetensors", "model.onnx*") for path in folder.glob(name)]
        return dataclasses.replace(
            self.wanted,
            score=task.metrics(found, records["dev"])[task.criterion],
            interval=(interval.low, interval.high) if interval else (0.0, 0.0),
            speed=round(own, 1),
            relative=round(own / theirs, 2),
            megabytes=round(sum(path.stat().st_size for path in weights) / 1e6, 1),
            seconds=round(seconds, 1),
        )


def tables_of(data: dict[str, Rows]) -> Any:
    """Return the rows as tables."""
    from osbert.reading.memory import tables

    return tables(data)


def speed(engine: Engine, records: Sequence[Any]) -> float:
    """Return the predictions a second, the best of three."""
    best = 0.0
    for _ in range(3):
        started = time.perf_counter()
        engine.predict_records(records)
        best = max(best, len(records) / (time.perf_counter() - started))
    return best


def table(runs: Sequence[Measured]) -> Iterator[str]:
    """Yield the lines of a table of one set of runs: a row a side, and which to take when."""
    yield "| set | rows + texts | side | score (95% interval) | kept | rows/s | speed | MB | take it |"
    yield "|---" * 9 + "|"
    teachers = {run.teaching: run for run in runs if run.side == "teacher"}
    for run in runs:
        teacher = teachers.get(run.teaching)
        kept = f"{run.score / teacher.score:.1%}" if teacher and teacher.score else ""
        low, high = (100 * bound for bound in run.interval)
        cells = (run.set, f"{run.rows:,} + {run.texts:,}" if "texts" in run.side else f"{run.rows:,}", f"`{run.side}`")
        said = advice(run, [one for one in runs if one.teaching == run.teaching])
        score = f"{100 * run.score:.1f} ({low:.1f} to {high:.1f})"
        shown = (score, kept, f"{run.speed:,.0f}", f"{run.relative:.2f}", f"{run.megabytes:.0f}", said)
        yield f"| {' | '.join((*cells, *shown))} |"


def advice(run: Measured, others: Sequence[Measured]) -> str:
    """Return when a side is the one to take: that none other is at once as good, as fast and as small."""
    better = [
        one
        for one in others
        if one is not run
        and one.score >= run.score
        and one.relative >= run.relative
        and one.megabytes <= run.megabytes
        and (one.score, one.relative, -one.megabytes) != (run.score, run.relative, -run.megabytes)
    ]
    if better:
        return f"no: `{max(better, key=lambda one: one.score).side}` is better in all"
    best = {
        "the best score": max(others, key=lambda one: one.score),
        "the fastest": max(others, key=lambda one: one.relative),
        "the smallest": min(others, key=lambda one: one.megabytes),
    }
    return ", ".join(name for name, one in best.items() if one is run) or "in between"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--model", type=Path, default=minilm())
    parser.add_argument("--small", help="the encoder of student=small, with the vocabulary of the model")
    parser.add_argument("--runs", type=Path, default=Path("distil-runs"), help="the folder of the runs")
    parser.add_argument("--sets", default="sst2,mrpc,conll2003")
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--texts", type=int, default=12000)
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--dev", type=int, default=1000)
    parser.add_argument("--timed", type=int, default=400)
    parser.add_argument(
        "--sides",
        default="teacher,int8,labels+layers=3+learning_rate=1e-4,layers=3,layers=3+int8,layers=3+states=1,layers=3+texts,"
        "student=small,student=small+texts",
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--table", action="store_true", help="print the table of the runs that are there, make none")
    options = parser.parse_args()
    wanted = itertools.product(options.seeds.split(","), options.sets.split(","), options.sides.split(","))
    runs = (
        Measured(set=name, rows=options.rows, texts=options.texts, side=side, seed=int(seed))
        for seed, name, side in ([] if options.table else wanted)
    )
    make_missing(runs, options.out, Measured, lambda run: Bench(options=options, wanted=run).measured())
    for line in table(read_runs(options.out, Measured)):
        print(line)


if __name__ == "__main__":
    main()
