"""A tokenizer learnt from a few texts in memory, as `osbert tokenizer train` learns one from files."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable

from osbert.text.tokenizer import Tokenizer
from osbert.text.train import WordCounter, learn


def train(
    texts: Iterable[str], *, vocabulary: int = 30522, lowercase: bool = True, alphabet: int = 1000, minimum: int = 2
) -> Tokenizer:
    """Return a tokenizer with a vocabulary learnt from texts; `lowercase` also strips accents. See `learn`."""
    counter = WordCounter(lowercase=lowercase)
    for text in texts:
        counter.add(text)
    pieces = learn(counter.words(), vocabulary=vocabulary, alphabet=alphabet, minimum=minimum)
    return Tokenizer(pieces, lowercase=lowercase)


def printed_by_every_process(program: str) -> str:
    """Return what a program prints, the same in processes of other hash seeds and numbers of threads."""
    printed = set()
    for seed, threads in (("0", "1"), ("1", "2"), ("77", "4")):
        environment = os.environ | {"PYTHONHASHSEED": seed, "RAYON_NUM_THREADS": threads}
        environment["TOKENIZERS_PARALLELISM"] = "true"
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        printed.add(done.stdout)
    assert len(printed) == 1
    return printed.pop()
