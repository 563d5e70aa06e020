"""Vectors of 5,000 sentences on the CPU: osbert in fp32, bf16 and int8 beside transformers and onnxruntime.

    python benchmarks/encoding_peers.py --data ../shared/data [--models minilm,base] [--sentences 5000] [--rounds 5]

The sentences are the first of one published set after another (short ones of SST-2 and CoLA, middling ones of STS-B and
MRPC, long ones of QNLI and RTE), shuffled. Every side takes texts and gives the mean of the last layer's states:

    osbert fp32, bf16   Engine.embed, in bf16 under autocast as in training
    osbert int8         the same on what `osbert export --to onnx --int8` wrote
    pipeline            transformers' feature-extraction pipeline, fp32, batches of 32 in the order given, tensors out;
                        the mean over its states is not timed
    padded int8         onnxruntime on the same int8 file: batches of 32 in the order given, padded to the longest,
                        transformers' fast tokenizer

Each side is a process of its own that has loaded its model; in each round every side encodes all sentences, and
another one goes first. Ratios are of one round, and their median is told: above 1, the first side is the faster. All
vectors are compared with the pipeline's. "minilm" is the published all-MiniLM-L6-v2, "base" has BERT BASE's shape and
fresh weights. --sides "osbert int8,padded int8" measures these and the pipeline.
The Spearman correlation of cosines on STS-B's development pairs, in points, is told of minilm.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from scipy.stats import spearmanr

from osbert.inference.engine import load
from osbert.interop.files.weight_files import ONNX
from osbert.interop.hub import minilm
from osbert.interop.huggingface.folders import write_model
from osbert.interop.onnx.files import open_onnx
from osbert.interop.tokenizers import read_tokenizer, write_tokenizer
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.runs.export.onnx_export import write
from osbert.training.processor import Processor, has_bf16

BATCH = 32
SOURCES = {
    "SST-2": ("sentence",),
    "CoLA": (),
    "STS-B": ("sentence1", "sentence2"),
    "MRPC": ("#1 String", "#2 String"),
    "QNLI": ("sentence",),
    "RTE": ("sentence1",),
}
"""GLUE's folders -> the columns read; CoLA has no header, and its sentence last."""
RATIOS = (
    *(("osbert fp32", "pipeline"), ("osbert bf16", "pipeline"), ("osbert int8", "pipeline")),
    ("osbert int8", "padded int8"),
)


@dataclass(frozen=True, kw_only=True)
class Folders:
    """A model as Hugging Face has it, and as osbert exported it in int8."""

    whole: Path
    int8: Path


class Osbert:
    """osbert's engine in a precision; int8 is the exported folder's."""

    def __init__(self, folders: Folders, precision: str) -> None:
        self.engine = load(folders.int8 if precision == "int8" else folders.whole, device="cpu")
        self.processor = Processor(device=torch.device("cpu"), precision="bf16" if precision == "bf16" else "fp32")

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, float]:
        started = time.perf_counter()
        with self.processor.autocast():
            vectors = self.engine.embed(texts, pooling="mean", normalize=False, length=self.engine.packer.length)
        return vectors, time.perf_counter() - started


class Pipeline:
    """transformers' pipeline."""

    def __init__(self, folders: Folders) -> None:
        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folders.whole)
        self.pipeline = transformers.pipeline(
            "feature-extraction", model=str(folders.whole), tokenizer=self.tokenizer, device="cpu"
        )

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, float]:
        limit = {"truncation": True, "max_length": 512}
        started = time.perf_counter()
        states = self.pipeline(list(texts), batch_size=BATCH, return_tensors=True, tokenize_kwargs=limit)
        seconds = time.perf_counter() - started
        lengths = [len(ids) for ids in self.tokenizer(list(texts), **limit)["input_ids"]]
        return np.stack([one[0, :n].mean(0).numpy() for one, n in zip(states, lengths)]), seconds


class Padded:
    """onnxruntime with the usual loop."""

    def __init__(self, folders: Folders) -> None:
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folders.whole)
        self.session = open_onnx(folders.int8 / ONNX).session

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, float]:
        found = []
        started = time.perf_counter()
        for first in range(0, len(texts), BATCH):
            part = list(texts[first : first + BATCH])
            columns = dict(
                self.tokenizer(part, padding=True, truncation=True, max_length=512, return_tensors="np").items()
            )
            (states,) = self.session.run(["last_hidden_state"], columns)
            mask = columns["attention_mask"][..., None]
            found.append((states * mask).sum(1) / mask.sum(1))
        return np.concatenate(found).astype(np.float32), time.perf_counter() - started


_side: Any  # of a worker process; set once when it begins


def begin(name: str, folders: Folders, threads: int) -> None:
    """Load a side's model."""
    global _side
    torch.set_num_threads(threads)
    kind, _, precision = name.partition(" ")
    _side = Osbert(folders, precision) if kind == "osbert" else {"pipeline": Pipeline, "padded": Padded}[kind](folders)


def encode(texts: Sequence[str]) -> tuple[np.ndarray, float]:
    """Return the vectors of texts and the seconds they took, in the worker's process."""
    return _side.encode(texts)


