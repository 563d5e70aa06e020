"""tlm: a sentence and its translation as one sequence, laid out and masked as XLM does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from osbert.data.examples import Examples
from osbert.data.noise import Noise
from osbert.data.pack import Packer
from osbert.models.architecture import Architecture
from osbert.text.document import Document
from osbert.text.tokenizer import SPECIALS, Tokenizer
from osbert_lab.crosslingual.tlm import TranslationLanguage

TOKENIZER = Tokenizer([*SPECIALS, *(f"w{number}" for number in range(90))])
PACKER = Packer(tokenizer=TOKENIZER, length=16)


def documents(count: int, *, seed: int = 0, longest: int = 12) -> list[Document]:
    """Return documents of two sentences, and some of one and of three, which are no pairs."""
    rng, made = np.random.default_rng(seed), []
    for number in range(count):
        sizes = rng.integers(1, longest, size=2 if number % 4 else 1 + 2 * (number % 8 > 0))
        ids = rng.integers(len(SPECIALS), len(TOKENIZER), size=sizes.sum()).astype(np.uint16)
        bounds = np.concatenate([[0], np.cumsum(sizes)])
        made.append(Document(ids=ids, sentences=bounds, words=np.ones(len(ids), np.bool_)))
    return made


def laid_out(objective: TranslationLanguage, some: Sequence[Document], seed: int = 0) -> Examples:
    return Examples.of([*objective.examples(some, PACKER, np.random.default_rng(seed))])


def corrupted(objective: TranslationLanguage, some: Sequence[Document]) -> Examples:
    examples = laid_out(objective, some)
    return objective.corrupt_all(examples, PACKER, Noise.at(1, np.arange(len(examples))))


def expected_pairs(some: Sequence[Document]) -> list[tuple[list[int], list[int]]]:
    """Return the two texts of each pair, cut piece by piece from the longer one, written out one by one."""
    pairs = []
    for document in some:
        if len(document.sentences) != 3:
            continue
        first, second = (document.ids[a:b].tolist() for a, b in zip(document.sentences, document.sentences[1:]))
        while len(first) + len(second) > PACKER.room(2):
            (first if len(first) > len(second) else second).pop()
        pairs.append((first, second))
    return pairs


def test_pairs_are_as_a_loop_lays_them_out() -> None:
    some, form = documents(60), TOKENIZER.form
    examples = laid_out(TranslationLanguage(single=0), some)
    assert len(examples) == 45
    for example, (first, second) in zip(examples, expected_pairs(some), strict=True):
        assert example.ids.tolist() == [*form.before, *first, *form.between, *second, *form.after]
        assert example.segments.tolist() == [0] * (2 + len(first)) + [1] * (1 + len(second))


def test_each_text_has_the_positions_that_it_has_alone() -> None:
    some = documents(40)
    for example in corrupted(TranslationLanguage(single=0), some):
        assert example.positions is not None
        second = np.flatnonzero(example.segments == 1)
        assert example.positions[: second[0]].tolist() == list(range(second[0]))
        assert example.positions[second].tolist() == list(range(1, 1 + len(second)))
    for example in corrupted(TranslationLanguage(single=1), some):
        assert example.positions is not None and example.positions.tolist() == list(range(len(example)))
    assert corrupted(TranslationLanguage(reset_positions=False), some).positions is None


def test_some_documents_are_two_sequences_of_one_language() -> None:
    some = documents(400, longest=5)
    examples = laid_out(TranslationLanguage(single=0.5), some)
    kinds = [tuple(np.unique(example.segments)) for example in examples]
    alone, pairs = kinds.count((0,)), kinds.count((0, 1))
    assert alone == kinds.count((1,)) and alone + pairs == 300
    assert abs(alone - 150) < 45  # five deviations of a binomial
    # Nothing is lost and nothing is cut: together they have the pieces of all pairs.
    pieces = np.sort(np.concatenate([document.ids for document in some if len(document.sentences) == 3]))
    assert np.array_equal(np.sort(examples.ids[~examples.special]), pieces)


def test_what_is_cut_is_counted_once() -> None:
    some = documents(60, longest=30)
    total = sum(len(document.ids) for document in some if len(document.sentences) == 3)
    for single in (0.0, 0.4, 1.0):
        examples = laid_out(TranslationLanguage(single=single), some)
        assert int(examples.truncated.sum()) + int((~examples.special).sum()) == total


def test_masks_are_those_of_mlm_in_both_texts() -> None:
    some = documents(200)
    objective = TranslationLanguage(single=0, rate=0.3, mask=1.0, random=0.0)
    before, after = laid_out(objective, some), corrupted(objective, some)
    target = after.targets["tlm"]
    assert target.index is not None
    assert (after.ids[target.index] == TOKENIZER.mask).all() and (before.ids[target.index] == target.labels).all()
    changed = np.flatnonzero(before.ids != after.ids)
    assert np.array_equal(np.sort(target.index), changed) and not before.special[changed].any()
    assert {*np.unique(before.segments[changed])} == {0, 1}


def test_without_language_embeddings_all_have_one_segment() -> None:
    some = documents(20)
    plain, marked = (corrupted(TranslationLanguage(single=0, language_embeddings=on), some) for on in (False, True))
    assert not plain.segments.any() and marked.segments.any()
    assert plain.positions is not None and np.array_equal(plain.positions, marked.positions)
    objections = [*TranslationLanguage().objections(Architecture(vocabulary=100, segments=1))]
    assert len(objections) == 1 and "model.segments = 2" in objections[0]
    assert not [*TranslationLanguage(language_embeddings=False).objections(Architecture(vocabulary=100, segments=0))]
    with pytest.raises(ValueError, match="single"):
        TranslationLanguage(single=1.5)


def test_no_pairs_no_sequences() -> None:
    assert len(TranslationLanguage().examples(documents(1), PACKER, np.random.default_rng(0))) == 0
