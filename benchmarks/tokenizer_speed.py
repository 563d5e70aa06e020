"""Encoding speed beside `tokenizers`' encode_batch_fast: both on two cores, in turns, on text not seen before.

Each round takes the next part of the text, so that osbert's caches hold only what earlier parts left, as when a corpus
is built. osbert's time includes sending the text to its two processes and the ids back; that of `tokenizers`, which
shares memory with its two threads, is the call alone, without taking the ids out of what it returns.

    python benchmarks/tokenizer_speed.py [--text FILE] [--tokenizer FOLDER_OR_VOCAB] [--megabytes 60] [--rounds 6]
"""

from __future__ import annotations

import argparse
import os
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from osbert.corpus.encode import encode_document
from osbert.interop.tokenizers import read_tokenizer
from osbert.reading.documents import read_chunks
from osbert.text.tokenizer import Tokenizer

DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
CORES = 2
PORTION = 1 << 18
"""Characters of text sent to a process at a time: few enough that both processes end a round together."""

_tokenizer: Tokenizer  # of a worker process; set once when it begins


def begin(tokenizer: Tokenizer) -> None:
    global _tokenizer
    _tokenizer = tokenizer


def encode_texts(texts: Sequence[str]) -> list[bytes]:
    return [_tokenizer.encode_bytes(text) for text in texts]


def encode_documents(texts: Sequence[str]) -> list[bytes]:
    return [encode_document(text, _tokenizer).ids.tobytes() for text in texts]


def portions(texts: Sequence[str]) -> Iterator[list[str]]:
    portion: list[str] = []
    size = 0
    for text in texts:
        portion.append(text)
        size += len(text)
        if size >= PORTION:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


def collect(
    pool: ProcessPoolExecutor, work: Callable[[Sequence[str]], list[bytes]], sent: Sequence[Sequence[str]]
) -> list[list[bytes]]:
    return list(pool.map(work, sent))


def rate(work: Callable[[], object], megabytes: float) -> float:
    start = time.perf_counter()
    work()
    return megabytes / (time.perf_counter() - start)


def read_parts(path: Path, *, megabytes: float, rounds: int) -> list[list[str]]:
    """Return up to `megabytes` of documents in `rounds` parts of about the same size."""
    parts: list[list[str]] = [[]]
    size = 0
    for chunk in read_chunks([path], documents="line"):
        parts[-1].append(chunk.text)
        size += len(chunk.text.encode())
        if size >= megabytes * 1e6 * len(parts) / rounds:
            if len(parts) == rounds:
                break
            parts.append([])
    return [part for part in parts if part]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, default=DATA / "text" / "reviews.jsonl.xz")
    parser.add_argument("--tokenizer", type=Path, default=DATA / "bert" / "vocab" / "bert-base-uncased-vocab.txt")
    parser.add_argument("--megabytes", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=6)
    chosen = parser.parse_args()
    os.environ["RAYON_NUM_THREADS"] = str(CORES)  # read when the library is first used
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    tokenizer = read_tokenizer(chosen.tokenizer)
    parts = read_parts(chosen.text, megabytes=chosen.megabytes, rounds=chosen.rounds)
    with (
        ProcessPoolExecutor(CORES, get_context("spawn"), begin, (tokenizer,)) as plain,
        ProcessPoolExecutor(CORES, get_context("spawn"), begin, (tokenizer,)) as whole,
    ):
        for pool in (plain, whole):  # start the processes; their caches stay empty
            list(pool.map(encode_texts, [[""]] * CORES * 4))
        measure(tokenizer, parts, plain, whole)


def measure(
    tokenizer: Tokenizer, parts: Sequence[Sequence[str]], plain: ProcessPoolExecutor, whole: ProcessPoolExecutor
) -> None:
    library = library_tokenizer(tokenizer)
    library.encode_batch_fast(list(parts[0][:50]), add_special_tokens=False)
    rates: dict[str, list[float]] = {}
    for part in parts:
        megabytes = sum(len(text.encode()) for text in part) / 1e6
        texts, sent = list(part), list(portions(part))
        runs = {
            "tokenizers encode_batch_fast, 2 threads": partial(
                library.encode_batch_fast, texts, add_special_tokens=False
            ),
            "osbert encode_bytes, 2 processes": partial(collect, plain, encode_texts, sent),
            "osbert encode_document, 2 processes": partial(collect, whole, encode_documents, sent),
        }
        for name, work in runs.items():
            rates.setdefault(name, []).append(rate(work, megabytes))
    show(rates, sum(len(text.encode()) for part in parts for text in part) / 1e6)
    sample = list(parts[0][:1000])
    theirs = [found.ids for found in library.encode_batch_fast(sample, add_special_tokens=False)]
    equal = sum(tokenizer.encode(text).tolist() == ids for text, ids in zip(sample, theirs))
    print(f"equal ids in {equal:,} of {len(sample):,} documents")


def library_tokenizer(tokenizer: Tokenizer):
    import tokenizers
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer

    ids = {piece: index for index, piece in enumerate(tokenizer.vocabulary)}
    library = tokenizers.Tokenizer(WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=200))
    library.normalizer = BertNormalizer(lowercase=tokenizer.lowercase)
    library.pre_tokenizer = BertPreTokenizer()
    return library


def show(rates: dict[str, list[float]], megabytes: float) -> None:
    first = next(iter(rates.values()))
    print(f"$ {shlex.join(['python', *sys.argv])}")
    print(f"{megabytes:.0f} MB of text in {len(first)} rounds; MB/s: median (lowest to highest)")
    for name, values in rates.items():
        ratio = statistics.median(mine / theirs for mine, theirs in zip(values, first))
        spread = f"{statistics.median(values):6.1f} ({min(values):.1f} to {max(values):.1f})"
        print(f"{name:42} {spread:24} {ratio:5.1f} times")


if __name__ == "__main__":
    main()
