"""Texts with [MASK] in them, and the likeliest pieces for each mask by a pretrained model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from osbert.data.example import Example
from osbert.data.pack import Packer, PieceRun
from osbert.evaluation.forward import TOKENS, batches, evaluating
from osbert.models.contract import Learner
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert.text.file_tokenizer import AnyTokenizer, FileTokenizer
from osbert.text.tokenizer import SPECIALS

MASK = SPECIALS[-1]


class MaskFill(NamedTuple):
    """A piece for a mask, and its probability."""

    piece: str
    probability: float


def masked(text: str, packer: Packer) -> Example:
    """Return a text as a sequence in which each [MASK] is the mask piece; other specials are cut as any text is."""
    tokenizer = packer.tokenizer
    if isinstance(tokenizer, FileTokenizer):  # it knows its mask in a text, and whose the spaces around it are
        pieces = tokenizer.encode(text.replace(MASK, tokenizer.vocabulary[tokenizer.mask]))
    else:
        ids: list[int] = []
        for number, part in enumerate(text.split(MASK)):
            ids += ([tokenizer.mask] if number else []) + tokenizer.encode(part).tolist()
        pieces = np.array(ids, np.int32)
    return packer.single(*PieceRun.of(pieces, tokenizer))


def fill(
    learner: Learner, head: MaskedLanguageHead, examples: Sequence[Example], tokenizer: AnyTokenizer, *, top: int
) -> list[list[list[MaskFill]]]:
    """Return for each sequence, for each mask in it, the `top` likeliest pieces of the whole vocabulary."""
    fillings: list[list[list[MaskFill]]] = [[] for _ in examples]
    with evaluating(learner) as device:
        for batch in batches(examples, tokens=TOKENS):
            there = batch.to(device)
            index = (there.ids == tokenizer.mask).nonzero().squeeze(1)  # (M,)
            logits = head.scores(learner.backbone(there).hidden[index]).float()  # (M, V)
            best = logits.softmax(dim=-1).topk(min(top, logits.shape[1]))
            sequences = torch.searchsorted(there.starts, index, right=True) - 1
            numbers = batch.records[sequences.cpu()]
            for number, probabilities, ids in zip(numbers.tolist(), best.values.tolist(), best.indices.tolist()):
                fillings[number].append([MaskFill(*one) for one in zip(tokenizer.tokens(ids), probabilities)])
    return fillings
