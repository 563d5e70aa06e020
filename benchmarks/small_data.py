"""Fine-tuning on 16 to 10,000 rows: osbert's choice, candidates for it, transformers' defaults, frozen vectors.

    python benchmarks/small_data.py --data ../shared/data --out small.jsonl [--sets sst2,mrpc,...] [--rows 16,64,200]
        [--seeds 0,1,2] [--sides default,trainer,logistic,batch=8+epochs=10] [--model MODEL --name own]
        [--dev 400] [--apart] [--classes 5,20,77] [--flipped 0,0.2]
    python benchmarks/small_data.py --out small.jsonl --table [--apart]

A run is one line of --out, and runs that are there are not repeated, so that a table can be filled over several days.
The seed draws the training rows, the same for all sides, and is the seed of the training; the development rows, at most
--dev, are the same for all. With --table the means over seeds are printed with their intervals (Student's t, 95%).

Sides: "default": osbert.finetune without any setting but the seed. Any other settings: `batch=8+learning-rate=1e-4`,
`settings=paper`. "trainer": transformers' model with the defaults of its Trainer (batch 8, 5e-5, 3 epochs, linear,
without warm-up and decay), as it is after the last epoch. "logistic": a logistic (or ridge) regression with
scikit-learn's own settings on the mean vectors of the frozen encoder, of length 1; of a pair u, v on u, v, |u - v|, uv.

From 200 development rows on osbert keeps its best epoch by them, and the score is taken on them; the others choose
nothing by them.
With --flipped 0.2 a fifth of the training rows, those that osbert holds out among them, have a wrong label.
With --classes the seed also draws so many labels, and --rows are those of each label: banking77 (77), articles (150 of
WikiText-2, a sentence each), genres (the five of EWT). Many classes:

    python benchmarks/small_data.py --data ../shared/data --out classes.jsonl --apart --seeds 0,1,2,3,4 \
        --sets banking77,articles,genres --classes 2,5,20,77,150 --rows 2,8,30,100 \
        --sides default,logistic,few-shot=linear,few-shot=none

With --apart each side has the drawn rows and nothing else, as a user without a development file: osbert holds out some
of them itself, the others train on all. The development rows are then test rows, which no choice sees.

The score is the task's own: accuracy, F1 (MRPC, QQP), Matthews (CoLA), Spearman's correlation (STS-B), entities' F1
(WNUT, CoNLL), F1 of the words (SQuAD), micro F1 (conll2003-kinds).
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import itertools
import lzma
import re
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import finetune_theirs
import osbert
from finetune import CASES, Case, listed
from kept_runs import make_missing, read_runs
from osbert.interop.hub import minilm
from osbert.options import parse_settings
from osbert.runs.finetune.defaults import learn_from_all
from osbert.runs.finetune.finetune import finetune_plan
from osbert.runs.finetune.plan import FinetunePlan, read_plan, schema
from osbert.runs.finetune.records import SPLITS, Splits, read_tasks
from osbert.tasks import Prediction, Record, Task, load
from osbert_lab.study.summaries import summarise

NAMES = ("sst2", "mrpc", "cola", "rte", "stsb", "storycloze", "wnut17", "conll2003", "squad1")
SETS = {name: CASES[name] for name in NAMES}
SETS |= {name: Case(task=name, folder=f"glue/{name.upper()}") for name in ("mnli", "qqp")}
SETS["chnsenticorp"] = Case(
    task="classify", folder="chnsenticorp", settings=("--text", "column 1", "--label", "column 2")
)
SETS |= {name: Case(task="classify", folder="", length=64) for name in ("banking77", "articles", "genres")}
SETS["conll2003-kinds"] = Case(task="multilabel", folder="ner/conll2003")
"""Which kinds of entities a sentence of CoNLL-2003 has: none, one or several of four."""
TRAINER = (
    *("--batch", "8", "--epochs", "3", "--learning-rate", "5e-5", "--warmup", "0", "--weight-decay", "0"),
    *("--optimizer.epsilon", "1e-8"),
)
UNLIKE = {
    "trainer": ("conll2003-kinds",),
    "logistic": ("storycloze", "wnut17", "conll2003", "conll2003-kinds", "squad1"),
    "few-shot=linear": ("storycloze", "wnut17", "conll2003", "squad1"),
    "few-shot=contrastive": ("storycloze", "wnut17", "conll2003", "conll2003-kinds", "squad1", "stsb"),
}
"""The sets that a side is not for: those without a vector, or a class, for each row."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """A run by what it is known by, and what came out of it."""

    model: str
    set: str
    rows: int
    side: str
    seed: int
    apart: bool = False
    classes: int = 0
    """Number of labels that the seed draws; `rows` are then those of each label. 0: all labels, and rows of any."""
    flipped: float = 0.0
    """Fraction of the training rows that have a wrong label, drawn from the others by the seed."""
    score: float = 0.0
    seconds: float = 0.0
    chosen: str = ""

    @property
    def key(self) -> tuple[Any, ...]:
        """Return what it is known by."""
        return (self.model, self.set, self.rows, self.side, self.seed, self.apart, self.classes, self.flipped)


def measured(wanted: Measured, *, model: Path, data: Path, most: int) -> Measured:
    """Make one run, in a folder that is removed afterwards."""
    started = time.perf_counter()
    chosen = ""
    if wanted.side == "logistic":
        task, splits = records(wanted, data, most)
        score = logistic(task, splits, model)[task.criterion]
    elif wanted.side == "trainer":
        plan, splits = planned(wanted, TRAINER, model=model, data=data, most=most)
        score = finetune_theirs.train(plan, splits, side="best", last_only=True).scores[-1] / 100
    else:
        settings = () if wanted.side == "default" else wanted.side.split("+")
        words = [word for name, _, value in (part.partition("=") for part in settings) for word in (f"--{name}", value)]
        plan, splits = planned(wanted, words, model=model, data=data, most=most)
        with tempfile.TemporaryDirectory() as folder:
            test = splits["dev"]
            if wanted.apart and (wanted.set in SINGLE or wanted.set in ("sst2", "cola", "chnsenticorp")):
                plan, splits = plan_of_table(wanted, words, splits["train"], model=model)
            elif wanted.apart:
                plan, splits = held_out(plan, splits["train"])
            run = finetune_plan(plan, [splits], Path(folder) / "run")
            facts = osbert.recipe.read(run.folder / "recipe.toml")
            training = facts["training"] | facts["optimizer"]
            chosen = " ".join(
                f"{training[name]}" for name in ("few_shot", "batch", "epochs", "learning_rate") if name in training
            )
            found = run.model.evaluate(run.model.fine_tuned, test) if wanted.apart else run
            score = found.metrics[loaded(wanted.set, data)[0].criterion]
    return dataclasses.replace(wanted, score=score, seconds=round(time.perf_counter() - started, 2), chosen=chosen)


@cache
def loaded(name: str, data: Path) -> tuple[Task, dict[str, list[Record]]]:
    """Return the task of a set with all its records."""
    case = SETS[name]
    words = ["--length", str(case.length), *case.settings]
    plan = read_plan(case.task, parse_settings(words, schema(case.task)), model=minilm(), data=data_of(name, data))
    return load(plan.task, SPLITS)


@cache
def data_of(name: str, data: Path) -> Any:
    """Return the folder of a set, or its rows."""
    if name in SINGLE:
        return split_rows(SINGLE[name](data))
    if SETS[name].task != "multilabel":
        return data / SETS[name].folder
    _, every = loaded("conll2003", data)
    return {
        split: [{"text": one.texts[0], "labels": sorted({span.type for span in one.label})} for one in own]
        for split, own in every.items()
    }


def banking(data: Path) -> Iterator[tuple[str, str]]:
    """Yield questions to a bank with their intents."""
    with (data / "banking77" / "train.csv").open(encoding="utf-8", newline="") as lines:
        yield from ((line["text"], line["category"]) for line in csv.DictReader(lines))


def articles(data: Path) -> Iterator[tuple[str, str]]:
    """Yield the first twelve words of sentences of WikiText-2 with the titles of their articles."""
    title = ""
    with lzma.open(data / "text" / "wikitext2-train.txt.xz", "rt", encoding="utf-8") as lines:
        for line in map(str.strip, lines):
            if heading := re.fullmatch("= ([^=].*?) =", line):
                title = heading[1]
            elif line and title and not line.startswith("="):
                sentences = [sentence.split() for sentence in re.split(r"(?<= \.) ", line)]
                yield from ((" ".join(words[:12]), title) for words in sentences if len(words) >= 8)


def genres(data: Path) -> Iterator[tuple[str, str]]:
    """Yield sentences of EWT with their genres, from five words on."""
    genre = ""
    for path in sorted((data / "ud-english-ewt").glob("*train*")):
        with (lzma.open if path.suffix == ".xz" else open)(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                name, _, value = line.partition(" = ")
                if name == "# sent_id":
                    genre = value.partition("-")[0]
                elif name == "# text" and len(value.split()) >= 5:
                    yield value.strip(), genre


SINGLE = {"banking77": banking, "articles": articles, "genres": genres}
LABELS = {"banking77": 77, "articles": 150, "genres": 5}
"""Number of labels of these sets."""


def split_rows(rows: Iterable[tuple[str, str]]) -> dict[str, list[tuple[str, str]]]:
    """Return the rows of the most frequent labels, without repeated texts; every fifth of a label is for the score."""
    texts: dict[str, list[str]] = {}
    for text, label in dict(rows).items():
        texts.setdefault(label, []).append(text)
    most = sorted(texts, key=lambda label: (-len(texts[label]), label))[: max(LABELS.values())]
    return {
        split: [
            (text, label)
            for label in most
            for number, text in enumerate(texts[label])
            if (number % 5 == 0) == (split == "dev")
        ]
        for split in SPLITS
    }


def draw_classes(every: Mapping[str, Sequence[Record]], wanted: Measured, most: int) -> dict[str, list[Record]]:
    """Return `wanted.rows` training rows of each label that the seed draws, and up to `most` other rows of these."""
    labels = sorted({row.label for row in every["train"]})
    chosen = [labels[place] for place in np.random.default_rng(wanted.seed).permutation(len(labels))[: wanted.classes]]
    train = [
        row
        for label in sorted(chosen)
        for row in drawn([row for row in every["train"] if row.label == label], wanted.rows, wanted.seed)
    ]
    dev = [row for row in every["dev"] if row.label in {*chosen}]
    return {"train": drawn(train, len(train), wanted.seed), "dev": drawn(dev, most, 0)}


def records(wanted: Measured, data: Path, most: int) -> tuple[Task, dict[str, list[Record]]]:
    """Return the task, fitted to the rows that the seed draws, with these and the development rows."""
    task, every = loaded(wanted.set, data)
    if wanted.classes:
        splits = draw_classes(every, wanted, most)
        task = dataclasses.replace(task, labels=())
    else:
        train = [record for record in every["train"] if not task.lacks(record)]
        splits = {"train": drawn(train, wanted.rows, wanted.seed), "dev": drawn(every["dev"], most, 0)}
    splits["train"] = flip_labels(splits["train"], wanted.flipped, wanted.seed)
    return task.fit(splits["train"]), splits


def flip_labels(rows: Sequence[Record], part: float, seed: int) -> list[Record]:
    """Return the rows, a part of them with another label, each other one as likely."""
    labels, rng = sorted({row.label for row in rows}) if part else [], np.random.default_rng(1000 + seed)
    changed = list(rows)
    for place in rng.choice(len(rows), round(len(rows) * part), replace=False).tolist():
        others = [label for label in labels if label != rows[place].label]
        changed[place] = dataclasses.replace(rows[place], label=others[rng.integers(len(others))])
    return changed


def drawn(rows: Sequence[Record], count: int, seed: int) -> list[Record]:
    """Return so many of the rows, or all, numbered anew."""
    places = np.random.default_rng(seed).permutation(len(rows))[:count].tolist()
    return [dataclasses.replace(rows[place], number=number) for number, place in enumerate(places)]


def planned(
    wanted: Measured, words: Sequence[str], *, model: Path, data: Path, most: int
) -> tuple[FinetunePlan, dict[str, list[Record]]]:
    """Return the plan of a run of osbert's with its records."""
    case = SETS[wanted.set]
    words = [*words, "--length", str(case.length), "--seed", str(wanted.seed), "--device", "cpu", *case.settings]
    plan = read_plan(case.task, parse_settings(words, schema(case.task)), model=model, data=data_of(wanted.set, data))
    _, splits = records(wanted, data, most)
    # Not the task of `records`: the plan's own has the settings of the side, such as features=mix.
    every = splits["train"] if wanted.classes else loaded(wanted.set, data)[1]["train"]
    task = plan.task.fit(every).fit(splits["train"])
    return dataclasses.replace(plan, tasks=(task,)), splits


