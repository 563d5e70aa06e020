"""Vectors as int8: a quarter of the bytes in every form, the neighbours of float32, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import osbert
from osbert.inference.vectors.files import Column
from osbert.inference.vectors.quantizing import measure_recall, quantize, quantize_column
from osbert.inference.vectors.reading import open_vectors
from osbert.inference.vectors.settings import normalize_vectors
from refusals import refusal

TEXTS = ["a good film", "the poor actor plays", "fine", "a bad film .", "the play"]


@given(arrays(np.float32, (3, 8), elements=st.floats(-4, 4, width=32)))
def test_a_number_is_off_by_half_a_step_at_most(vectors: np.ndarray) -> None:
    largest = np.abs(vectors).max(axis=1, keepdims=True).astype(np.float64)
    back = quantize(vectors) * (largest / 127)
    assert (np.abs(back - vectors) <= largest / 254 * 1.001).all()


def test_recall_counts_the_neighbours_that_are_found(tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).normal(size=(500, 64)).astype(np.float32)
    vectors.tofile(tmp_path / "exact")
    exact = Column(path=tmp_path / "exact", dtype="<f4", shape=vectors.shape)
    quantized = quantize_column(exact, tmp_path / "int8")
    unit = normalize_vectors(vectors)
    rows = np.unique(np.linspace(0, 499, 200).astype(int))
    sides = []
    for values in (unit, normalize_vectors(quantize(vectors).astype(np.float32))):
        cosines = unit[rows] @ values.T
        cosines[np.arange(len(rows)), rows] = -2
        sides.append(np.argsort(-cosines, axis=1)[:, :10])
    expected = np.mean([len({*first} & {*second}) / 10 for first, second in zip(*sides)])
    assert measure_recall(exact, quantized) == pytest.approx(expected) and expected > 0.9
    single = Column(path=tmp_path / "exact", dtype="<f4", shape=(1, 64))
    assert measure_recall(single, quantized) is None


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".parquet"])
def test_files_of_int8_are_searched_as_those_of_float32(runs: dict[str, Path], tmp_path: Path, suffix: str) -> None:
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    exact = osbert.embed(runs["encoder"], tmp_path / "texts.txt", out=tmp_path / f"exact{suffix}")
    small = osbert.embed(runs["encoder"], tmp_path / "texts.txt", out=tmp_path / f"small{suffix}", dtype="int8")
    assert exact.recall is None and small.recall is not None and 0.5 <= small.recall <= 1
    opened = open_vectors(tmp_path / f"small{suffix}")
    whole = np.concatenate(list(open_vectors(tmp_path / f"exact{suffix}").blocks()))
    np.testing.assert_array_equal(np.concatenate(list(opened.blocks())), quantize(whole))
    assert opened.settings["dtype"] == "int8" and opened.settings["recall@10"] == small.recall
    if suffix == ".npy":
        assert np.load(tmp_path / "small.npy").nbytes * 4 == np.load(tmp_path / "exact.npy").nbytes
    for query in TEXTS:
        (found,) = osbert.search(tmp_path / f"small{suffix}", [query], top=1)
        assert found.nearest[0].texts == (query,) and found.nearest[0].cosine == pytest.approx(1, abs=1e-3)


def test_one_text_has_no_neighbours_to_measure(runs: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("a film")
    assert osbert.embed(runs["encoder"], tmp_path / "texts.txt", out=tmp_path / "one.npz", dtype="int8").recall is None


@pytest.mark.parametrize(
    ("name", "options", "code"),
    [
        ("out.jsonl", {"dtype": "int8", "pooling": "mean"}, "unknown-output-format"),
        ("out.npz", {"dtype": "int8", "pooling": "tokens"}, "unknown-output-format"),
        ("out.npz", {"dtype": "int4"}, "invalid-value"),
        ("out.npz", {"dimensions": 17}, "invalid-value"),
        ("out.npz", {"dimensions": 4, "pooling": "tokens"}, "invalid-value"),
    ],
)  # fmt: skip
def test_what_cannot_be_written_is_refused(
    runs: dict[str, Path], tmp_path: Path, name: str, options: dict[str, str], code: str
) -> None:
    (tmp_path / "texts.txt").write_text("a film")
    with refusal(code):
        osbert.embed(runs["encoder"], tmp_path / "texts.txt", out=tmp_path / name, **options)
