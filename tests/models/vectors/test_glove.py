"""GloVe: the counts of pairs, and the update of one cell as its code has it."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict

import numpy as np
import pytest
import torch

from osbert.models.vectors import glove
from osbert.models.vectors.glove import GloveTables, PairCounts


def test_pairs_add_the_inverse_of_their_distance_in_both_orders() -> None:
    rng, expected = np.random.default_rng(0), defaultdict(float)
    counts = PairCounts(words=7, window=4)
    for size in (30, 1, 25):
        ids, texts = rng.integers(0, 7, size).astype(np.uint16), np.sort(rng.integers(0, 3, size))
        counts.add(ids, texts)
        for one, other in itertools.permutations(range(size), 2):
            if abs(one - other) <= 4 and texts[one] == texts[other]:
                expected[int(ids[one]), int(ids[other])] += 1 / abs(one - other)
        counts._merge()  # as after many words
    rows, columns, values = counts.cells()
    assert (np.diff(rows) >= 0).all()
    found = dict(zip(zip(rows.tolist(), columns.tolist()), values.tolist(), strict=True))
    assert len(found) == len(rows) and found == pytest.approx(dict(expected))


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
