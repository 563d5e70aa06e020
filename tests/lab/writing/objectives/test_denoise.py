"""Denoising: the noises of BART as distributions, what they leave alone, and the sentences that reach them."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare, poisson

from osbert.data.example import Example
from osbert.data.examples import Examples
from osbert.data.pack import Packer
from osbert.models.architecture import Architecture
from osbert.text.document import Document
from osbert.text.tokenizer import SPECIALS, Tokenizer
from osbert_lab.writing.objectives.denoise import Denoise, Fate, permute_sentences, span_lengths
from osbert_lab.writing.pair_architecture import PairArchitecture
from refusals import refusal

TOKENIZER = Tokenizer([*SPECIALS, *(f"w{number}" if number % 3 else f"##w{number}" for number in range(1, 601))])
PACKER = Packer(tokenizer=TOKENIZER, length=602, short=0)
FIRST = len(SPECIALS)
NONE: dict[str, float] = dict.fromkeys(("infilling", "permutation"), 0.0)


def text(pieces: int, sentences: tuple[int, ...] = (0,)) -> Example:
    """Return a text of words of one piece and of two, in turn; `sentences`: the pieces that start one."""
    ids = np.arange(FIRST, FIRST + pieces)
    starts = np.zeros(pieces + 2, np.bool_)
    starts[1 + np.array(sentences)] = True
    return replace(PACKER.single(ids, ~TOKENIZER.continuation[ids]), sentences=starts)


def noisy(example: Example, seed: int = 0, **settings: Any) -> list[int]:
    """Return what is read of an example in place of its pieces; what is written must be the whole text."""
    found = Denoise(**NONE | settings).corrupt(example, PACKER, np.random.default_rng(seed))
    assert found.source is not None and found.sentences is found.source.sentences is None
    assert found.targets["denoise"].labels.tolist() == example.ids.tolist()
    assert found.ids.tolist() == [TOKENIZER.sep, *example.ids[:-1].tolist()]
    assert (found.source.ids[0], found.source.ids[-1]) == (TOKENIZER.cls, TOKENIZER.sep)
    assert found.source.special.tolist() == [True, *[False] * (len(found.source) - 2), True]
    return found.source.ids.tolist()[1:-1]


@pytest.mark.parametrize("noise", [{"infilling": 0.6}, {"masking": 0.9}, {"deletion": 0.9}, {"permutation": 1.0}])
def test_words_that_name_languages_stay_in_their_place(noise: dict[str, float]) -> None:
    """mBART (Liu et al. 2020): the decoder is told which language to write."""
    objective = Denoise(**NONE | noise, languages=("w100", "w101"))
    marks = [TOKENIZER.vocabulary.index(word) for word in objective.languages]
    example = text(60, (0, 7, 20, 33))
    ids = example.ids.copy()
    ids[[1, 19]] = marks  # before the text, and within it
    example = replace(example, ids=ids)
    for seed in range(20):
        found = objective.corrupt(example, PACKER, np.random.default_rng(seed))
        assert found.source is not None and found.source.ids[1] == marks[0]
        assert (found.source.ids == marks[1]).sum() == 1 and (found.source.ids == marks[0]).sum() == 1
        assert found.targets["denoise"].labels.tolist() == ids.tolist()
    with refusal("invalid-setting", "nowhere"):
        list(Denoise(languages=("w100", "nowhere")).examples([], PACKER, np.random.default_rng(0)) or [])


def test_a_corpus_without_the_words_of_its_languages_is_remarked() -> None:
    documents = [
        Document(ids=ids, sentences=np.array([0, len(ids)]), words=np.ones(len(ids), np.bool_))
        for ids in (np.array(TOKENIZER.encode(words)) for words in ("w100 w4 w7", "w101 w4", "w4 w100"))
    ]
    alone = Packer(tokenizer=TOKENIZER, length=8, short=0, cross_documents=False)
    for languages, remark in ((("w100", "w101"), ""), (("w100",), "1 of 3 sequences"), ((), "")):
        objective = Denoise(languages=languages)
        idle = objective.idle(objective.examples(documents, alone, np.random.default_rng(0)))
        assert remark in idle and bool(remark) == bool(idle)


def words_of(ids: list[int]) -> int:
    return int((~TOKENIZER.continuation[np.array(ids)]).sum())


def test_each_noise_does_its_share_to_whole_words() -> None:
    example = text(300)
    whole = example.ids.tolist()[1:-1]
    words = words_of(whole)
    assert noisy(example) == whole
    masked = noisy(example, masking=0.3)
    gone = [piece for piece, shown in zip(whole, masked, strict=True) if shown != piece]
    assert words_of(gone) == math.ceil(0.3 * words) and set(masked) - set(whole) == {TOKENIZER.mask}
    kept = noisy(example, deletion=0.3)
    assert kept == [piece for piece in whole if piece in kept]
    assert words_of([piece for piece in whole if piece not in kept]) == math.ceil(0.3 * words)
    infilled = noisy(example, infilling=0.3)
    assert words_of([piece for piece in whole if piece not in infilled]) == math.ceil(0.3 * words)
    assert 0 < infilled.count(TOKENIZER.mask) < 0.2 * words
    turned = noisy(example, rotation=1.0)
    place = turned.index(whole[0])
    assert place and turned[place:] + turned[:place] == whole
    every = noisy(example, infilling=0.3, masking=0.3, deletion=0.3)
    assert words_of([piece for piece in whole if piece not in every]) == 3 * math.ceil(0.3 * words)
    mixed = noisy(example, masking=0.5, random=0.4)
    shown = [other for piece, other in zip(whole, mixed, strict=True) if other != piece]
    assert 0.3 < 1 - shown.count(TOKENIZER.mask) / len(shown) < 0.5


def test_spans_are_poissons_and_reach_their_share() -> None:
    rng = np.random.default_rng(0)
    found: list[int] = []
    for _ in range(400):
        lengths = span_lengths(60, 3.0, rng).tolist()
        assert sum(lengths) == 60
        found += lengths[:10]  # those before any that could be trimmed, as good as always
    counts = [found.count(length) for length in range(7)]
    shares = poisson.pmf(range(7), 3.0)
    expected = np.append(shares, 1 - shares.sum()) * len(found)
    assert chisquare([*counts, len(found) - sum(counts)], expected).pvalue > 0.01
    assert len(span_lengths(0, 3.0, rng)) == 0


def test_any_order_of_fates_is_as_likely_as_any_other() -> None:
    rng = np.random.default_rng(1)
    objective = Denoise(infilling=0.0, masking=0.25, deletion=0.5)
    found = Counter(tuple(objective.fates(4, rng)[0].tolist()) for _ in range(6000))
    assert len(found) == 12 and all(sorted(one) == [Fate.KEPT, Fate.MASKED, *[Fate.DELETED] * 2] for one in found)
    assert chisquare([*found.values()]).pvalue > 0.01
    fates, sizes = Denoise(infilling=0.5).fates(40, rng)
    assert sizes.sum() == 40 and sizes[fates == Fate.INFILLED].sum() == 20


def test_sentences_change_places_and_stay_whole() -> None:
    rng = np.random.default_rng(2)
    starts = np.array([True, False, True, True, False])
    found = Counter(tuple(permute_sentences(starts, 1.0, rng).tolist()) for _ in range(3000))
    assert set(found) == {
        *((0, 1, 2, 3, 4), (0, 1, 3, 4, 2), (2, 0, 1, 3, 4)),
        *((2, 3, 4, 0, 1), (3, 4, 0, 1, 2), (3, 4, 2, 0, 1)),
    }
    assert chisquare([*found.values()]).pvalue > 0.01
    some = [permute_sentences(np.ones(10, np.bool_), 0.3, rng) for _ in range(200)]
    moved = [int((places != np.arange(10)).sum()) for places in some]
    assert max(moved) == 3 and 1 not in moved
    example = text(30, sentences=(0, 7, 20))
    read = noisy(example, permutation=1.0, seed=3)
    assert sorted(read) == example.ids.tolist()[1:-1] != read
    alone = noisy(replace(example, sentences=None), permutation=1.0)
    assert alone == example.ids.tolist()[1:-1]  # one sentence


def test_a_rotated_text_begins_anywhere() -> None:
    example = text(8)
    found = Counter(noisy(example, seed, rotation=0.5)[0] for seed in range(4000))
    others = [count for piece, count in found.items() if piece != FIRST]
    assert len(others) == 7 and chisquare(others).pvalue > 0.01
    assert 0.5 < found[FIRST] / 4000 < 0.62  # half of them stay, and an eighth of the rest


def test_separators_stay_and_a_source_is_never_too_long() -> None:
    example = text(40, sentences=(0, 21))
    special, ids = example.special.copy(), example.ids.copy()
    special[20], ids[20] = True, TOKENIZER.sep
    parted = replace(example, special=special, ids=ids, words=example.words & ~special)
    for seed in range(20):
        found = Denoise(infilling=0.5, masking=0.2, deletion=0.3).corrupt(parted, PACKER, np.random.default_rng(seed))
        assert found.source is not None
        assert found.source.ids[found.source.special].tolist() == [TOKENIZER.cls, TOKENIZER.sep, TOKENIZER.sep]
    tight = Packer(tokenizer=TOKENIZER, length=12)
    short = tight.single(np.arange(FIRST, FIRST + 10), np.ones(10, np.bool_))
    sizes = [
        len(Denoise(infilling=1.0, span=1.0).corrupt(short, tight, np.random.default_rng(seed)).source or ())
        for seed in range(200)
    ]
    assert max(sizes) == 12 and min(sizes) < 12


def test_the_sentences_of_a_corpus_reach_it() -> None:
    words = np.ones(12, np.bool_)
    documents = [
        Document(ids=np.arange(20, 32), sentences=np.array([0, 3, 3, 8, 12]), words=words),
        Document(ids=np.arange(40, 52), sentences=np.array([0, 12]), words=words),
    ]
    packer = Packer(tokenizer=TOKENIZER, length=30, short=0, cross_documents=True)
    (example,) = Examples.of([*Denoise().examples(documents, packer, np.random.default_rng(0))])
    assert example.sentences is not None
    assert example.ids[example.sentences].tolist() == [20, 23, 28, 40]
    found = Examples.of([example, replace(example, sentences=None)])
    assert found.sentences is not None and found.sentences.sum() == 4


def test_what_cannot_be_is_refused() -> None:
    (objection,) = Denoise().objections(Architecture(vocabulary=9))
    assert "pair" in objection
    (objection,) = Denoise().objections(PairArchitecture(vocabulary=9))
    assert "model.reading" in objection
    assert not [*Denoise().objections(PairArchitecture(vocabulary=9, reading="both", summary="last"))]
    for settings in ({"infilling": 1.1}, {"rotation": -0.1}, {"masking": 0.8}, {"span": 0.5}, {"random": 2.0}):
        with pytest.raises(ValueError, match=next(iter(settings))):
            Denoise(**settings)
    ((_, found, told),) = Denoise().rates([Denoise().corrupt(text(100), PACKER, np.random.default_rng(0))])
    assert 70 < float(found.rstrip("%")) < 90 and "infilling 30%" in told
