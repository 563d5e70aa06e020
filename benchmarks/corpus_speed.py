"""Corpus building against `tokenizers`: the whole of `osbert corpus build` and encode_batch_fast alone, in MB/s.

Both read the same JSON lines on the same number of cores, in turns; the medians and their ratio are printed. The build
also reads, splits sentences, hashes lines, writes shards and reports; on the other side the calls alone are timed.

    python benchmarks/corpus_speed.py [--file F] [--vocabulary DIR_OR_VOCAB] [--cores 2] [--rounds 3] [--megabytes 60]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from osbert.corpus.build import Build
from osbert.corpus.state import BuildSettings
from osbert.interop.tokenizers import read_tokenizer, write_tokenizer
from osbert.reading.documents import read_chunks
from osbert.text.tokenizer import Tokenizer

DATA = Path(os.environ.get("OSBERT_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
BATCH = 1000
"""Documents given to encode_batch_fast at a time."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", type=Path, default=DATA / "text/reviews.jsonl.xz")
    parser.add_argument("--vocabulary", type=Path, default=DATA / "bert/vocab/bert-base-uncased-vocab.txt")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=float, default=60)
    chosen = parser.parse_args()
    os.environ.update(RAYON_NUM_THREADS=str(chosen.cores), TOKENIZERS_PARALLELISM="true")  # read when first used
    tokenizer = read_tokenizer(chosen.vocabulary)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tokenizer(tokenizer, folder)
        size = write_lines(chosen.file, folder / "text.jsonl", chosen.megabytes * 1e6)
        print(f"{size / 1e6:.1f} MB of text, {chosen.cores} cores, {chosen.rounds} rounds in turns")
        ours, theirs = [], []
        for number in range(chosen.rounds):
            seconds, tokens = encode_with_tokenizers(folder / "text.jsonl", folder / "tokenizer.json")
            theirs.append(size / 1e6 / seconds)
            seconds, built = build_corpus(folder / "text.jsonl", tokenizer, folder / f"corpus-{number}", chosen.cores)
            ours.append(size / 1e6 / seconds)
            print(f"  tokenizers {theirs[-1]:6.2f} MB/s ({tokens:,} tokens)", end="")
            print(f"   osbert {ours[-1]:6.2f} MB/s ({built:,} tokens)")
    first, second = statistics.median(theirs), statistics.median(ours)
    print(f"median: tokenizers {first:.2f} MB/s, osbert corpus build {second:.2f} MB/s, ratio {second / first:.2f}")


def write_lines(source: Path, target: Path, most: float) -> int:
    """Write the source's documents as JSON lines until there are `most` bytes of text; return the bytes."""
    size = 0
    with open(target, "w", encoding="utf-8") as file:
        for chunk in read_chunks([source]):
            file.write(json.dumps({"text": chunk.text}, ensure_ascii=False) + "\n")
            size += len(chunk.text.encode())
            if size >= most:
                break
    return size


def encode_with_tokenizers(text: Path, file: Path) -> tuple[float, int]:
    """Return the seconds that the calls take, reading left out, and the tokens."""
    from tokenizers import Tokenizer as Peer

    peer = Peer.from_file(str(file))
    peer.no_truncation()
    peer.no_padding()
    seconds, tokens = 0.0, 0
    with open(text, encoding="utf-8") as lines:
        for batch in _batches(json.loads(line)["text"] for line in lines):
            begin = time.perf_counter()
            encoded = peer.encode_batch_fast(batch, add_special_tokens=False)
            seconds += time.perf_counter() - begin
            tokens += sum(map(len, encoded))
    return seconds, tokens


def build_corpus(text: Path, tokenizer: Tokenizer, folder: Path, cores: int) -> tuple[float, int]:
    """Return the seconds that the whole build takes, starting its workers included, and the tokens."""
    begin = time.perf_counter()
    build = Build.prepare([text], tokenizer=tokenizer, folder=folder, settings=BuildSettings())
    report = build.run(workers=cores)
    return time.perf_counter() - begin, report["tokens"]


def _batches(texts: Iterator[str]) -> Iterator[list[str]]:
    while batch := list(islice(texts, BATCH)):
        yield batch


if __name__ == "__main__":
    main()
