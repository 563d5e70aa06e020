"""Shows how pretraining hides pieces of a text, anew each epoch: python examples/watch_masking.py TOKENIZER TEXT."""

from __future__ import annotations

import sys

import numpy as np

from osbert.data.pack import Packer
from osbert.interop.tokenizers import read_tokenizer
from osbert.objectives.mlm import MaskedLanguage


def main(folder: str, text: str) -> None:
    """Print three epochs of one sequence; what is predicted stands in angle brackets behind what the model sees."""
    tokenizer = read_tokenizer(folder)
    packer = Packer(tokenizer=tokenizer, length=128)
    ids = tokenizer.encode(text)
    example = packer.single(ids, ~tokenizer.continuation[ids])
    objective = MaskedLanguage(rate=0.15)
    for epoch in range(3):
        shown = objective.corrupt(example, packer, np.random.default_rng(epoch))
        pieces = tokenizer.tokens(shown.ids)
        if target := shown.targets.get("mlm"):  # a text without pieces has nothing to predict
            for place, label in zip(target.index, tokenizer.tokens(target.labels)):
                pieces[place] += f"<{label}>"
        print(" ".join(pieces))


if __name__ == "__main__":
    main(*sys.argv[1:3])
