"""Models to measure a server with, and requests for them; random weights, since speed does not ask for more."""

from __future__ import annotations

import json
import random
from pathlib import Path

from osbert import recipe
from osbert.interop.huggingface.folders import write_model
from osbert.interop.tokenizers import write_tokenizer
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert.tasks import Task
from osbert.tasks.kinds.classify import Classify
from osbert.tasks.kinds.regress import Regress
from osbert.tasks.kinds.span import Span
from osbert.tasks.kinds.tag import Tag
from osbert.text.tokenizer import SPECIALS, Tokenizer
from osbert_lab.multiple_choice.choose import Choose

PIECES = 30_522
"""Pieces of a vocabulary, as BERT's."""


def make_run(folder: Path, recipe_name: str) -> Path:
    """Write a classifier of a recipe's size into a folder: speed does not ask whether the weights have learnt."""
    sizes = recipe.build(Architecture, recipe.read(recipe_name)["model"] | {"vocabulary": PIECES}, where=recipe_name)
    pieces = [f"w{number}" for number in range(sizes.vocabulary - len(SPECIALS))]
    task = Classify(labels=("neg", "pos"), text="text", length=min(sizes.length, 128))
    return _write(folder, sizes, Tokenizer([*SPECIALS, *pieces]), task)


def make_kinds(folder: Path) -> list[Path]:
    """Write tiny models of every kind, named for it."""
    pieces = [*"abcdefghijklmnopqrstuvwxyz.,!?", *(f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"), "film"]
    tokenizer = Tokenizer([*SPECIALS, *pieces])
    sizes = Architecture(layers=1, heads=2, width=16, vocabulary=len(tokenizer), length=64)
    tasks = {
        "classify": Classify(labels=("neg", "pos"), text="text"),
        "pairs": Classify(labels=("neg", "pos"), text="one", pair="two", long="window"),
        "regress": Regress(text="text"),
        "choose": Choose(),
        "span": Span(unanswerable="yes"),
        "tag": Tag(types=("PER", "WORK"), decoder="crf"),
        "masks": None,
    }
    return [_write(folder / name, sizes, tokenizer, task) for name, task in tasks.items()]


def _write(folder: Path, sizes: Architecture, tokenizer: Tokenizer, task: Task | None) -> Path:
    backbone = sizes.build()
    name = task.name if task else "mlm"
    head = task.head(backbone) if task else MaskedLanguageHead(backbone)
    write_model(Learner(backbone, {name: head}), folder, **(task.export_metadata() if task else {}))
    write_tokenizer(tokenizer, folder, length=sizes.length)
    if task:
        (folder / "recipe.toml").write_text(recipe.dump({"task": name, name: recipe.as_table(task)}))
    return folder


def make_bodies(path: Path, run: Path, texts: Path | None, *, count: int = 2000) -> Path:
    """Write requests of one text each: lines of a file, or words of the run's vocabulary, 5 to 45 a text."""
    if texts:
        lines = [line.strip() for line in texts.read_text(encoding="utf-8").splitlines() if line.strip()][:count]
    else:
        words = (run / "vocab.txt").read_text(encoding="utf-8").split()[5:]
        rng = random.Random(1)
        lines = [" ".join(rng.choices(words, k=rng.randint(5, 45))) for _ in range(count)]
    path.write_text("".join(json.dumps({"texts": [line]}) + "\n" for line in lines), encoding="utf-8")
    return path
