"""The order of blocks: all of a corpus in each epoch; of a mixture each part in its share, and none again too soon."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import corpora
from osbert.corpus.shards import Corpus, Part, ShardBlock
from osbert.data.loader import BlockOrder, LoaderSettings, PretrainingLoader, in_proportion
from osbert.data.pack import Packer
from osbert.data.step import Cursor
from osbert.objectives.mlm import MaskedLanguage
from osbert.runs.corpus import tokenizer_of
from refusals import refusal

TOKENS = 100


@dataclass
class Mixed:
    """Parts of one shard each, in blocks of TOKENS pieces."""

    counts: Sequence[int]
    shares: Sequence[float]
    folder = Path("mixed")

    @property
    def mixed(self) -> bool:
        return len(self.counts) > 1

    @property
    def parts(self) -> list[Part]:
        whole = sum(self.shares)
        return [
            Part(name=f"part{place}", shards=1, tokens=count * TOKENS, fraction=share / whole)
            for place, (count, share) in enumerate(zip(self.counts, self.shares, strict=True))
        ]

    @property
    def blocks(self) -> list[ShardBlock]:
        return [ShardBlock(part, place, place + 1) for part, count in enumerate(self.counts) for place in range(count)]

    def size(self, block: ShardBlock) -> int:
        return TOKENS


def random(*key: int) -> np.random.Generator:
    return np.random.default_rng([7, *key])


@st.composite
def mixtures(draw: st.DrawFn) -> Mixed:
    counts = draw(st.lists(st.integers(1, 30), min_size=1, max_size=4))
    return Mixed(counts, draw(st.lists(st.floats(0.1, 10), min_size=len(counts), max_size=len(counts))))


@given(mixed=mixtures(), epochs=st.integers(1, 5))
def test_each_part_has_its_share_and_no_block_is_read_again_before_all_others(mixed: Mixed, epochs: int) -> None:
    order = BlockOrder.of(mixed, mixed.blocks)  # type: ignore[arg-type]
    read = [order.epoch(number, random) for number in range(epochs)]
    assert {len(epoch) for epoch in read} == {len(order)}
    times = Counter(itertools.chain(*read))
    for number, (part, count) in enumerate(zip(mixed.parts, mixed.counts)):
        each = [times[block] for block in mixed.blocks if block.shard == number]
        assert max(each) - min(each) <= 1
        assert abs(sum(each) / epochs - part.fraction * sum(mixed.counts)) <= 0.5 or sum(each) == epochs
        assert len(each) == count


@given(mixed=mixtures(), first=st.integers(1, 60))
def test_the_first_blocks_are_of_each_part_in_its_share(mixed: Mixed, first: int) -> None:
    ordered = in_proportion(mixed, mixed.blocks)  # type: ignore[arg-type]
    assert sorted(ordered, key=mixed.blocks.index) == mixed.blocks
    parts, head = len(mixed.counts), ordered[:first]
    if first <= sum(mixed.counts) - parts:
        assert all(Counter(block.shard for block in head)[part] < count for part, count in enumerate(mixed.counts))
    if all(count > first for count in mixed.counts):
        for number, part in enumerate(mixed.parts):
            assert abs(sum(block.shard == number for block in head) - part.fraction * first) < parts


@given(count=st.integers(1, 40), epoch=st.integers(0, 3))
def test_an_epoch_of_a_corpus_that_is_not_mixed_is_a_permutation(count: int, epoch: int) -> None:
    alone = Mixed([count], [1.0])
    order = BlockOrder.of(alone, alone.blocks)  # type: ignore[arg-type]
    expected = [alone.blocks[place] for place in random(epoch).permutation(count)]
    assert order.epoch(epoch, random) == expected
    assert in_proportion(alone, expected) == expected  # type: ignore[arg-type]


@pytest.fixture
def mixed(tmp_path: Path) -> Corpus:
    return corpora.cats_and_dogs(tmp_path)


def loader_of(corpus: Corpus, kind: Callable[..., PretrainingLoader] = PretrainingLoader) -> PretrainingLoader:
    packer = Packer(tokenizer=tokenizer_of(corpus), length=32)
    settings = LoaderSettings(batch=4, pool=1000, held_out=0.1)
    return kind(corpus, {"mlm": MaskedLanguage(rate=0.0001)}, packer, settings)


def test_a_loader_shows_the_parts_in_their_shares(mixed: Corpus) -> None:
    loader = loader_of(mixed)
    vocabulary = tokenizer_of(mixed).vocabulary
    cat, dog = (vocabulary.index(name) for name in ("cat", "dog"))
    for epoch in range(2):
        steps = itertools.takewhile(lambda step: step.cursor.epoch == epoch, loader.steps(Cursor(epoch=epoch)))  # noqa: B023
        ids = np.concatenate([batch.ids.numpy() for step in steps for batch in step.batches])
        cats, dogs = (int((ids == piece).sum()) for piece in (cat, dog))
        assert cats / (cats + dogs) == pytest.approx(0.75, abs=0.04)
    assert {block.shard for block in loader.held} > {0} and not set(loader.held) & set(loader.training)


def test_its_stream_goes_on_from_any_cursor(mixed: Corpus) -> None:
    loader = loader_of(mixed)
    steps = list(itertools.islice(loader.steps(Cursor()), 400))
    assert steps[-1].cursor.epoch
    for place in (3, 150, 390):
        again = next(loader.steps(steps[place - 1].cursor))
        assert again.cursor == steps[place].cursor
        assert [batch.ids.tolist() for batch in again.batches] == [batch.ids.tolist() for batch in steps[place].batches]


@pytest.mark.parametrize("duplicates", [1, 20])
def test_all_of_a_mixture_is_read_before_static_masks_repeat(
    mixed: Corpus, duplicates: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = loader_of(mixed)
    loader.settings = replace(loader.settings, duplicates=duplicates)
    period, real, read = max(duplicates, loader.order.cycle), BlockOrder.epoch, []

    def watched(order: BlockOrder, number: int, random: Callable[..., np.random.Generator]) -> list[ShardBlock]:
        read.append(real(order, number, random))
        return read[-1]

    monkeypatch.setattr(BlockOrder, "epoch", watched)
    for epoch in range(period + 1):
        next(loader.steps(Cursor(epoch=epoch)))
    assert loader.order.cycle > 1
    assert {*read[0]} < {*itertools.chain(*read)} == set(loader.training)
    assert [blocks == read[0] for blocks in read] == [True, *[False] * (period - 1), True]


@pytest.mark.lab
def test_streams_refuse_a_mixture(mixed: Corpus) -> None:
    from osbert_lab.autoregressive.streams import StreamLoader

    with refusal("options-exclude-each-other"):
        loader_of(mixed, StreamLoader)


def test_a_part_that_is_held_out_whole_is_refused(mixed: Corpus) -> None:
    order = [block for block in mixed.blocks(100) if block.shard != 0]
    parts = mixed.manifest["mixture"]
    mixed.manifest["mixture"] = [{**parts[0], "shards": 1}, {**parts[1], "shards": len(mixed.manifest["shards"]) - 1}]
    with refusal("too-little-data"):
        BlockOrder.of(mixed, order)
