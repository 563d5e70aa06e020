"""Texts with [MASK] in them, and the pieces that a pretrained model would put there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from osbert.data.example import Example
from osbert.data.pack import PieceRun
from osbert.evaluation.forward import TOKENS, batches, evaluating
from osbert.inference.engine import Engine
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert.text.file_tokenizer import FileTokenizer
from osbert.text.tokenizer import SPECIALS

MASK = SPECIALS[-1]


class Filling(NamedTuple):
    """A piece for a mask, and its probability."""

    piece: str
    probability: float


def masked(engine: Engine, text: str) -> Example:
    """Return a text as a sequence in which each [MASK] is the mask piece; other specials are cut as any text is."""
    tokenizer = engine.tokenizer
    if isinstance(tokenizer, FileTokenizer):  # it knows its mask in a text, and whose the spaces around it are
        pieces = tokenizer.encode(text.replace(MASK, tokenizer.specials["mask"]))
    else:
        ids: list[int] = []
        for number, part in enumerate(text.split(MASK)):
            ids += ([tokenizer.mask] if number else []) + tokenizer.encode(part).tolist()
        pieces = np.array(ids, np.int32)
    return engine.packer.single(*PieceRun.of(pieces, tokenizer))


def fill(
    engine: Engine, head: MaskedLanguageHead, examples: Sequence[Example], *, top: int
) -> list[list[list[Filling]]]:
    """Return for each sequence, for each mask in it, the `top` likeliest pieces of the whole vocabulary."""
    found: list[list[list[Filling]]] = [[] for _ in examples]
    with evaluating(engine.learner) as device:
        for batch in batches(examples, tokens=TOKENS):
            there = batch.to(device)
            index = (there.ids == engine.tokenizer.mask).nonzero().squeeze(1)  # (M,)
            scores = head.scores(engine.learner.backbone(there).hidden[index]).float()  # (M, V)
            best = scores.softmax(dim=-1).topk(min(top, scores.shape[1]))
            sequences = torch.searchsorted(there.starts, index, right=True) - 1
            places = batch.records[sequences.cpu()]
            for place, shares, ids in zip(places.tolist(), best.values.tolist(), best.indices.tolist()):
                found[place].append([Filling(*one) for one in zip(engine.tokenizer.tokens(ids), shares)])
    return found
