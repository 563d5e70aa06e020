"""Filling masks: the likeliest pieces for each [MASK] of a text under a masked language model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from osbert.data.example import Example, Integers
from osbert.data.pack import Packer, PieceRun
from osbert.evaluation.forward import TOKENS, batches, evaluating
from osbert.models.contract import Learner
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert.text.file_tokenizer import AnyTokenizer, FileTokenizer
from osbert.text.tokenizer import SPECIALS

MASK = SPECIALS[-1]
SCORES = 512
"""Most masks whose logits over the vocabulary are in memory at a time."""


class MaskFill(NamedTuple):
    """A piece for a mask, and its probability."""

    piece: str
    probability: float


def pack_with_masks(text: str, packer: Packer) -> Example:
    """Return the sequence of a text; each [MASK] becomes the mask piece, other special names are plain text."""
    return packer.single(*PieceRun.of(encode_with_masks(text, packer.tokenizer)[0], packer.tokenizer))


def encode_with_masks(text: str, tokenizer: AnyTokenizer) -> tuple[Integers, Integers, Integers]:
    """Return the piece ids (n,) of a text with masks, and their starts and ends (n,) in characters."""
    # A tokenizer from a file has its own spelling of the mask, and its own rule for the spaces around it. So its mask
    # is put into the text, and the offsets are mapped back to the text with [MASK].
    if isinstance(tokenizer, FileTokenizer):
        mask = tokenizer.vocabulary[tokenizer.mask]
        encoding = tokenizer.encode_with_offsets(text.replace(MASK, mask))
        origins = _origins(text, len(mask))
        return encoding.ids, origins[encoding.starts], origins[np.maximum(encoding.ends - 1, 0)] + 1
    parts: list[tuple[Integers, Integers, Integers]] = []
    begin = 0
    for number, part in enumerate(text.split(MASK)):
        if number:
            parts.append((np.array([tokenizer.mask]), np.array([begin - len(MASK)]), np.array([begin])))
        encoding = tokenizer.encode_with_offsets(part)
        parts.append((encoding.ids, begin + encoding.starts, begin + encoding.ends))
        begin += len(part) + len(MASK)
    ids, starts, ends = (np.concatenate(columns).astype(np.int32) for columns in zip(*parts, strict=True))
    return ids, starts, ends


def _origins(text: str, length: int) -> Integers:
    """Map offsets in a text whose masks have `length` characters to offsets in `text`; one past the end included.

    The characters of a mask map to the first one of [MASK], and its last character to the last one.
    """
    origins: list[int] = []
    begin = 0
    for number, part in enumerate(text.split(MASK)):
        if number:
            origins += [*[begin] * (length - 1), begin + len(MASK) - 1]
            begin += len(MASK)
        origins += range(begin, begin + len(part))
        begin += len(part)
    return np.array([*origins, begin])


def fill(
    learner: Learner, head: MaskedLanguageHead, examples: Sequence[Example], tokenizer: AnyTokenizer, *, top: int
) -> list[list[list[MaskFill]]]:
    """Return for each mask of each sequence the `top` likeliest pieces of the whole vocabulary."""
    fillings: list[list[list[MaskFill]]] = [[] for _ in examples]
    with evaluating(learner) as device:
        for batch in batches(examples, tokens=TOKENS):
            device_batch = batch.to(device)
            index = (device_batch.ids == tokenizer.mask).nonzero().squeeze(1)  # (M,)
            hidden = learner.backbone(device_batch).hidden
            # The batch is flat: a mask at position p belongs to the last sequence that starts at or before p.
            sequences = torch.searchsorted(device_batch.starts, index, right=True) - 1
            numbers = batch.records[sequences.cpu()]
            for own, positions in zip(numbers.split(SCORES), index.split(SCORES), strict=True):
                logits = head.scores(hidden[positions]).float()  # (M, V)
                best = logits.softmax(dim=-1).topk(min(top, logits.shape[1]))
                for number, probabilities, ids in zip(own.tolist(), best.values.tolist(), best.indices.tolist()):
                    fillings[number].append([MaskFill(*pair) for pair in zip(tokenizer.tokens(ids), probabilities)])
    return fillings
