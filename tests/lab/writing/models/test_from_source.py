"""Texts written from a source, at the [MASK] of each piece or at the piece before it, with and without a cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from osbert.data.batch import collate
from osbert.data.example import Example
from osbert.data.pack import Packer
from osbert.models.architecture import Architecture
from osbert.models.families.transformer import Transformer
from osbert.models.forms import Writing
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert.text.tokenizer import SPECIALS, Tokenizer
from osbert_lab.writing.decoders import LeftToRightDecoder, decoder_of
from osbert_lab.writing.modes import source_of, with_mask, with_target
from osbert_lab.writing.search import Limits, WrittenRow, write
from osbert_lab.writing.settings import GenerationOptions

KINDS: dict[str, dict[str, Any]] = {
    "bert": {},
    "rotary, local": {"positions": "rotary", "window": 3, "global_every": 2, "local_base": 50.0},
    "scored distances": {"distance_scores": 8, "normalization": "pre"},
}
WRITES: tuple[Writing, ...] = ("masked", "shifted")
PACKER = Packer(tokenizer=Tokenizer([*SPECIALS, *(f"w{number}" for number in range(18))]), length=40)
MASK = PACKER.tokenizer.mask


def model(writes: Writing, **settings: Any) -> LeftToRightDecoder:
    torch.manual_seed(0)
    sizes = Architecture(layers=3, heads=4, width=16, length=40, vocabulary=len(PACKER.tokenizer), segments=6)
    backbone = Transformer(replace(sizes, deviation=0.5, **settings))
    backbone.initialise()
    decoder = decoder_of(backbone.eval(), MaskedLanguageHead(backbone, writes=writes).eval())
    assert decoder is not None
    return decoder


def sources(*lengths: int) -> list[Example]:
    rng = np.random.default_rng(3)
    return [source_of(rng.integers(5, 23, size=length), PACKER, most=12) for length in lengths]


def prompts(writes: Writing, given: Sequence[Example]) -> list[Example]:
    if writes == "shifted":
        return list(given)
    return [with_mask(source, PACKER) for source in given]


def scores(decoder: LeftToRightDecoder, writes: Writing, source: Example, pieces: Sequence[int]) -> Tensor:
    """Return the scores of the piece after some of a target, by one pass over all of it."""
    asked = [MASK] if writes == "masked" else []
    whole = with_target(source, np.array([*pieces, *asked], np.int64), PACKER, closed=False)
    return decoder.head.scores(decoder.backbone(collate([whole])).hidden[-1:])[0]  # type: ignore[operator]


@pytest.mark.parametrize("writes", WRITES)
@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_each_step_is_what_one_pass_over_source_and_target_gives(kind: str, writes: Writing) -> None:
    decoder, given = model(writes, **KINDS[kind]), sources(5, 9, 2)
    for chosen in (given, given[:1] * 2):  # of uneven lengths, and even
        found = decoder.begin(prompts(writes, chosen), most=9)
        written: list[list[int]] = [[] for _ in chosen]
        rows = list(range(len(chosen)))
        for moved in (None, None, rows[::-1], None, [0, *rows], None, None):
            for row, pieces, column in zip(rows, written, found, strict=True):
                torch.testing.assert_close(column, scores(decoder, writes, chosen[row], pieces), rtol=0, atol=1e-5)
                pieces.append(int(column.argmax()))
            if moved is not None:
                rows, written = [rows[one] for one in moved], [list(written[one]) for one in moved]
                decoder.choose(torch.tensor(moved))
            found = decoder.step(torch.tensor([pieces[-1] for pieces in written]))


@pytest.mark.parametrize("writes", WRITES)
@pytest.mark.parametrize("options", [{}, {"beams": 3}, {"sample": True, "seed": 5}])
@torch.inference_mode()
def test_a_text_is_the_same_alone_and_among_others(options: dict[str, Any], writes: Writing) -> None:
    decoder, given = model(writes), sources(4, 9, 1, 6)
    chosen, limits = GenerationOptions(most=10, **options), Limits(end=PACKER.tokenizer.sep)
    events = list(write(decoder, prompts(writes, given), chosen, limits))
    together = {event.row: event.pieces for event in events if isinstance(event, WrittenRow)}
    assert len({*together.values()}) > 1
    for row, source in enumerate(given):
        *_, last = write(decoder, prompts(writes, [source]), chosen, limits, numbers=[row])
        assert isinstance(last, WrittenRow) and last.pieces == together[row]
