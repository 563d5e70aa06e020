"""Vectors of 5,000 sentences on the CPU: osbert beside OpenVINO, onnxruntime, sentence-transformers and transformers.

    python benchmarks/encoding_peers.py --data ../shared/data [--models minilm,base] [--sentences 5000] [--rounds 5]
        [--single 200]

The sentences are the first of one published set after another (short ones of SST-2 and CoLA, middling ones of STS-B and
MRPC, long ones of QNLI and RTE), shuffled. Every side takes texts and gives the mean of the last layer's states:

    osbert fp32, bf16   Engine.embed, in bf16 under autocast as in training
    osbert int8         the same on what `osbert export --to onnx --int8` wrote
    openvino, onnxruntime   in fp32, bf16 (openvino) and int8, batches of 32 sorted by length: encoding_runtimes.py
    sentence            sentence-transformers' encode, fp32, batches of 32 sorted by length, as is its default
    pipeline            transformers' feature-extraction pipeline, fp32, batches of 32 in the order given, tensors out;
                        the mean over its states is not timed

A side whose package is not installed is left out (openvino and nncf; sentence-transformers). Each side is a process of
its own that has loaded its model; in each round every side encodes all sentences, and another one goes first. Ratios
are of one round, and their median is printed: above 1, the first side is the faster. With OMP_NUM_THREADS=1 the time is
the processor's, which other work on the machine hardly changes. All vectors are compared with the pipeline's. "minilm"
is the published all-MiniLM-L6-v2, "base" has BERT BASE's shape and fresh weights. --sides "osbert int8,openvino int8"
measures these and the pipeline. --single N also takes the first N texts one by one: the median of milliseconds a text.
The Spearman correlation of cosines on STS-B's development pairs, in points, is printed for minilm.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
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

from encoding_runtimes import CALIBRATION, Runtime, export
from osbert.inference.engine import load
from osbert.interop.hub import minilm
from osbert.interop.huggingface.folders import write_model
from osbert.interop.tokenizers import read_tokenizer, write_tokenizer
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.runs.export import write
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
PEERS = {
    "fp32": ("openvino fp32", "onnxruntime fp32", "sentence", "pipeline"),
    "bf16": ("openvino bf16", "sentence", "pipeline"),
    "int8": ("openvino int8", "onnxruntime int8", "sentence", "pipeline"),
}
"""osbert's precisions -> the sides that each is compared with."""
SIDES = (
    *(f"osbert {precision}" for precision in PEERS),
    *dict.fromkeys(peer for peers in PEERS.values() for peer in peers),
)


@dataclass(frozen=True, kw_only=True)
class Folders:
    """A model as Hugging Face has it, as osbert exported it in int8, and as the runtimes of others read it."""

    whole: Path
    int8: Path
    runtimes: Path


def read_clock() -> float:
    """Return the seconds of a clock: of one thread the processor's, which other work hardly changes."""
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


class Osbert:
    """osbert's engine in a precision; int8 is the exported folder's."""

    def __init__(self, folders: Folders, precision: str) -> None:
        self.engine = load(folders.int8 if precision == "int8" else folders.whole, device="cpu")
        self.processor = Processor(device=torch.device("cpu"), precision="bf16" if precision == "bf16" else "fp32")

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, float]:
        started = read_clock()
        with self.processor.autocast():
            vectors = self.engine.embed(texts, pooling="mean", normalize=False, length=self.engine.packer.length)
        return vectors, read_clock() - started


class SentenceTransformer:
    """sentence-transformers with its own sorting by length."""

    def __init__(self, folders: Folders) -> None:
        import sentence_transformers  # an opponent that need not be installed

        # A folder without modules.json gets the mean of the states; MiniLM's makes unit vectors of them afterwards.
        modules = sentence_transformers.SentenceTransformer(str(folders.whole), device="cpu")
        self.model = sentence_transformers.SentenceTransformer(modules=list(modules)[:2], device="cpu")
        self.model.max_seq_length = 512

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, float]:
        started = read_clock()
        vectors = self.model.encode(list(texts), batch_size=BATCH, show_progress_bar=False)
        return vectors, read_clock() - started


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
        started = read_clock()
        states = self.pipeline(list(texts), batch_size=BATCH, return_tensors=True, tokenize_kwargs=limit)
        seconds = read_clock() - started
        lengths = [len(ids) for ids in self.tokenizer(list(texts), **limit)["input_ids"]]
        return np.stack([state[0, :length].mean(0).numpy() for state, length in zip(states, lengths)]), seconds


class Other:
    """onnxruntime or OpenVINO."""

    def __init__(self, folders: Folders, side: str) -> None:
        self.runtime = Runtime(folders.whole, folders.runtimes, side, torch.get_num_threads())

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, float]:
        started = read_clock()
        vectors = self.runtime.embed(texts)
        return vectors, read_clock() - started


_side: Any  # of a worker process; set once when it begins


def begin(name: str, folders: Folders, threads: int) -> None:
    """Load a side's model."""
    global _side
    torch.set_num_threads(threads)
    kind, _, precision = name.partition(" ")
    if kind == "osbert":
        _side = Osbert(folders, precision)
    elif precision:
        _side = Other(folders, name)
    else:
        _side = {"sentence": SentenceTransformer, "pipeline": Pipeline}[kind](folders)