def plan_of_table(
    wanted: Measured, words: Sequence[str], rows: Sequence[Record], *, model: Path
) -> tuple[FinetunePlan, Splits]:
    """Return the plan of a run on a table of single texts alone, and the parts that osbert divides them into."""
    length = ("--length", str(SETS[wanted.set].length))
    settings = parse_settings([*words, *length, "--seed", str(wanted.seed), "--device", "cpu"], schema("classify"))
    data = [{"text": row.texts[0], "label": row.label} for row in rows]
    plan, records = read_tasks(["classify"], settings, model=model, data=data)
    return plan, learn_from_all(plan, records, Path("none"))[0]


def held_out(plan: FinetunePlan, rows: Sequence[Record]) -> tuple[FinetunePlan, dict[str, list[Record]]]:
    """Return the plan of a run that has these rows alone, and the parts that osbert divides them into."""
    held = plan.task.source.mark_held_out(rows)
    parts = {split: [row for row, out in zip(rows, held, strict=True) if out == (split == "dev")] for split in SPLITS}
    splits = {
        split: [dataclasses.replace(row, number=number) for number, row in enumerate(own)]
        for split, own in parts.items()
    }
    return dataclasses.replace(plan, tasks=(plan.task.fit(splits["train"]),)), splits


@cache
def encoder(model: Path) -> Any:
    """Return the opened encoder."""
    return osbert.load(str(model))


