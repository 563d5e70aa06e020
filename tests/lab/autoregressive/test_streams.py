"""Streams: sequences continue each other column by column, whatever the blocks, the processes and the cursor."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch

import corpora
from osbert.corpus.shards import Corpus
from osbert.data.batch import Batch
from osbert.data.loader import LoaderSettings
from osbert.data.pack import Packer
from osbert.data.step import Cursor, RankPart, Step
from osbert.objectives.left_to_right import LeftToRight
from osbert.objectives.mlm import MaskedLanguage
from osbert_lab.autoregressive.streams import StreamLoader
from refusals import refusal
from vocabularies import train

COLUMNS, LENGTH = 3, 16
SETTINGS = LoaderSettings(batch=COLUMNS, held_out=0.0)
Make = Callable[..., StreamLoader]


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return corpora.invented()


@pytest.fixture(scope="module")
def make(texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Return a maker of loaders over a small corpus, which is cut into many blocks."""
    tokenizer = train(texts, vocabulary=120)
    corpus = Corpus.open(corpora.build_corpus(tmp_path_factory.mktemp("corpus"), texts, tokenizer))

    def loader(settings: LoaderSettings = SETTINGS, objective: object = None, *, length: int = LENGTH) -> StreamLoader:
        chosen = {"left_to_right": LeftToRight()} if objective is None else {"mlm": objective}
        return StreamLoader(corpus, chosen, Packer(tokenizer=tokenizer, length=length), settings)

    return loader


START = Cursor()


def taken(loader: StreamLoader, count: int, cursor: Cursor = START) -> list[Step]:
    return list(islice(loader.steps(cursor), count))


def rows(batch: Batch) -> list[list[int]]:
    return [part.tolist() for part in batch.ids.split(batch.lengths)]


def test_the_columns_are_the_whole_text_with_an_end_piece_before_each_document(make: Make, texts: list[str]) -> None:
    loader = make()
    tokenizer = loader.packer.tokenizer
    whole = np.concatenate([[*tokenizer.form.between, *tokenizer.encode(text)] for text in texts])
    assert len(loader.stream) == len(whole)
    count = loader.stream.steps(1)
    assert count > 2
    steps = taken(loader, count)
    for column in range(COLUMNS):
        first = column * ((len(whole) - 1) // COLUMNS)
        found = [piece for step in steps for piece in rows(step.batches[0])[column]]
        assert found == whole[first : first + count * LENGTH].tolist()


def test_labels_are_the_next_pieces_across_the_ends_of_sequences(make: Make) -> None:
    loader = make()
    first, second = (step.batches[0] for step in taken(loader, 2))
    following = torch.cat([torch.tensor(rows(first)), torch.tensor(rows(second))], dim=1)[:, 1 : LENGTH + 1].flatten()
    target = first.targets["left_to_right"]
    assert target.labels.tolist() == following[target.index].tolist()
    special = torch.isin(following, torch.tensor(loader.packer.form.between))
    assert target.index.tolist() == (~special).nonzero().flatten().tolist()
    assert target.count == len(target.labels)


def test_records_continue_each_other_within_an_epoch(make: Make) -> None:
    loader = make()
    count = loader.stream.steps(1)
    steps = taken(loader, count + 2)
    records = [step.batches[0].records for step in steps]
    for number in range(count - 1):
        assert torch.equal(records[number + 1], records[number] + COLUMNS)
    assert set((records[count] - COLUMNS).tolist()).isdisjoint(torch.cat(records[:count]).tolist())
    assert torch.equal(records[count + 1], records[count] + COLUMNS)
    assert rows(steps[count].batches[0]) == rows(steps[0].batches[0])


def test_one_number_is_the_place_in_the_stream(make: Make) -> None:
    loader = make(objective=MaskedLanguage())
    steps = taken(loader, 5)
    assert [step.cursor for step in steps] == [Cursor(index=number) for number in range(1, 6)]
    for begun in (0, 2, 4):
        again = taken(pickle.loads(pickle.dumps(loader)), 1, Cursor(index=begun))[0]
        assert torch.equal(again.batches[0].ids, steps[begun].batches[0].ids)  # masks included


def test_each_process_has_columns_of_its_own(make: Make) -> None:
    loader = make(replace(SETTINGS, held_out=0.3))
    parts = [loader.part(RankPart(rank, 2)) for rank in range(2)]
    for whole, *some in zip(loader.make_held_out(), *(part.make_held_out() for part in parts), strict=True):
        assert whole.records[::2].tolist() == some[0].records.tolist()
    for step, *some in zip(taken(loader, 3), *(taken(part, 3) for part in parts), strict=True):
        assert [one.batches[0].records.tolist() for one in some] == [
            step.batches[0].records[rank::2].tolist() for rank in range(2)
        ]
        assert [row for one in some for row in rows(one.batches[0])] == [
            rows(step.batches[0])[column] for column in (0, 2, 1)
        ]


def test_held_out_text_is_streams_too(make: Make) -> None:
    loader = make(replace(SETTINGS, held_out=0.1, micro_tokens=LENGTH))
    held = loader.make_held_out()
    columns = len({int(batch.records[0]) % COLUMNS for batch in held})
    assert held and columns <= COLUMNS
    assert [int(batch.records[0]) // COLUMNS for batch in held[::columns]] == [*range(len(held) // columns)]
    assert loader.stream.steps(1) < make().stream.steps(1)


def test_too_little_text_is_an_error(make: Make) -> None:
    with refusal("too-little-data", "too few for 3 streams"):
        make(length=5_000_000)
