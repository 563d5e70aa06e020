"""Pools of pairs: partners are of another source, however a document was cut, on corpora of a few giant documents."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from osbert.corpus import build as build_module
from osbert.corpus.build import Build
from osbert.corpus.shards import Corpus
from osbert.corpus.state import BuildSettings
from osbert.data.loader import LoaderSettings, PretrainingLoader
from osbert.data.pack import Packer, trim_lengths
from osbert.data.pairs import Elsewhere, pairs, plan_pairs, sentences_of
from osbert.data.sequences import Sequences
from osbert.data.step import Cursor
from osbert.objectives.nsp import ELSEWHERE, FOLLOWS, NextSentence
from osbert.reading import documents as readers
from osbert.reading.documents import DocumentOptions
from osbert.text.document import Document, Documents, sources
from osbert.text.tokenizer import Tokenizer
from refusals import refusal

BOOK = 9_000
"""Words in a giant document; word k of book b is "w" + (b * BOOK + k), so that every piece tells its place."""


def test_partners_are_of_another_source_and_any_sentence_of_those(
    tokenizer: Tokenizer, make_documents: Callable[..., list[Document]]
) -> None:
    """Parts of one source may stand apart."""
    parts = make_documents([[2] * 3, [2] * 2, [2], [], [2] * 4, [2] * 2])
    documents = Documents.of([replace(part, source=source) for part, source in zip(parts, (7, 3, None, None, 7, 3))])
    sentences = sentences_of(documents, Packer(tokenizer=tokenizer, length=32))
    rng, tries = np.random.default_rng(0), 2000
    for sentence, number in enumerate(sentences.numbers.tolist()):
        own = parts_of(documents, number)
        allowed = [place for place, other in enumerate(sentences.numbers.tolist()) if other not in own]
        drawn = Elsewhere(sentences).partners(np.full(tries, sentence), rng)
        hits = np.bincount(drawn, minlength=len(sentences)) / tries
        assert np.flatnonzero(hits).tolist() == allowed
        share = 1 / len(allowed)
        assert np.abs(hits[allowed] - share).max() < 4.5 * np.sqrt(share * (1 - share) / tries)


def parts_of(documents: Documents, number: int) -> set[int]:
    """Return the documents that are of one source with a document."""
    source = documents[number].source
    if source is None:
        return {number}
    return {other for other, document in enumerate(documents) if document.source == source}


lengths_of_texts = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=6)


@given(sizes=lengths_of_texts, length=st.integers(5, 40), seed=st.integers(0, 9))
def test_a_pair_keeps_a_run_of_each_text(
    tokenizer: Tokenizer,
    make_documents: Callable[..., list[Document]],
    sizes: list[tuple[int, int]],
    length: int,
    seed: int,
) -> None:
    for example, (first, second) in zip(laid_out(tokenizer, make_documents, sizes, length, seed), sizes):
        kept = [example.ids[(example.segments == segment) & ~example.special] for segment in (0, 1)]
        assert [*map(len, kept)] == [int(k) for k in trim_lengths(np.array(first), np.array(second), length - 3)]
        assert all(np.diff(run).tolist() == [1] * (len(run) - 1) for run in kept)
        assert example.truncated == first + second - sum(map(len, kept))
        label = example.targets["order"]
        assert (label.labels.tolist(), label.index) == ([first % 2], None)


def laid_out(
    tokenizer: Tokenizer, make: Callable[..., list[Document]], sizes: list[tuple[int, int]], length: int, seed: int = 0
) -> Sequences:
    """Return pairs of the two sentences of each document, labelled with the first one's length modulo 2."""
    documents = Documents.of(make(sizes))
    bounds = documents.sentences
    texts = (bounds[:-1:2], bounds[1::2], bounds[1::2], bounds[2::2])
    packer, rng = Packer(tokenizer=tokenizer, length=length), np.random.default_rng(seed)
    return pairs(documents, texts, packer, rng, {"order": np.array([first % 2 for first, _ in sizes])})


def test_a_pair_is_cut_at_both_ends_alike(tokenizer: Tokenizer, make_documents: Callable[..., list[Document]]) -> None:
    examples = laid_out(tokenizer, make_documents, [(50, 5)] * 400, 23)
    fronts = np.array([example.ids[1] - 5 - 55 * number for number, example in enumerate(examples)])
    surplus = 50 - 15
    # A coin for each of 35 pieces: mean 17.5, standard deviation 3.
    assert abs(fronts.mean() - surplus / 2) < 4 * np.sqrt(surplus / 4 / 400)
    assert 2 < fronts.std() < 4


def test_texts_are_gathered_up_to_an_aim_and_parted_at_any_sentence(
    tokenizer: Tokenizer, make_documents: Callable[..., list[Document]]
) -> None:
    packer = Packer(tokenizer=tokenizer, length=23, short=0.0)  # room for 20 pieces
    sentences = sentences_of(Documents.of(make_documents([[4, 4, 4, 9], [7]] * 200)), packer)
    aims, middles, lasts = plan_pairs(sentences, packer, np.random.default_rng(0))
    assert (aims == 20).all()
    firsts = np.arange(0, len(sentences), 5)
    assert (lasts[firsts] - firsts == 4).all()  # 12 pieces are too few, and 21 just enough
    assert set(middles[firsts] - firsts) == {1, 2, 3}
    alone = firsts + 4
    assert (middles[alone] == lasts[alone]).all() and (lasts[alone] == alone + 1).all()