def sentences(data: Path, count: int) -> list[str]:
    """Return as many sentences, about as many from each set, in a random order."""
    found: list[str] = []
    for left, (folder, columns) in zip(range(len(SOURCES), 0, -1), SOURCES.items()):
        found += list(dict.fromkeys(_sentences(data / "glue" / folder, columns)))[: -(-(count - len(found)) // left)]
    random.Random(0).shuffle(found)
    return found


def _sentences(folder: Path, columns: Sequence[str]) -> Iterator[str]:
    path = max((path for path in folder.iterdir() if "test" not in path.name), key=lambda path: "train" in path.name)
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        header = next(rows) if columns else []
        places = [header.index(name) for name in columns] or [-1]
        for row in rows:
            yield from (row[place] for place in places)


def pairs(data: Path) -> tuple[list[str], list[str], list[float]]:
    """Return STS-B's development pairs and their scores."""
    with (data / "glue" / "STS-B" / "dev.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    first, second = ([row[name] for row in rows] for name in ("sentence1", "sentence2"))
    return first, second, [float(row["score"]) for row in rows]


def model(name: str, data: Path, folder: Path) -> Folders:
    """Return a model's folders, the int8 one made in `folder`."""
    whole = minilm()
    if name == "base":
        whole = folder / "base"
        tokenizer = read_tokenizer(data / "bert" / "vocab" / "bert-base-uncased-vocab.txt")
        torch.manual_seed(0)
        write_model(Learner(Architecture(vocabulary=len(tokenizer)).build(), {}), whole)
        write_tokenizer(tokenizer, whole)
    int8 = folder / f"{name}-int8"
    int8.mkdir()
    write(load(whole, device="cpu"), whole, int8, int8=True)
    return Folders(whole=whole, int8=int8)


SIDES = ("osbert fp32", "osbert bf16", "osbert int8", "pipeline", "padded int8")


def compare(name: str, folders: Folders, options: argparse.Namespace) -> None:
    """Measure all sides on one model and print what was found."""
    # The pipeline's vectors are what all others are compared with.
    names = [side for side in SIDES if side == "pipeline" or side in options.sides.split(",")]
    if "osbert bf16" in names and not has_bf16(torch.device("cpu")):
        names.remove("osbert bf16")
        print("(this processor has no bf16 instructions: that side is left out)")
    texts = sentences(options.data, options.sentences)
    context = multiprocessing.get_context("spawn")
    threads = torch.get_num_threads()
    sides = {side: ProcessPoolExecutor(1, context, begin, (side, folders, threads)) for side in names}
    try:
        for pool in sides.values():
            pool.submit(encode, texts[:BATCH]).result()
        seconds: dict[str, list[float]] = {side: [] for side in names}
        vectors = {}
        for turn in range(options.rounds):
            for side in names[turn % len(names) :] + names[: turn % len(names)]:
                vectors[side], took = sides[side].submit(encode, texts).result()
                seconds[side].append(took)
            shown = ", ".join(f"{side} {took[-1]:.1f} s" for side, took in seconds.items())
            print(f"{name}, round {turn + 1}: {shown}", file=sys.stderr, flush=True)
        correlations = spearman(sides, options.data) if name == "minilm" else {}
    finally:
        for pool in sides.values():
            pool.shutdown()
    report(name, seconds, vectors, correlations)


def spearman(sides: dict[str, ProcessPoolExecutor], data: Path) -> dict[str, float]:
    """Return each side's rank correlation of cosines and scores on STS-B, in points."""
    first, second, true = pairs(data)
    found = {}
    for side, pool in sides.items():
        vectors = pool.submit(encode, first + second).result()[0]
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        found[side] = 100 * float(spearmanr((vectors[: len(first)] * vectors[len(first) :]).sum(1), true).statistic)
    return found


def report(
    name: str, seconds: dict[str, list[float]], vectors: dict[str, np.ndarray], correlations: dict[str, float]
) -> None:
    """Print a model's table."""
    reference = vectors["pipeline"]
    print(f"\n{name}: {len(reference):,} sentences, vectors of {reference.shape[1]}\n")
    print("| side | sentences a second | largest difference from the pipeline | smallest cosine | STS-B |")
    print("|---|---|---|---|---|")
    for side, found in vectors.items():
        rate = len(found) / statistics.median(seconds[side])
        lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(reference, axis=1)
        cosine = float(((found * reference).sum(1) / lengths).min())
        points = f"{correlations[side]:.2f}" if side in correlations else ""
        print(f"| {side} | {rate:,.1f} | {np.abs(found - reference).max():.1e} | {cosine:.5f} | {points} |")
    print()
    for one, other in RATIOS:
        if one in seconds and other in seconds:
            ratios = [slow / fast for fast, slow in zip(seconds[one], seconds[other])]
            low, high = min(ratios), max(ratios)
            print(f"{one} : {other}  {statistics.median(ratios):.2f} times as fast ({low:.2f} to {high:.2f})")
    print(flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--models", default="minilm,base")
    parser.add_argument("--sentences", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sides", default=",".join(SIDES))
    options = parser.parse_args()
    print(f"{torch.get_num_threads()} threads; {options.rounds} rounds")
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models.split(","):
            compare(name, model(name, options.data, Path(folder)), options)


if __name__ == "__main__":
    main()
