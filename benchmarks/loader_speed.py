"""The loader alone, from the disk: tokens and sequences a second as the trainer would get them.

Each round serves one epoch's first part anew: `steps` in one thread, then the same through `ahead`, whose thread makes
the next step meanwhile. The corpus is read by memory map; the page cache holds it after the first round, as it does
in training.

    python benchmarks/loader_speed.py [--corpus DIR] [--lengths 128 512] [--seconds 5] [--rounds 3] [--batch 256]
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from osbert.corpus.build import Build
from osbert.corpus.shards import Corpus
from osbert.corpus.state import BuildSettings
from osbert.data.loader import LoaderObjective, LoaderSettings, PretrainingLoader
from osbert.data.pack import Packer
from osbert.data.step import Cursor, Step, ahead
from osbert.interop.tokenizers import read_tokenizer, write_tokenizer
from osbert.objectives.mlm import MaskedLanguage
from osbert.objectives.nsp import NextSentence
from osbert.text.tokenizer import Tokenizer

DATA = Path(os.environ.get("OSBERT_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
OBJECTIVES: dict[str, dict[str, LoaderObjective]] = {
    "mlm": {"mlm": MaskedLanguage()},
    "mlm, nsp": {"mlm": MaskedLanguage(), "nsp": NextSentence()},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, help="a built corpus with its tokenizer; else the film reviews")
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 512])
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=256)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = chosen.corpus or build_reviews(Path(name) / "corpus")
        corpus, tokenizer = Corpus.open(folder), read_tokenizer(folder)
        print(f"{corpus.tokens:,} tokens in {corpus.documents:,} documents; tokens a second, median of {chosen.rounds}")
        for length in chosen.lengths:
            for objectives in OBJECTIVES:
                loader = make_loader(corpus, tokenizer, objectives, length, chosen.batch)
                report(f"length {length}, {objectives}", loader, chosen.seconds, chosen.rounds)


def build_reviews(folder: Path) -> Path:
    """Build the film reviews with the published vocabulary."""
    tokenizer = read_tokenizer(DATA / "bert/vocab/bert-base-uncased-vocab.txt")
    files = [DATA / "text/reviews.jsonl.xz"]
    Build.prepare(files, tokenizer=tokenizer, folder=folder, settings=BuildSettings()).run(workers=os.cpu_count() or 1)
    write_tokenizer(tokenizer, folder)
    return folder


def make_loader(corpus: Corpus, tokenizer: Tokenizer, objectives: str, length: int, batch: int) -> PretrainingLoader:
    packer = Packer(tokenizer=tokenizer, length=length)
    return PretrainingLoader(corpus, OBJECTIVES[objectives], packer, LoaderSettings(batch=batch))


def report(name: str, loader: PretrainingLoader, seconds: float, rounds: int) -> None:
    rates: dict[str, list[tuple[float, float]]] = {"alone": [], "ahead": []}
    for number in range(rounds):
        rates["alone"].append(rate(loader.steps(Cursor(epoch=number)), seconds))
        coming = ahead(loader.steps(Cursor(epoch=number)))
        rates["ahead"].append(rate(coming, seconds))
        coming.close()
    for way, found in rates.items():
        tokens, sequences = (statistics.median(column) for column in zip(*found))
        print(f"{name:24} {way:6} {tokens:12,.0f} tokens/s {sequences:10,.0f} sequences/s")


def rate(steps: Iterable[Step], seconds: float) -> tuple[float, float]:
    """Return tokens and sequences a second over whole pools, whose reading and laying out are included."""
    begin = time.perf_counter()
    tokens = sequences = 0
    pool = None
    for step in steps:
        tokens += sum(batch.tokens for batch in step.batches)
        sequences += sum(len(batch.lengths) for batch in step.batches)
        spent = time.perf_counter() - begin
        pool, before = (step.cursor.epoch, step.cursor.pool), pool
        if spent >= seconds and before is not None and pool != before:
            break
    return tokens / spent, sequences / spent


if __name__ == "__main__":
    main()
