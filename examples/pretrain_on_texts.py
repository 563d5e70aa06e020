"""Makes a vocabulary, a corpus and an encoder of a text file: python examples/pretrain_on_texts.py FILE OUT [STEPS]."""

from __future__ import annotations

import sys
from pathlib import Path

import osbert


def main(file: str, out: str, steps: str = "1000") -> None:
    """Write OUT/vocabulary, OUT/corpus and OUT/encoder; print the losses on held-out text, beside those of guessing."""
    folder = Path(out)
    tokenizer = osbert.train_tokenizer([Path(file)], out=folder / "vocabulary", vocabulary=4000)
    corpus = osbert.build_corpus(file, tokenizer=folder / "vocabulary", out=folder / "corpus")
    print(f"{len(tokenizer)} pieces, {corpus.documents} documents, {corpus.sentences} sentences")
    run = osbert.pretrain("cpu", corpus=folder / "corpus", out=folder / "encoder", steps=int(steps))
    for name, value in run.metrics.items():
        if name.startswith("held_out."):
            print(f"{name}: {value:.4f}")


if __name__ == "__main__":  # build_corpus may start processes, which import this file again
    main(*sys.argv[1:4])
