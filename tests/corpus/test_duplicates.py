from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from osbert.corpus import writer
from osbert.corpus.shards import Shard
from osbert.corpus.writer import LineRemoval, Lines, _falses, _spread, document_hashes, first_occurrences


@given(
    parts=st.lists(st.lists(st.integers(0, 30).map(lambda number: number * 2**58 % 2**64), max_size=20), max_size=6),
    partition=st.integers(1, 50),
)
def test_first_occurrences_are_those_of_one_pass_over_everything(tmp_path_factory, parts, partition):
    seen: set[int] = set()
    expected = [value not in seen and not seen.add(value) for part in parts for value in part]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "PARTITION", partition)
        folder = tmp_path_factory.mktemp("settling")
        arrays = (np.array(part, np.uint64) for part in parts)
        if expected:
            assert first_occurrences(arrays, len(expected), folder).tolist() == expected
            assert [path.name for path in folder.iterdir()] == ["keep.npy"]


def test_an_answer_of_any_length(tmp_path):
    keep = first_occurrences([np.zeros(1, np.uint64)], 3_000_000, tmp_path)
    assert keep.shape == (3_000_000,) and keep[0] and not keep[1:].any()
    assert len(_falses(tmp_path / "none.npy", 0)) == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_a_full_disk_is_told_as_such():
    with pytest.raises(OSError) as caught:
        _spread(np.zeros(100_000, np.uint64), 0, [Path("/dev/full")])
    assert caught.value.errno == errno.ENOSPC
    with pytest.raises(OSError) as caught:  # on writing: nothing is mapped that has no room yet
        _falses(Path("/dev/full"), 100_000)
    assert caught.value.errno == errno.ENOSPC


LINES = st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=5), min_size=1, max_size=8)


def shards_of(documents: list[list[int]], size: int) -> list[Lines]:
    """Lay documents (lists of line hashes, a sentence a line) in shards of `size` lines."""
    hashes = np.array([line for document in documents for line in document], np.uint64)
    starts = np.cumsum([0, *(len(document) for document in documents)])[:-1]
    shards = []
    for begin in range(0, len(hashes), size):
        part = hashes[begin : begin + size]
        inside = starts[(starts >= begin) & (starts < begin + size)] - begin
        places = np.arange(len(part), dtype=np.uint32)
        shards.append(Lines(hashes=part, starts=places, documents=inside.astype(np.uint32)))
    return shards


@given(LINES, st.integers(1, 7))
def test_documents_are_equal_when_their_lines_are_however_shards_cut_them(documents, size):
    hashes = np.concatenate(list(document_hashes(shards_of(documents, size)))).tolist()
    assert len(hashes) == len(documents)
    for one, first in zip(documents, hashes):
        for other, second in zip(documents, hashes):
            assert (one == other) == (first == second)


@given(LINES, st.integers(1, 7), st.randoms())
def test_thinning_keeps_the_chosen_lines_and_the_borders_of_documents(documents, size, random):
    flat = [(number, line) for number, document in enumerate(documents) for line in document]
    keep = np.array([random.random() < 0.5 for _ in flat])
    thinning = LineRemoval()
    found: list[list[int]] = []
    place = 0
    for lines in shards_of(documents, size):
        count = len(lines.hashes)
        # Each line is one sentence of three pieces: its hash, a word start and two that go on.
        shard = Shard(
            ids=np.repeat(lines.hashes.astype(np.uint16), 3),
            sentences=np.arange(0, 3 * count + 1, 3, dtype=np.uint32),
            documents=lines.documents,
            words=np.packbits(np.tile([True, False, False], count)),
        )
        arrays = thinning.apply(shard, lines, keep[place : place + count])
        place += count
        kept = len(arrays["ids"]) // 3
        assert arrays["sentences"].tolist() == list(range(0, 3 * kept + 1, 3))
        assert np.unpackbits(arrays["words"], count=3 * kept).tolist() == [1, 0, 0] * kept
        for sentence, value in enumerate(arrays["ids"][::3].tolist()):
            if sentence in arrays["documents"]:
                found.append([])
            found[-1].append(value)
    expected = [[line for (owner, line), kept in zip(flat, keep) if kept and owner == n] for n in range(len(documents))]
    assert found == [lines for lines in expected if lines]
