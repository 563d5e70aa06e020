"""Masked examples a second: osbert's stream against the algorithm of google-research/bert, written in plain Python.

Both make pairs of texts with next-sentence labels, 15% of the positions masked, from the same documents, already cut
into pieces. The plain side has them as lists of strings in memory and makes padded ids, the features that
create_pretraining_data.py writes, as an array of each feature for every batch; writing itself is left out. Ours reads a
corpus from the disk and makes the tensors of steps. One thread each, in turns, by processor time; medians. Other work
on the machine slows both, ours more: it leans on the cache.

    python benchmarks/masking_speed.py [--file F] [--length 128] [--megabytes 20] [--rounds 5] [--batch 256]
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from osbert.corpus.build import Build
from osbert.corpus.shards import Corpus
from osbert.corpus.state import BuildSettings
from osbert.data.loader import LoaderSettings, PretrainingLoader
from osbert.data.pack import Packer
from osbert.data.step import Cursor
from osbert.interop.tokenizers import read_tokenizer
from osbert.objectives.mlm import MaskedLanguage
from osbert.objectives.nsp import NextSentence
from osbert.reading.documents import read_chunks
from osbert.text.tokenizer import Tokenizer

DATA = Path(os.environ.get("OSBERT_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
RATE = 0.15
SHORT = 0.1
SEED = 12345

Sentence = list[str]


@dataclass
class Instance:
    """What the plain side makes first: lists of pieces."""

    pieces: list[str]
    segments: list[int]
    random_next: bool
    positions: list[int]
    labels: list[str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", type=Path, default=DATA / "text/reviews.jsonl.xz")
    parser.add_argument("--vocabulary", type=Path, default=DATA / "bert/vocab/bert-base-uncased-vocab.txt")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--limit", type=int, default=20, help="predictions in a sequence at most")
    parser.add_argument("--megabytes", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=256)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer = read_tokenizer(chosen.vocabulary)
    with tempfile.TemporaryDirectory() as name:
        corpus = build_corpus(chosen.file, tokenizer, Path(name), chosen.megabytes * 1e6)
        documents = as_strings(corpus, tokenizer)
        gc.freeze()  # neither side is to pay for going through these again and again
        packer = Packer(tokenizer=tokenizer, length=chosen.length, short=SHORT)
        loader = PretrainingLoader(
            corpus,
            {"mlm": MaskedLanguage(rate=RATE, limit=chosen.limit), "nsp": NextSentence()},
            packer,
            LoaderSettings(batch=chosen.batch, held_out=0),
        )
        print(f"{corpus.documents:,} documents, {corpus.tokens:,} tokens, length {chosen.length}; examples a second")
        theirs, ours = [], []
        for number in range(chosen.rounds):
            maker = PlainMaker(documents, tokenizer, chosen.length, chosen.limit, random.Random(SEED + number))
            theirs.append(plain_speed(maker, range(number, len(documents), chosen.rounds), chosen.batch))
            ours.append(loader_speed(loader, epoch=number))
            ratio = ours[-1].rate / theirs[-1].rate
            print(f"  plain Python {theirs[-1].rate:9,.0f}   osbert {ours[-1].rate:9,.0f}   {ratio:.1f} times")
    ratio = statistics.median(mine.rate / other.rate for mine, other in zip(ours, theirs))
    for name, speeds in (("plain Python", theirs), ("osbert", ours)):
        rate, tokens = (statistics.median(column) for column in zip(*speeds))
        print(f"median of {name}: {rate:,.0f} examples/s of {tokens:.1f} tokens each")
    print(f"median ratio: {ratio:.1f}")


def build_corpus(file: Path, tokenizer: Tokenizer, folder: Path, most: float) -> Corpus:
    """Build a corpus of the first `most` bytes of a file's documents."""
    size = 0
    with open(folder / "text.txt", "w", encoding="utf-8") as text:
        for chunk in read_chunks([file]):
            text.write(chunk.text.replace("\n\n", "\n") + "\n\n")
            size += len(chunk.text.encode())
            if size >= most:
                break
    settings = BuildSettings()
    Build.prepare([folder / "text.txt"], tokenizer=tokenizer, folder=folder / "corpus", settings=settings).run()
    return Corpus.open(folder / "corpus")


def as_strings(corpus: Corpus, tokenizer: Tokenizer) -> list[list[Sentence]]:
    """Return the corpus as lists of strings: documents of sentences of pieces."""
    documents = []
    for block in corpus.blocks(2**30):
        for document in corpus.read(block):
            pieces = tokenizer.tokens(document.ids.tolist())
            documents.append([pieces[first:last] for first, last in pairwise(document.sentences.tolist())])
    return documents


class Speed(NamedTuple):
    """Examples a second, and how many tokens one has on average."""

    rate: float
    tokens: float


def loader_speed(loader: PretrainingLoader, *, epoch: int) -> Speed:
    """Measure one whole epoch of steps, the reading and laying out of its pools included."""
    begin = time.process_time()
    examples = tokens = 0
    for step in loader.steps(Cursor(epoch=epoch)):
        examples += sum(len(batch.lengths) for batch in step.batches)
        tokens += sum(batch.tokens for batch in step.batches)
        if step.cursor.epoch > epoch:
            break
    return Speed(examples / (time.process_time() - begin), tokens / examples)


