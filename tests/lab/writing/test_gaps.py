"""Texts with gaps: which sentinel each gap gets, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import osbert
from osbert.text.file_tokenizer import sentinel_ids, with_sentinels
from osbert_lab.writing.gaps import encode_gaps
from refusals import refusal
from vocabularies import train

TEXT = "The lower the lowest, the newer the newest: wider widest low new wide. It was a low day, as wide as it was.\n"


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram", "words"])
def test_gaps_are_sentinels_by_their_order_or_name(kind: str, tmp_path: Path) -> None:
    size = 290 if kind == "bpe" else 60
    made = osbert.train_tokenizer([TEXT] * 9, out=tmp_path, kind=kind, vocabulary=size, sentinels=3, minimum=1)
    ids = sentinel_ids(made).tolist()
    found = encode_gaps("it was [MASK] low as [MASK]", made).tolist()
    assert [piece for piece in found if piece in ids] == ids[:2] and found[-1] == ids[1]
    assert found == encode_gaps("it was <extra_id_0> low as <extra_id_1>", made).tolist()
    plain = [made.encode(part).tolist() for part in ("it was", " low as")]
    assert found == [*plain[0], ids[0], *plain[1], ids[1]]


def test_without_them_gaps_are_the_mask_and_no_other_name_is_special() -> None:
    made = train([TEXT] * 9, vocabulary=60)
    found = encode_gaps("low [MASK] [CLS] <extra_id_0>", made).tolist()
    assert found.count(made.mask) == 1 and made.cls not in found
    assert found == [*made.encode("low").tolist(), made.mask, *made.encode("[CLS] <extra_id_0>").tolist()]
    few = with_sentinels(made, 2)
    marks = sentinel_ids(few).tolist()
    assert encode_gaps("[MASK] [MASK] <extra_id_7>", few).tolist()[:2] == marks


def test_more_gaps_than_sentinels_are_refused() -> None:
    few = with_sentinels(train([TEXT] * 9, vocabulary=60), 2)
    with refusal("too-many-gaps"):
        encode_gaps("[MASK] low [MASK] wide [MASK]", few)


@pytest.mark.parametrize("text", ["[MASK] low <extra_id_0>", "<extra_id_1> low <extra_id_1>"])
def test_two_gaps_with_one_sentinel_are_refused(text: str) -> None:
    few = with_sentinels(train([TEXT] * 9, vocabulary=60), 2)
    with refusal("repeated-gap", text.split()[-1]):
        encode_gaps(text, few)
    assert len(encode_gaps("[MASK] <extra_id_1> [CLS]", few)) > 2
