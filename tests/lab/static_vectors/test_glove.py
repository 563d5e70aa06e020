"""GloVe: the counts of pairs, and the update of one cell as its code has it."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from osbert_lab.static_vectors import glove
from osbert_lab.static_vectors.glove import GloveTables
from osbert_lab.static_vectors.pair_counts import PairCounts, merge_counts, write_shuffled


@pytest.mark.parametrize("most", [1, 5, 1000], ids=lambda most: f"most-{most}")
def test_pairs_add_the_inverse_of_their_distance_in_both_orders(most: int, tmp_path: Path) -> None:
    """In memory, and over sorted files that are written whenever there are more than a few pairs."""
    rng, expected = np.random.default_rng(0), defaultdict(float)
    (tmp_path / "pairs-part-0.npy").write_text("of a stopped run")
    counts = PairCounts(words=7, window=4, folder=tmp_path, most=most)
    for size in (30, 1, 25, 20):
        ids, texts = rng.integers(0, 7, size).astype(np.uint16), np.sort(rng.integers(0, 3, size))
        counts.add(ids, texts)
        for one, other in itertools.permutations(range(size), 2):
            if abs(one - other) <= 4 and texts[one] == texts[other]:
                expected[int(ids[one]), int(ids[other])] += 1 / abs(one - other)
        counts._merge()  # as after many words
    assert len([*tmp_path.iterdir()]) == (0 if most == 1000 else 3)
    assert counts.cells >= len(expected)
    blocks = [*counts.blocks()]
    assert len(blocks) > 1 or most == 1000
    rows, columns, values = (np.concatenate(column) for column in zip(*blocks, strict=True))
    found = dict(zip(zip(rows.tolist(), columns.tolist()), values.tolist(), strict=True))
    assert len(found) == len(rows) and found == pytest.approx(dict(expected))
    counts.delete()
    assert not [*tmp_path.iterdir()]


@given(parts=st.lists(st.dictionaries(st.integers(0, 30), st.integers(1, 9)), max_size=5), size=st.integers(1, 40))
def test_merged_parts_are_their_sum(parts: list[dict[int, int]], size: int) -> None:
    arrays = [
        (np.array(sorted(part), np.int64), np.array([float(part[key]) for key in sorted(part)])) for part in parts
    ]
    keys, values = [], []
    for block in merge_counts(arrays, size):
        assert len(block[0]) <= max(size, len(parts))
        keys += block[0].tolist()
        values += block[1].tolist()
    assert keys == sorted({key for part in parts for key in part})
    assert dict(zip(keys, values)) == sum((Counter(part) for part in parts), Counter())


def test_cells_are_shuffled_heap_by_heap(tmp_path: Path) -> None:
    blocks = [tuple(np.arange(begin, begin + 50).astype(kind) for kind in "iif") for begin in (0, 50)]
    for seed, heaps in ((0, 1), (1, 1), (1, 4)):
        write_shuffled(blocks, tmp_path, heaps=heaps, rng=np.random.default_rng(seed))
        found = {path.name: np.load(path).tolist() for path in tmp_path.iterdir()}
        assert sorted(found) == ["pairs-columns.npy", "pairs-counts.npy", "pairs-rows.npy"]
        rows, columns, counts = (found[f"pairs-{name}.npy"] for name in ("rows", "columns", "counts"))
        assert rows == columns == counts != sorted(rows) and sorted(rows) == [*range(100)]


def one_cell(word: list[float], context: list[float], squares: list[list[float]], count: float) -> list[list[float]]:
    """Return the rows and squares after one cell, number by number as in glove.c; the last number is the bias."""
    largest, exponent, rate = 10.0, 0.75, 0.05
    width = len(word) - 1
    error = sum(word[k] * context[k] for k in range(width)) + word[width] + context[width] - math.log(count)
    weighted = error if count > largest else (count / largest) ** exponent * error
    new = [[*word], [*context], [*squares[0]], [*squares[1]]]
    for k in range(width + 1):
        for mine, other, place in ((word, context, 0), (context, word, 1)):
            gradient = rate * min(max(weighted * (other[k] if k < width else 1), -100), 100)
            new[place][k] = mine[k] - gradient / math.sqrt(squares[place][k])
            new[2 + place][k] = squares[place][k] + gradient**2
    return new


def test_one_cell_is_learnt_as_in_gloves_code() -> None:
    generator = torch.Generator().manual_seed(0)
    tables = GloveTables.fresh(5, 3, generator)
    tables.words.mul_(3)
    tables.word_squares[1], tables.context_squares[2] = torch.tensor([1.5, 2, 1, 3]), torch.tensor([1, 1.2, 4, 2])
    for row, column, count in ((1, 2, 3.5), (4, 4, 1000.0), (0, 3, 0.1)):
        squares = [tables.word_squares[row].tolist(), tables.context_squares[column].tolist()]
        expected = one_cell(tables.words[row].tolist(), tables.contexts[column].tolist(), squares, count)
        cells = (torch.tensor([row]), torch.tensor([column]), torch.tensor([count]))
        glove.learn_cells(tables, cells, largest=10, exponent=0.75, rate=0.05)
        found = [
            tables.words[row], tables.contexts[column], tables.word_squares[row], tables.context_squares[column],
        ]  # fmt: skip
        torch.testing.assert_close(torch.stack(found), torch.tensor(expected))


def test_the_fit_comes_to_the_logarithms_of_the_counts() -> None:
    rng = np.random.default_rng(1)
    values = np.exp(rng.normal(size=(6, 6))).astype(np.float32) * 20
    rows, columns = (torch.from_numpy(index.reshape(-1)) for index in np.indices((6, 6)))
    tables, counts = GloveTables.fresh(6, 6, torch.Generator().manual_seed(0)), torch.from_numpy(values.reshape(-1))
    losses = []
    for _ in range(200):
        parts = [(rows + columns) % 6 == part for part in range(6)]  # in each all rows and columns, once
        cells = [(rows[part], columns[part], counts[part]) for part in parts]
        losses.append(sum(glove.learn_cells(tables, one, largest=10, exponent=0.75, rate=0.2) for one in cells))
    assert losses[-1] < 0.01 * losses[0]
