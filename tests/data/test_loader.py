"""Loaders: streams are pure functions of seed and cursor, epochs cover the corpus, problems are told before work."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from osbert.corpus.shards import ShardBlock
from osbert.data.batch import Batch, collate
from osbert.data.example import Example, Target
from osbert.data.loader import LoaderSettings, PretrainingLoader, merge_blocks
from osbert.data.pack import Packer
from osbert.data.step import Cursor, Step
from osbert.objectives import Objective
from osbert.objectives.mlm import MaskedLanguage
from osbert.objectives.nsp import NextSentence
from osbert.objectives.same_text import SameText
from osbert.objectives.sentence_order import SentenceOrder
from osbert.text.document import Document
from osbert.text.tokenizer import Tokenizer
from refusals import refusal

SMALL = LoaderSettings(batch=8, pool=5_000, held_out=0.05)
Make = Callable[..., PretrainingLoader]


@pytest.fixture(scope="module")
def make(tokenizer: Tokenizer, text: list[Document], make_corpus: Callable) -> Make:
    """Return a maker of loaders over the small text."""

    def loader(
        settings: LoaderSettings = SMALL,
        *,
        documents: list[Document] = text,
        objectives: Mapping[str, Any] | None = None,
        length: int = 32,
    ) -> PretrainingLoader:
        chosen = {"mlm": MaskedLanguage(), "nsp": NextSentence()} if objectives is None else objectives
        return PretrainingLoader(make_corpus(documents), chosen, Packer(tokenizer=tokenizer, length=length), settings)

    return loader


def contents(batch: Batch) -> list[Any]:
    """Return everything a batch holds as plain values."""
    columns = [batch.ids, batch.positions, batch.segments, batch.starts, batch.records]
    targets = [[name, target.labels.tolist(), target.index.tolist()] for name, target in batch.targets.items()]
    return [[column.tolist() for column in columns], batch.lengths, batch.order, targets]


def plain(steps: Iterator[Step], count: int) -> list[Any]:
    return [[[contents(b) for b in step.batches], step.cursor] for step in itertools.islice(steps, count)]


def epoch_of(loader: PretrainingLoader, epoch: int) -> list[Step]:
    """Return the steps that end in an epoch: all of it when the batch size is 1."""
    steps = loader.steps(Cursor(epoch=epoch))
    return list(itertools.takewhile(lambda step: step.cursor.epoch == epoch, steps))


def originals(batch: Batch) -> torch.Tensor:
    """Return the pieces as they were before the masks."""
    ids = batch.ids.clone()
    ids[batch.targets["mlm"].index] = batch.targets["mlm"].labels
    return ids


@settings(max_examples=15)
@given(start=st.integers(0, 60), batch=st.sampled_from([1, 7, 64]), seed=st.integers(0, 3))
def test_the_steps_from_a_cursor_are_the_rest_of_the_stream(make: Make, start: int, batch: int, seed: int) -> None:
    chosen = replace(SMALL, batch=batch, seed=seed)
    stream = make(chosen).steps(Cursor())
    cursor = ([Cursor()] + [step.cursor for step in itertools.islice(stream, start)])[-1]
    assert plain(stream, 3) == plain(make(chosen).steps(cursor), 3)


def test_steps_are_of_equal_size_across_pools_and_epochs(make: Make) -> None:
    steps = list(itertools.islice(make().steps(Cursor()), 300))
    assert {sum(len(batch.lengths) for batch in step.batches) for step in steps} == {8}
    cursors = [step.cursor for step in steps]
    assert {cursor.epoch for cursor in cursors} >= {0, 1}
    assert {cursor.pool for cursor in cursors} >= {0, 1, 2, 3, 4}
    places = [(cursor.epoch, cursor.pool, cursor.index) for cursor in cursors]
    assert places == sorted(set(places))


def test_an_epoch_of_spans_is_every_training_piece_once(make: Make, text: list[Document]) -> None:
    loader = make(replace(SMALL, batch=1), objectives={"mlm": MaskedLanguage()})
    orders = []
    kept_out = {int(piece) for batch in loader.make_held_out() for piece in originals(batch)}
    for epoch in (0, 1):
        seen = torch.cat([originals(step.batches[0])[1:-1] for step in epoch_of(loader, epoch)]).tolist()
        everything = {int(piece) for document in text for piece in document.ids}
        assert len(seen) == len(set(seen))
        assert set(seen) == everything - kept_out
        orders.append(seen)
    assert orders[0] != orders[1]


def test_an_epoch_of_pairs_uses_no_piece_twice_in_its_walk(make: Make, text: list[Document]) -> None:
    loader = make(replace(SMALL, batch=1, held_out=0.0))
    pairs = [step.batches[0] for step in epoch_of(loader, 0)]
    firsts = torch.cat([originals(pair)[pair.segments == 0][1:-1] for pair in pairs])
    seconds = [originals(pair)[pair.segments == 1][:-1] for pair in pairs if pair.targets["nsp"].labels == 0]
    seen = torch.cat([firsts, *seconds]).tolist()
    assert len(seen) == len(set(seen))
    assert len(seen) > 0.6 * sum(map(len, text))


def test_masks_differ_between_epochs_and_repeat_for_the_same_seed(make: Make) -> None:
    chosen = replace(SMALL, pool=10**6, held_out=0.0)
    objectives = {"mlm": MaskedLanguage()}

    def masked(seed: int, epoch: int) -> set[int]:
        loader = make(replace(chosen, seed=seed), objectives=objectives)
        steps = itertools.islice(loader.steps(Cursor(epoch=epoch)), 60)
        return {int(label) for step in steps for batch in step.batches for label in batch.targets["mlm"].labels}

    assert masked(0, 0) == masked(0, 0)
    for other in (masked(0, 1), masked(1, 0)):
        # Independent draws of 15% have 15% in common.
        assert 0.05 < len(masked(0, 0) & other) / len(other) < 0.25


def test_static_masks_are_seen_again_in_another_order(make: Make, text: list[Document]) -> None:
    """What epoch 2 of two maskings shows is what epoch 0 showed, masks included; dynamic masking shows new ones."""

    def epochs(duplicates: int, count: int) -> list[list[str]]:
        chosen = replace(SMALL, batch=1, pool=2_000, duplicates=duplicates)
        loader = make(chosen, documents=text[:12])
        return [[str(contents(step.batches[0])) for step in epoch_of(loader, epoch)] for epoch in range(count)]

    first, second, third, fourth = epochs(2, 4)
    assert sorted(first) == sorted(third) and first != third
    assert sorted(second) == sorted(fourth) and second != fourth
    assert sorted(first) != sorted(second)
    dynamic = epochs(0, 3)
    assert dynamic[:2] == [first, second]
    assert len({*first} & {*dynamic[2]}) < 0.05 * len(first)


def test_static_masks_resume_in_the_middle_of_an_epoch(make: Make) -> None:
    loader = make(replace(SMALL, batch=7, duplicates=1))
    stream = loader.steps(Cursor(epoch=1))
    cursor = [step.cursor for step in itertools.islice(stream, 45)][-1]
    assert cursor.epoch == 1 and cursor.pool > 0
    assert plain(stream, 90) == plain(loader.steps(cursor), 90)


def test_the_examples_of_a_stream_are_those_of_its_steps(make: Make) -> None:
    loader = make()
    steps = list(itertools.islice(loader.steps(Cursor()), 4))
    examples = list(itertools.islice(loader.examples(Cursor()), 4 * SMALL.batch))
    for number, step in enumerate(steps):
        batch = collate(examples[number * SMALL.batch : (number + 1) * SMALL.batch])
        assert contents(batch) == contents(step.batches[0])


class Upwards(Objective):
    """Asks for one random piece of each example; written for one example, as users may."""

    def corrupt(self, example: Example, packer: Packer, rng: np.random.Generator) -> Example:
        index = rng.choice(np.flatnonzero(~example.special), 1)
        target = Target(labels=example.ids[index], index=index, weights=np.array([0.5]))
        return example.with_target(ids=example.ids + 1, name="upwards", target=target)


def test_an_objective_may_be_written_for_one_example(make: Make) -> None:
    plainly = make()
    loader = make(objectives={**plainly.objectives, "upwards": Upwards()})
    steps = [*itertools.islice(loader.steps(Cursor()), 12)]
    shares = []
    for step, usual in zip(steps, plainly.steps(Cursor())):
        (batch,), (before,) = step.batches, usual.batches
        assert batch.ids.tolist() == (before.ids + 1).tolist()  # the masks are those without it
        target = batch.targets["upwards"]
        assert target.count == 0.5 * len(batch.lengths)
        assert target.labels.tolist() == before.ids[target.index].tolist()
        shares += ((target.index - batch.starts) / torch.tensor(batch.lengths)).tolist()
    assert min(shares) < 0.2 and max(shares) > 0.8
    assert plain(iter(steps[5:]), 5) == plain(loader.steps(steps[4].cursor), 5)


def test_held_out_batches_are_always_the_same_and_never_trained_on(make: Make) -> None:
    loader = make()
    held = loader.make_held_out()
    assert [contents(batch) for batch in held] == [contents(batch) for batch in make().make_held_out()]
    kept_out = {int(piece) for batch in held for piece in originals(batch)} - {2, 3}
    trained = {int(piece) for step in epoch_of(loader, 0) for batch in step.batches for piece in originals(batch)}
    assert kept_out and not kept_out & trained
    assert all(set(batch.targets) == {"mlm", "nsp"} for batch in held)
    other = make(replace(SMALL, seed=1)).make_held_out()
    assert [contents(batch) for batch in held] != [contents(batch) for batch in other]


def test_the_share_held_out_is_the_one_asked_for_up_to_a_pool(make: Make, text: list[Document]) -> None:
    total = sum(map(len, text))

    def share(held_out: float, pool: int = 10**6) -> float:
        loader = make(replace(SMALL, held_out=held_out, pool=pool), objectives={"mlm": MaskedLanguage()})
        return sum(len(batch.ids) - 2 * len(batch.lengths) for batch in loader.make_held_out()) / total

    assert share(0.0) == 0
    assert 0 < share(1e-6) < 0.02
    assert abs(share(0.3) - 0.3) < 0.05
    assert share(0.3, pool=2_000) < 0.1


@pytest.mark.parametrize(
    "change", [{"batch": 9}, {"micro_tokens": 100}, {"pool": 50_000}, {"held_out": 0.2}, {"seed": 1}]
)
def test_every_setting_changes_the_stream(make: Make, change: dict[str, Any]) -> None:
    assert set(asdict(SMALL)) >= set(change)
    assert plain(make().steps(Cursor()), 20) != plain(make(replace(SMALL, **change)).steps(Cursor()), 20)


def test_micro_batches_hold_what_the_whole_step_holds(make: Make) -> None:
    whole = next(make().steps(Cursor()))
    parts = next(make(replace(SMALL, micro_tokens=70)).steps(Cursor()))
    assert len(whole.batches) == 1 < len(parts.batches)
    assert all(batch.tokens <= 70 for batch in parts.batches)
    assert torch.equal(torch.cat([batch.ids for batch in parts.batches]), whole.batches[0].ids)
    for name, target in whole.batches[0].targets.items():
        assert torch.equal(torch.cat([batch.targets[name].labels for batch in parts.batches]), target.labels)
        assert sum(batch.targets[name].count for batch in parts.batches) == target.count
    assert parts.cursor == whole.cursor
    assert len(make(replace(SMALL, micro_tokens=70)).make_held_out()) > len(make().make_held_out())


def test_a_step_is_one_pass_where_the_loss_compares_its_sequences(make: Make) -> None:
    loader = make(replace(SMALL, micro_tokens=70), objectives={"mlm": MaskedLanguage(), "same_text": SameText()})
    for step in itertools.islice(loader.steps(Cursor()), 3):
        (batch,) = step.batches
        assert batch.whole and len(batch.lengths) == 8
    assert all(batch.whole for batch in loader.make_held_out())


def test_a_pool_reads_on_until_the_objective_has_its_documents(
    make: Make, make_documents: Callable[..., list[Document]]
) -> None:
    documents = make_documents([[10] * 300, [10] * 300])
    loader = make(LoaderSettings(batch=1, pool=1, held_out=0.0), documents=documents)
    steps = list(itertools.islice(loader.steps(Cursor()), 50))
    assert {int(step.batches[0].targets["nsp"].labels) for step in steps} == {0, 1}
    assert len({step.cursor.pool for step in steps}) > 3


def test_neighbouring_blocks_are_read_as_one() -> None:
    blocks = [ShardBlock(1, 4, 6), ShardBlock(0, 5, 9), ShardBlock(0, 0, 2), ShardBlock(0, 2, 5), ShardBlock(1, 0, 3)]
    assert merge_blocks(blocks) == [ShardBlock(0, 0, 9), ShardBlock(1, 0, 3), ShardBlock(1, 4, 6)]


def test_too_little_text_is_said_before_any_work(make: Make, make_documents: Callable[..., list[Document]]) -> None:
    with refusal("too-little-data", "1", "2", "mlm"):
        make(documents=make_documents([[10] * 50]))
    with refusal("too-little-data", "1"):
        make(documents=[], objectives={"mlm": MaskedLanguage()})
    with refusal("too-little-data", "held_out", "0"):
        make(documents=make_documents([[5]]), objectives={"mlm": MaskedLanguage()})
    make(replace(SMALL, held_out=0.0), documents=make_documents([[5]]), objectives={"mlm": MaskedLanguage()})


@pytest.mark.parametrize(
    "wrong", [{"batch": 0}, {"micro_tokens": -1}, {"pool": 0}, {"held_out": 1.0}, {"duplicates": -1}, {"seed": -1}]
)
def test_impossible_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        LoaderSettings(**wrong)


def test_documents_of_which_no_sequence_can_be_made_are_told(make: Make, tokenizer: Tokenizer) -> None:
    lone = Document(ids=np.array([len(tokenizer) - 1]), words=np.array([True]), sentences=np.array([0, 1]))
    loader = make(replace(SMALL, held_out=0.0), documents=[lone] * 50, objectives={"order": SentenceOrder()})
    with refusal("too-little-data"):
        next(loader.steps(Cursor()))
