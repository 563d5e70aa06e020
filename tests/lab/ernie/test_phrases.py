"""Phrases among pieces: as a plain search finds them, and what becomes of word starts and of masks."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from osbert.corpus.encode import encode_portion
from osbert.data.examples import Examples
from osbert.data.noise import Noise
from osbert.data.pack import Packer
from osbert.objectives.mlm import MaskedLanguage
from osbert.text.tokenizer import SPECIALS, Tokenizer
from osbert_lab.ernie.phrases import LONGEST, Phrases

TOKENIZER = Tokenizer([*SPECIALS, *"abc", "##a", "##b", "."])
WORDS = st.sampled_from(["a", "b", "c", "aa", "bab", "."])


@settings(max_examples=30)
@given(
    texts=st.lists(st.lists(WORDS, min_size=1, max_size=9), min_size=1, max_size=5),
    phrases=st.lists(st.lists(WORDS, min_size=1, max_size=4).map(" ".join), max_size=6),
)
def test_they_are_found_as_words_are_from_left_to_right(texts: list[list[str]], phrases: list[str]) -> None:
    spelt = [sorted({tuple(phrase.split()) for phrase in phrases}, key=len, reverse=True)]
    expected: list[bool] = []
    for words in texts:
        at = 0
        while at < len(words):
            # The longest phrase in pieces; those of a single piece mark nothing that a word does not.
            fits = [one for one in spelt[0] if tuple(words[at : at + len(one)]) == one]
            fits = [one for one in fits if 1 < sum(map(len, one)) <= LONGEST]
            size = len(max(fits, key=lambda one: sum(map(len, one)))) if fits else 1
            pieces = sum(map(len, words[at : at + size]))
            expected += [True] + [False] * (pieces - 1)
            at += size
    ids = [TOKENIZER.encode(" ".join(words)) for words in texts]
    bounds = np.cumsum([0, *map(len, ids)])
    joined = np.concatenate(ids)
    merged = Phrases(phrases, TOKENIZER).merge_words(~TOKENIZER.continuation[joined], joined, bounds)
    assert merged.tolist() == expected


def test_the_unknown_and_the_too_long_are_left_out() -> None:
    assert len(Phrases(["a x", "a", "a " * (LONGEST + 1), "a b", "A  B"], TOKENIZER)) == 1


def test_a_phrase_is_masked_as_a_whole() -> None:
    """15% of the pieces are chosen, and no phrase is ever chosen in part, in a corpus of single words and phrases."""
    rng = np.random.default_rng(0)
    units = [rng.choice(["aa b c", "a", "b", "c"]) for _ in range(4000)]
    encoded = encode_portion([(" ".join(units), True)], TOKENIZER, phrases=Phrases(["aa b c"], TOKENIZER))
    ids = np.frombuffer(encoded.ids, TOKENIZER.id_type).astype(np.int32)
    starts = np.unpackbits(encoded.words, count=len(ids)).astype(np.bool_)
    assert int(starts.sum()) == len(units)
    packer = Packer(tokenizer=TOKENIZER, length=102)
    firsts = np.flatnonzero(starts)
    cuts = [int(firsts[np.searchsorted(firsts, at)]) for at in range(0, len(ids) - 200, 100)]
    rows = Examples.of([packer.single(ids[a:b], starts[a:b]) for a, b in itertools.pairwise(cuts)])
    masked = MaskedLanguage(unit="words", mask=1.0, random=0.0).corrupt_all(
        rows, packer, Noise.at(0, np.arange(len(rows)))
    )
    chosen = np.zeros(len(rows.ids), np.bool_)
    index = masked.targets["mlm"].index
    assert index is not None
    chosen[index] = True
    unit = np.cumsum(rows.words | rows.special)
    assert all(len({*chosen[unit == number].tolist()}) == 1 for number in np.unique(unit[~rows.special])[:400])
    assert 0.14 < chosen.sum() / len(rows.ids) < 0.152