def encode(texts: Sequence[str]) -> tuple[np.ndarray, float]:
    """Return the vectors of texts and the seconds they took, in the worker's process."""
    return _side.encode(texts)


def encode_each(texts: Sequence[str]) -> float:
    """Return the median of the milliseconds that a text takes by itself."""
    return 1000 * statistics.median(encode([text])[1] for text in texts)


def sentences(data: Path, count: int) -> list[str]:
    """Return as many sentences, about as many from each set, in a random order."""
    texts: list[str] = []
    for left, (folder, columns) in zip(range(len(SOURCES), 0, -1), SOURCES.items()):
        texts += list(dict.fromkeys(_sentences(data / "glue" / folder, columns)))[: -(-(count - len(texts)) // left)]
    random.Random(0).shuffle(texts)
    return texts


def _sentences(folder: Path, columns: Sequence[str]) -> Iterator[str]:
    path = max((path for path in folder.iterdir() if "test" not in path.name), key=lambda path: "train" in path.name)
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        header = next(rows) if columns else []
        indices = [header.index(name) for name in columns] or [-1]
        for row in rows:
            yield from (row[index] for index in indices)


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
    runtimes = folder / f"{name}-runtimes"
    runtimes.mkdir()
    export(whole, runtimes, sentences(data, 2 * CALIBRATION))
    return Folders(whole=whole, int8=int8, runtimes=runtimes)


def compare(name: str, folders: Folders, options: argparse.Namespace) -> None:
    """Measure all sides on one model and print the table."""
    # The pipeline's vectors are what all others are compared with.
    names = [side for side in SIDES if side == "pipeline" or side in options.sides.split(",")]
    if not has_bf16(torch.device("cpu")):
        names = [side for side in names if not side.endswith("bf16")]
        print("(this processor has no bf16 instructions: those sides are left out)")
    if "sentence" in names and importlib.util.find_spec("sentence_transformers") is None:
        names.remove("sentence")
        print("(sentence-transformers is not installed: that side is left out)")
    if not (folders.runtimes / "whole.xml").exists():
        names = [side for side in names if not side.startswith("openvino")]
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
                vectors[side], duration = sides[side].submit(encode, texts).result()
                seconds[side].append(duration)
            line = ", ".join(f"{side} {durations[-1]:.1f} s" for side, durations in seconds.items())
            print(f"{name}, round {turn + 1}: {line}", file=sys.stderr, flush=True)
        correlations = spearman(sides, options.data) if name == "minilm" else {}
        if options.single:
            print(f"\n{name}, texts one by one, median milliseconds:")
            for side, pool in sides.items():
                print(f"{side}  {pool.submit(encode_each, texts[: options.single]).result():.2f}")
    finally:
        for pool in sides.values():
            pool.shutdown()
    report(name, seconds, vectors, correlations)


def spearman(sides: dict[str, ProcessPoolExecutor], data: Path) -> dict[str, float]:
    """Return each side's rank correlation of cosines and scores on STS-B, in points."""
    first, second, true = pairs(data)
    correlations = {}
    for side, pool in sides.items():
        vectors = pool.submit(encode, first + second).result()[0]
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        correlations[side] = 100 * float(
            spearmanr((vectors[: len(first)] * vectors[len(first) :]).sum(1), true).statistic
        )
    return correlations


def report(
    name: str, seconds: dict[str, list[float]], vectors: dict[str, np.ndarray], correlations: dict[str, float]
) -> None:
    """Print a model's table."""
    reference = vectors["pipeline"]
    print(f"\n{name}: {len(reference):,} sentences, vectors of {reference.shape[1]}\n")
    print("| side | sentences a second | largest difference from the pipeline | smallest cosine | STS-B |")
    print("|---|---|---|---|---|")
    for side, side_vectors in vectors.items():
        rate = len(side_vectors) / statistics.median(seconds[side])
        lengths = np.linalg.norm(side_vectors, axis=1) * np.linalg.norm(reference, axis=1)
        cosine = float(((side_vectors * reference).sum(1) / lengths).min())
        points = f"{correlations[side]:.2f}" if side in correlations else ""
        print(f"| {side} | {rate:,.1f} | {np.abs(side_vectors - reference).max():.1e} | {cosine:.5f} | {points} |")
    print()
    for precision, peers in PEERS.items():
        side = f"osbert {precision}"
        for peer in peers if side in seconds else ():
            if peer in seconds:
                ratios = [slow / fast for fast, slow in zip(seconds[side], seconds[peer])]
                low, high = min(ratios), max(ratios)
                print(f"{side} : {peer}  {statistics.median(ratios):.2f} times as fast ({low:.2f} to {high:.2f})")
    print(flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--models", default="minilm,base")
    parser.add_argument("--sentences", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--single", type=int, default=0)
    parser.add_argument("--sides", default=",".join(SIDES))
    options = parser.parse_args()
    print(f"{torch.get_num_threads()} threads; {options.rounds} rounds")
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models.split(","):
            compare(name, model(name, options.data, Path(folder)), options)


if __name__ == "__main__":
    main()
