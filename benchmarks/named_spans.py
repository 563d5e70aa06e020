"""Spans by name: MiniLM learns from tagged data sets, and is asked for the types of a domain that it has not seen.

    OMP_NUM_THREADS=1 python benchmarks/named_spans.py --data ../shared/data --out FOLDER [--hold ai] [--rows 1000]

Trains on CoNLL-2003 and WNUT-17 (`--rows` texts of each at most, drawn with seed 0) and the domains of CrossNER but for
`--hold`, by `osbert finetune spans` with `--epochs` and `--rate`, scored once. Prints precision, recall and F1 (words
and type must be right) on CoNLL's development part, and on that of the domain held out: of all its types, and of those
whose name training did not have. Then few shots: texts of the domain's training part are drawn until there are
`--shots` of each type, and the run is fine-tuned on them for `--few-epochs`, and so are MiniLM and a tagger.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import re
import resource
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import osbert
from osbert.evaluation.score import predict
from osbert.inference.engine import Engine
from osbert.interop.hub import minilm
from osbert.reading.tagged.schemes import entity_scores
from osbert.tasks import load as load_task

DEVELOPMENT = 100
"""Texts of each set that the threshold is chosen on."""
SETS = {
    "conll2003": ("conll2003/eng.train", "conll2003/eng.testa"),
    "wnut17": ("wnut17/wnut17train.conll", "wnut17/emerging.dev.conll"),
} | {
    domain: (f"crossner/{domain}/train.txt", f"crossner/{domain}/dev.txt")
    for domain in ("ai", "literature", "politics")
}


def read_sentences(path: Path) -> list[str]:
    """Return the sentences of a file of columns, its lines each, in a random order that is always the same."""
    blocks = re.split(r"\n\s*\n", path.read_text(encoding="utf-8"))
    sentences = [block.strip("\n") for block in blocks if block.strip() and not block.startswith("-DOCSTART-")]
    random.Random(0).shuffle(sentences)
    return sentences


def write_sentences(path: Path, sentences: Sequence[str]) -> Path:
    """Write a file of columns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n\n".join(sentences) + "\n", encoding="utf-8")
    return path


def draw_shots(sentences: Sequence[str], shots: int) -> list[str]:
    """Return the first sentences that bring each type to `shots` sentences, or to all that have it."""
    counts: dict[str, int] = {}
    drawn = []
    for sentence in sentences:
        types = {tag[2:] for tag in re.findall(r"\bB-\S+", sentence)}
        if any(counts.get(type_, 0) < shots for type_ in types):
            drawn.append(sentence)
            for type_ in types:
                counts[type_] = counts.get(type_, 0) + 1
    return drawn


def show(what: str, model: Engine, path: Path, known: Sequence[str] = ()) -> None:
    """Print the scores on a file; of all types, and of those that are not `known`."""
    task = dataclasses.replace(model.fine_tuned, data=str(path), dev="")  # type: ignore[call-arg]
    _, records = load_task(task, ("all",))
    predictions = [found.comparable for found in predict(model.learner, task, records["all"], model.packer)]
    true = [record.label for record in records["all"]]
    types = sorted({span.type for label in true for span in label})
    for name, chosen in (("all", types), ("unseen", [type_ for type_ in types if type_ not in known])):
        if known or name == "all":
            pairs = [
                [[span for span in spans if span.type in chosen] for spans in side] for side in (predictions, true)
            ]
            scores = entity_scores(pairs[0], pairs[1], chosen)
            figures = ", ".join(f"{key} {100 * scores[key]:.1f}" for key in ("precision", "recall", "f1", "macro_f1"))
            print(f"{what}, {name} {len(chosen)} types of {len(true):,} texts: {figures}", flush=True)


def finetune(task: str, model: Path, data: Path, out: Path, **settings: Any) -> Engine:
    """Return the model of a run, and print the seconds of processor time that it took."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    run = osbert.finetune(task, model=model, data=data, out=out, **settings)
    print(f"{out.name}: {resource.getrusage(resource.RUSAGE_SELF).ru_utime - before:.0f} s", flush=True)
    return run.model


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder with ner/")
    parser.add_argument("--out", type=Path, required=True, help="folder for data and runs")
    parser.add_argument("--hold", default="ai", help="the domain that training does not see")
    parser.add_argument("--rows", type=int, default=1000, help="most training texts of a set")
    parser.add_argument("--epochs", type=int, default=7)
    parser.add_argument("--rate", type=float, default=3e-4, help="learning rate")
    parser.add_argument("--shots", type=int, default=10, help="texts of each type, 0 for no few shots")
    parser.add_argument("--few-epochs", type=int, default=10)
    given = parser.parse_args()
    out = given.out
    files = {name: [given.data / "ner" / path for path in paths] for name, paths in SETS.items()}
    held, held_dev = files.pop(given.hold)
    for name, (train, dev) in files.items():
        write_sentences(out / "sets" / name / "train.txt", read_sentences(train)[: given.rows])
        write_sentences(out / "sets" / name / "dev.txt", read_sentences(dev)[:DEVELOPMENT])
    schedule = {"epochs": given.epochs, "evaluate_every": f"{given.epochs} epochs"}  # scored once, at the end
    model = finetune("spans", minilm(), out / "sets", out / "spans", learning_rate=given.rate, **schedule)
    known = model.fine_tuned.classes
    show("CoNLL-2003", model, files["conll2003"][1])
    show(given.hold, model, held_dev, known)
    if given.shots:
        few = write_sentences(out / "few.txt", draw_shots(read_sentences(held), given.shots))
        for name, task, start in (
            ("few", "spans", out / "spans"),
            ("few-new", "spans", minilm()),
            ("tagger", "tag", minilm()),
        ):
            show(name, finetune(task, start, few, out / name, epochs=given.few_epochs), held_dev)


if __name__ == "__main__":
    main()
