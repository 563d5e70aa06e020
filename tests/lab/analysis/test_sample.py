"""What is read of a text that is longer than a model reads: any part of it."""

from __future__ import annotations

import numpy as np
import pytest

from osbert.data.pack import Packer
from osbert.text.tokenizer import SPECIALS, Tokenizer
from osbert_lab.analysis.sample import text_sample

WORDS = [f"w{number}" for number in range(300)]
SIGNS = [chr(0x4E00 + number) for number in range(300)]  # Chinese, without spaces


@pytest.mark.parametrize(("pieces", "between"), [(WORDS, " "), (SIGNS, "")])
@pytest.mark.parametrize("count", [40, 300])
def test_any_part_of_a_long_text_may_be_read(pieces: list[str], between: str, count: int) -> None:
    packer = Packer(tokenizer=Tokenizer([*SPECIALS, *pieces]), length=12)
    text = between.join(pieces[:count])
    rng = np.random.default_rng(0)
    sample = text_sample([text] * 200, packer, count=200, shortest=12, rng=rng)
    places = np.array([example.ids[1:-1] for example in sample.examples]) - len(SPECIALS)
    assert sample.cut == 200 and len(places) > 150  # a part at the very end may be shorter
    assert (np.diff(places) == 1).all() and places.min() < count * 0.1 and places.max() > count * 0.9
    assert places[:, 0].mean() == pytest.approx((count - 10) / 2, rel=0.2)