def plain_speed(maker: PlainMaker, documents: Sequence[int], batch: int) -> Speed:
    """Measure the plain side over some documents; random partners come from all of them."""
    begin = time.process_time()
    instances = [instance for number in documents for instance in maker.instances(number)]
    maker.rng.shuffle(instances)
    for first in range(0, len(instances), batch):
        maker.arrays(instances[first : first + batch])
    spent = time.process_time() - begin
    return Speed(len(instances) / spent, statistics.mean(len(instance.pieces) for instance in instances))


class PlainMaker:
    """The published algorithm, token by token."""

    def __init__(
        self, documents: Sequence[list[Sentence]], tokenizer: Tokenizer, length: int, limit: int, rng: random.Random
    ) -> None:
        self.documents = documents
        self.vocabulary = list(tokenizer.vocabulary)
        self.ids = {piece: index for index, piece in enumerate(self.vocabulary)}
        self.length = length
        self.room = length - 3
        self.limit = limit
        self.rng = rng

    def instances(self, number: int) -> Iterator[Instance]:
        """Yield the instances of one document: sentences gathered up to a length, parted into A and B."""
        document = self.documents[number]
        aim = self.aim()
        gathered: list[Sentence] = []
        size = place = 0
        while place < len(document):
            gathered.append(document[place])
            size += len(document[place])
            place += 1
            if size < aim and place < len(document):
                continue
            middle = self.rng.randint(1, len(gathered) - 1) if len(gathered) > 1 else 1
            first = [piece for sentence in gathered[:middle] for piece in sentence]
            random_next = len(gathered) == 1 or self.rng.random() < 0.5
            if random_next:
                second = self.elsewhere(number, aim - len(first))
                place -= len(gathered) - middle  # what B displaced is used for the next instance
            else:
                second = [piece for sentence in gathered[middle:] for piece in sentence]
            self.truncate(first, second)
            yield self.masked(first, second, random_next)
            gathered, size = [], 0
            aim = self.aim()

    def aim(self) -> int:
        return self.rng.randint(2, self.room) if self.rng.random() < SHORT else self.room

    def elsewhere(self, number: int, size: int) -> Sentence:
        """Return text of a random other document, from a random sentence on, until there is enough."""
        for _ in range(10):
            other = self.rng.randint(0, len(self.documents) - 1)
            if other != number:
                break
        document = self.documents[other]
        found: Sentence = []
        for place in range(self.rng.randint(0, len(document) - 1), len(document)):
            found.extend(document[place])
            if len(found) >= size:
                break
        return found

    def truncate(self, first: Sentence, second: Sentence) -> None:
        """Take one piece at a time from the longer text, at its front or back, until both fit."""
        while len(first) + len(second) > self.room:
            longer = first if len(first) > len(second) else second
            if self.rng.random() < 0.5:
                del longer[0]
            else:
                longer.pop()

    def masked(self, first: Sentence, second: Sentence, random_next: bool) -> Instance:
        """Return the sequence with its specials, and 15% of its pieces masked."""
        pieces, segments = ["[CLS]"], [0]
        for segment, text in enumerate((first, second)):
            for piece in text:
                pieces.append(piece)
                segments.append(segment)
            pieces.append("[SEP]")
            segments.append(segment)
        candidates = [place for place, piece in enumerate(pieces) if piece not in ("[CLS]", "[SEP]")]
        self.rng.shuffle(candidates)
        count = min(self.limit, max(1, round(len(pieces) * RATE)))
        chosen = []
        shown = list(pieces)
        for place in candidates[:count]:
            chosen.append((place, pieces[place]))
            draw = self.rng.random()
            if draw < 0.8:
                shown[place] = "[MASK]"
            elif draw < 0.9:
                shown[place] = self.vocabulary[self.rng.randint(0, len(self.vocabulary) - 1)]
        chosen.sort()
        return Instance(
            pieces=shown,
            segments=segments,
            random_next=random_next,
            positions=[place for place, _ in chosen],
            labels=[piece for _, piece in chosen],
        )

    def arrays(self, instances: Sequence[Instance]) -> dict[str, np.ndarray]:
        """Return instances as an array of each feature."""
        rows = [self.features(instance) for instance in instances]
        return {name: np.array([row[name] for row in rows]) for name in rows[0]}

    def features(self, instance: Instance) -> dict[str, list[int] | list[float]]:
        """Return an instance as ids, padded to the longest length."""
        ids = [self.ids[piece] for piece in instance.pieces]
        labels = [self.ids[piece] for piece in instance.labels]
        pad = [0] * (self.length - len(ids))
        rest = [0] * (self.limit - len(labels))
        return {
            "input_ids": ids + pad,
            "input_mask": [1] * len(ids) + pad,
            "segment_ids": instance.segments + pad,
            "masked_lm_positions": instance.positions + rest,
            "masked_lm_ids": labels + rest,
            "masked_lm_weights": [1.0] * len(labels) + [0.0] * len(rest),
            "next_sentence_labels": [int(instance.random_next)],
        }


if __name__ == "__main__":
    main()