@cache
def known(model: Path) -> dict[str, np.ndarray]:
    """Return the vectors that were computed before, by their texts."""
    return {}


def vectors(model: Path, texts: Sequence[str]) -> np.ndarray:
    """Return the mean vectors of texts, of length 1."""
    found = known(model)
    if missing := [text for text in dict.fromkeys(texts) if text not in found]:
        made = np.asarray(encoder(model).embed(missing, pooling="mean"), np.float64)
        found.update(zip(missing, made / np.linalg.norm(made, axis=1, keepdims=True), strict=True))
    return np.stack([found[text] for text in texts])


def logistic(task: Task, splits: Mapping[str, Sequence[Record]], model: Path) -> dict[str, float]:
    """Return the metrics of a regression by scikit-learn on frozen vectors."""
    from sklearn.linear_model import LogisticRegression, Ridge

    rows = {split: features(model, [record.texts for record in own]) for split, own in splits.items()}
    labels = [record.label for record in splits["train"]]
    regression = LogisticRegression(max_iter=2000) if task.classes else Ridge()
    if len(set(labels)) > 1:
        said = regression.fit(rows["train"], labels).predict(rows["dev"]).tolist()
    else:
        said = labels[:1] * len(rows["dev"])
    return task.metrics([Prediction(value=value) for value in said], splits["dev"])


