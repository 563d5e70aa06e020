"""Processor seconds of a training step of ELMo's model, cells limited or not: bilm_speed.py [ROWS WORDS]

Limited cells are computed step by step here, others by torch's LSTM. The words of the rows are drawn by a power law.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import torch

from osbert.data.batch import Batch, collate
from osbert.data.example import Example
from osbert.data.examples import Examples
from osbert.data.noise import Noise
from osbert.data.pack import Packer
from osbert.models.contract import Learner
from osbert.text.train_file import word_tokenizer
from osbert_lab.recurrent.bilm_architecture import BilmArchitecture
from osbert_lab.recurrent.both_ways import BothWays

VOCABULARY = 10_000
STEPS = 3


def rows(count: int, words: int) -> Batch:
    """Return `count` rows of so many words between <s> and </s>, labelled."""
    packer = Packer(tokenizer=word_tokenizer((f"w{one}" for one in range(VOCABULARY - 5)), lowercase=False), length=512)
    rng = np.random.default_rng(0)
    drawn = 5 + np.minimum(rng.pareto(0.7, (count, words)) * 3, VOCABULARY - 6).astype(np.int32)
    found: list[Example] = [packer.single(one, np.ones(words, np.bool_)) for one in drawn]
    return collate(BothWays().corrupt_all(Examples.of(found), packer, Noise.at(0, np.arange(count))))


def main() -> None:
    """Print the mean of a few steps for each setting, after one that is not counted."""
    count, words = (int(one) for one in sys.argv[1:]) if len(sys.argv) == 3 else (32, 62)
    torch.set_num_threads(1)
    batch = rows(count, words)
    for clip in (3.0, 0.0):
        sizes = BilmArchitecture(width=256, cells=512, filters=256, vocabulary=VOCABULARY, dropout=0.0, clip=clip)
        backbone = sizes.build()
        learner = Learner(backbone, {"both_ways": BothWays().head(backbone)})
        start = 0.0
        for step in range(STEPS + 1):
            if step == 1:
                start = time.process_time()
            loss = learner(batch)["both_ways"]
            (loss.total / loss.count).backward()
        print(f"clip {clip:g}: {(time.process_time() - start) / STEPS:.2f} s of one core a step, {batch.tokens} tokens")


if __name__ == "__main__":
    main()