@pytest.fixture
def giant(tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Corpus]:
    """Return a maker of a corpus of books, one a file, each cut over many shards."""
    monkeypatch.setattr(build_module, "PORTION", 2000)
    monkeypatch.setattr(readers, "CHUNK", 2000)

    def make(*sizes: int) -> Corpus:
        folder = tmp_path / "books"
        folder.mkdir()
        for book, words in enumerate(sizes):
            first = book * BOOK
            lines = (
                " ".join(f"w{first + k}" for k in range(start, min(start + 8, words))) for start in range(0, words, 8)
            )
            (folder / f"{book}.txt").write_text("\n".join(lines) + "\n")
        settings = BuildSettings(reading=DocumentOptions(documents="file"), shard_tokens=2500)
        build = Build.prepare([folder], tokenizer=tokenizer, folder=tmp_path / "corpus", settings=settings)
        build.run()
        return Corpus.open(tmp_path / "corpus")

    return make


def books(ids: np.ndarray, tokenizer: Tokenizer) -> np.ndarray:
    """Return the book of each piece."""
    words = [int(tokenizer.vocabulary[piece][1:]) for piece in ids.tolist()]
    return np.array(words) // BOOK


def test_parts_of_a_document_have_its_number_in_every_block_and_shard(
    giant: Callable[..., Corpus], tokenizer: Tokenizer
) -> None:
    corpus = giant(BOOK, 20, BOOK // 2)
    assert corpus.documents == 3
    assert len(corpus.manifest["shards"]) > 4
    seen = []
    for block in corpus.blocks(700):
        for document in corpus.read(block):
            assert set(books(document.ids, tokenizer)) == {document.source}
            seen.append(document.source)
    assert seen == sorted(seen) and set(seen) == {0, 1, 2}


@pytest.mark.parametrize("sizes", [(BOOK, BOOK), (BOOK, 3000, BOOK)])
def test_next_sentences_of_giant_documents_are_never_from_elsewhere_in_the_same(
    giant: Callable[..., Corpus], tokenizer: Tokenizer, sizes: tuple[int, ...]
) -> None:
    settings = LoaderSettings(batch=1, pool=1500, held_out=0.05)
    packer = Packer(tokenizer=tokenizer, length=40)
    loader = PretrainingLoader(giant(*sizes), {"nsp": NextSentence()}, packer, settings)
    batches = [*loader.make_held_out(), *(step.batches[0] for step in itertools.islice(loader.steps(Cursor()), 700))]
    labels = []
    for batch in batches:
        for number, label in zip(batch.targets["nsp"].index.tolist(), batch.targets["nsp"].labels.tolist()):
            here = slice(int(batch.starts[number]), int(batch.starts[number]) + batch.lengths[number])
            ids, segments = batch.ids[here].numpy(), batch.segments[here].numpy()
            inside = ids >= 5
            (first,), (second,) = (set(books(ids[inside & (segments == part)], tokenizer)) for part in (0, 1))
            assert (first == second) == (label == FOLLOWS)
            labels.append(label)
    assert 0.4 < np.mean(np.array(labels) == ELSEWHERE) < 0.6


def test_a_giant_beside_a_small_document_keeps_out_no_more_than_is_asked_for(
    giant: Callable[..., Corpus], tokenizer: Tokenizer
) -> None:
    """Blocks that lack another source are passed over, not held out with those that have one."""
    corpus, packer = giant(BOOK, 700), Packer(tokenizer=tokenizer, length=40)
    for seed in range(5):
        settings = LoaderSettings(batch=1, pool=500, held_out=0.03, seed=seed)
        held = PretrainingLoader(corpus, {"nsp": NextSentence()}, packer, settings).held
        documents = [document for block in held for document in corpus.read(block)]
        assert sources(documents) == 2
        assert sum(map(len, documents)) < 0.1 * corpus.tokens


def test_what_cannot_be_held_out_beside_a_single_source_is_said(
    giant: Callable[..., Corpus], tokenizer: Tokenizer
) -> None:
    """The second document is shorter than a block: held out, it would leave one source to train on."""
    corpus, packer = giant(BOOK, 20), Packer(tokenizer=tokenizer, length=40)
    with refusal("too-little-data", "0.05"):
        PretrainingLoader(corpus, {"nsp": NextSentence()}, packer, LoaderSettings(batch=1, held_out=0.05))
    loader = PretrainingLoader(corpus, {"nsp": NextSentence()}, packer, LoaderSettings(batch=1, held_out=0.0, pool=500))
    assert len(list(itertools.islice(loader.steps(Cursor()), 5))) == 5
