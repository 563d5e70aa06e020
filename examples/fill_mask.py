"""Asks a pretrained encoder what stands at [MASK]: python examples/fill_mask.py RUN "The capital [MASK] a city."."""

from __future__ import annotations

import sys

import numpy as np
import torch

import osbert
from osbert.data.batch import collate
from osbert.interop.folder import open_folder
from osbert.models.contract import Learner
from osbert.models.heads.predictions import MaskedLanguageHead


def main(run: str, text: str) -> None:
    """Print the five likeliest pieces for each [MASK] of a text."""
    engine = osbert.load(run)
    tokenizer, backbone = engine.tokenizer, engine.learner.backbone
    head = MaskedLanguageHead(backbone)
    learner = Learner(backbone, {"mlm": head})
    open_folder(run).fill(learner).require_complete(run)
    learner.eval()

    parts = [tokenizer.encode(part) for part in text.split("[MASK]")]
    ids = np.concatenate([piece for part in parts for piece in (part, [tokenizer.mask])][:-1]).astype(np.int32)
    batch = collate([engine.packer.single(ids, ~tokenizer.continuation[ids])])
    with torch.no_grad():
        hidden = backbone(batch).hidden[batch.ids == tokenizer.mask]  # (M, D)
        shares = head.scores(hidden).softmax(dim=-1)  # (M, V)
    for row in shares:
        best = row.topk(5)
        print(
            "  ".join(
                f"{tokenizer.tokens([i])[0]} {p:.1%}" for p, i in zip(best.values.tolist(), best.indices.tolist())
            )
        )


if __name__ == "__main__":
    main(*sys.argv[1:3])