def features(model: Path, rows: Sequence[Sequence[str]]) -> np.ndarray:
    """Return what the regression reads of texts, or of pairs, (n, D)."""
    found = [vectors(model, texts) for texts in zip(*rows, strict=True)]
    if len(found) == 1:
        return found[0]
    return np.concatenate([*found, abs(found[0] - found[1]), found[0] * found[1]], axis=1)


def table(runs: Sequence[Measured]) -> Iterator[str]:
    """Yield the lines of a table: a row for each set and number of rows, a column for each side."""
    sides = list(dict.fromkeys(run.side for run in runs))
    yield f"| model | set | classes | rows | flipped | {' | '.join(sides)} |"
    yield "|---" * (len(sides) + 5) + "|"
    for key in dict.fromkeys((run.model, run.set, run.classes, run.rows, run.flipped) for run in runs):
        own = [run for run in runs if (run.model, run.set, run.classes, run.rows, run.flipped) == key]
        cells = [cell([run for run in own if run.side == side]) for side in sides]
        yield f"| {' | '.join(map(str, key))} | {' | '.join(cells)} |"


def cell(runs: Sequence[Measured]) -> str:
    """Return the mean of some runs in points, with half of its interval, their number and mean seconds."""
    if not runs:
        return ""
    found = summarise([100 * run.score for run in runs])
    low, high = found.interval
    half = "" if len(runs) < 3 else f" ± {(high - low) / 2:.1f}"
    return f"{found.mean:.1f}{half} ({len(runs)}; {sum(run.seconds for run in runs) / len(runs):.0f} s)"


