"""What adapting a published encoder does to its vectors: a linear probe before and after `osbert adapt`.

    OMP_NUM_THREADS=1 python benchmarks/adapt_probe.py --data ../shared/data --model MINILM --out build/adapt \
        [--side mlm|same_text|both] [--minutes 10] [--texts 5000] [--rows 1000]

The encoder is adapted to some unlabelled film reviews. The probe is a logistic regression on vectors of labelled ones,
as `osbert embed` makes them, standardised, C = 0.01; 5 folds, drawn by 5 seeds. Of each row the share of seeds in which
it is predicted rightly is kept, and the difference of two models comes with a 95% interval over rows. What vectors are
for besides is Spearman's correlation of their cosines with the scores of STS-B's development pairs.

    mlm        masked pieces, with a new head that learns first: what `osbert adapt` does without settings
    same_text  the same text twice, unsupervised SimCSE
    both       masked pieces at a tenth of the weight beside the same text twice
"""

from __future__ import annotations

import argparse
import csv
import json
import lzma
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import osbert

SIDES: dict[str, dict[str, Any]] = {
    "mlm": {},
    "same_text": {"objectives": ["same_text"]},
    "both": {"objectives": ["mlm", "same_text"], "mlm.weight": 0.1},
}
SEEDS, FOLDS = 5, 5


def main() -> None:
    """Adapt, probe, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--side", choices=SIDES, default="mlm")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--texts", type=int, default=5000)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--settings", type=json.loads, default={}, help="more settings of the recipe, as JSON")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    labelled = [*objects(given.data / "text/reviews-labelled-train.jsonl.xz", given.rows)]
    before = probe(given.model, labelled, given.out / "before.npy")
    show("before", before, before)
    print(f"STS-B: {correlation(given.model, given.data):.3f}", flush=True)
    texts = [row["text"] for row in objects(given.data / "text/reviews.jsonl.xz", given.texts)]
    settings = SIDES[given.side] | {"minutes": given.minutes} | given.settings
    run = osbert.adapt(given.model, texts, out=given.out / given.side, watch=tell, **settings)
    print({name: value for name, value in run.metrics.items() if "loss" in name or name in ("step", "tokens")})
    show(given.side, probe(run.folder, labelled, given.out / f"{given.side}.npy"), before)
    print(f"STS-B: {correlation(run.folder, given.data):.3f}", flush=True)


def tell(event: Any) -> None:
    """Print what is no step."""
    if type(event).__name__ in ("Notice", "Measurement"):
        print(event, flush=True)


def objects(path: Path, count: int) -> Iterator[dict[str, str]]:
    """Yield some objects of a file of JSON lines, always the same ones, in an order of chance."""
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, random.Random(0).sample(lines.readlines(), count))


def probe(folder: Path, rows: Sequence[dict[str, str]], kept: Path) -> NDArray[np.float64]:
    """Return for each row the share of seeds in which it is predicted rightly, by a probe on the folder's vectors."""
    if not kept.exists():
        np.save(kept, osbert.load(folder).embed([row["text"] for row in rows]))
    vectors, labels = np.load(kept), np.array([row["label"] for row in rows])
    hits = []
    for seed in range(SEEDS):
        folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
        model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=1000))
        hits.append(cross_val_predict(model, vectors, labels, cv=folds) == labels)
    return np.mean(hits, axis=0)


def correlation(folder: Path, data: Path) -> float:
    """Return Spearman's correlation of cosines with the scores of STS-B's development pairs."""
    with (data / "glue/STS-B/dev.tsv").open(encoding="utf-8") as lines:
        rows = [*csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)]
    model = osbert.load(folder)
    first, second = (model.embed([row[name] for row in rows], normalize=True) for name in ("sentence1", "sentence2"))
    return float(spearmanr((first * second).sum(axis=1), [float(row["score"]) for row in rows]).statistic)


def show(name: str, right: NDArray[np.float64], before: NDArray[np.float64]) -> None:
    """Print a probe's accuracy, and how far it is from the one before with its interval over rows."""
    change = right - before
    width = 1.96 * change.std() / len(change) ** 0.5
    print(f"{name}: {right.mean():.3f} ({change.mean():+.3f} +- {width:.3f})", flush=True)


if __name__ == "__main__":
    main()