def numbers(text: str) -> list[int]:
    """Return the numbers in a list with commas."""
    return [int(part) for part in text.split(",")]


def fractions(text: str) -> list[float]:
    """Return the fractions in a list with commas."""
    return [float(part) for part in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--model", type=Path, default=minilm())
    parser.add_argument("--name", default="minilm", help="what the table calls the model")
    parser.add_argument("--sets", default="sst2,mrpc,cola,rte,stsb", help="several with commas between")
    parser.add_argument("--rows", type=numbers, default=[16, 64, 200, 1000])
    parser.add_argument("--classes", type=numbers, default=[0], help="labels drawn; --rows are then those of each")
    parser.add_argument("--flipped", type=fractions, default=[0.0], help="parts of the training rows with wrong labels")
    parser.add_argument("--seeds", type=numbers, default=[0, 1, 2])
    parser.add_argument("--sides", default="default,trainer,logistic", help="several with commas between")
    parser.add_argument("--dev", type=int, default=400, help="most development rows")
    parser.add_argument("--apart", action="store_true", help="score on rows that no choice sees")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--table", action="store_true", help="print the table of the runs that are there, make none")
    parser.add_argument("--pause", type=Path, help="no run begins while this file is there")
    options = parser.parse_args()
    sets = listed(options.sets, list(SETS))
    wanted = itertools.product(
        options.classes, options.rows, options.seeds, sets, options.flipped, options.sides.split(",")
    )
    runs = (
        Measured(
            model=options.name,
            set=name,
            classes=classes,
            rows=rows,
            side=side,
            seed=seed,
            apart=options.apart,
            flipped=flipped,
        )
        for classes, rows, seed, name, flipped, side in ([] if options.table else wanted)
        if name not in UNLIKE.get(side, ()) and classes <= LABELS.get(name, 0)
    )

    def make(run: Measured) -> Measured:
        while options.pause and options.pause.exists():
            time.sleep(1)
        return measured(run, model=options.model, data=options.data, most=options.dev)

    make_missing(runs, options.out, Measured, make)
    for line in table([run for run in read_runs(options.out, Measured) if run.apart == options.apart]):
        print(line)


if __name__ == "__main__":
    main()
