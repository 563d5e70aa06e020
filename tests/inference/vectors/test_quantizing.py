"""Vectors as int8 and as bits: their bytes in every form, the neighbours of float32, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import osbert
from osbert.errors import UserError
from osbert.inference.vectors import bits
from osbert.inference.vectors.bits import BitIndex, open_bit_index, pack_bits
from osbert.inference.vectors.files import Column, beside
from osbert.inference.vectors.nearest import NearestRows
from osbert.inference.vectors.quantizing import add_bits, measure_small, quantize, quantize_column
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
    assert measure_small(exact, quantized) == pytest.approx(expected) and expected > 0.9
    single = Column(path=tmp_path / "exact", dtype="<f4", shape=(1, 64))
    assert measure_small(single, quantized) is None


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


@given(arrays(np.float32, (40, 11), elements=st.floats(-4, 4, width=32)), st.integers(1, 12))
def test_with_enough_candidates_bits_find_what_the_comparison_of_all_finds(vectors: np.ndarray, count: int) -> None:
    index, nearest = BitIndex(pack_bits(vectors), 11, vectors.__getitem__), NearestRows(vectors[:5], count)
    nearest.compare(vectors)
    for (places, cosines), *expected in zip(index.find(vectors[:5], count), nearest.places, nearest.cosines):
        assert [places.tolist(), cosines.tolist()] == [row.tolist() for row in expected]


def test_candidates_are_those_with_the_nearest_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    vectors, query = rng.normal(size=(300, 70)).astype(np.float32), rng.normal(size=(1, 70)).astype(np.float32)
    read: list[np.ndarray] = []
    index = BitIndex(pack_bits(vectors), 70, lambda indices: read.append(indices) or vectors[indices])  # type: ignore[func-returns-value]
    monkeypatch.setattr(bits, "CANDIDATES", 4)
    monkeypatch.setattr(bits, "CANDIDATES_PER_RESULT", 4)
    index.find(query, 1)
    near = np.argsort(((vectors > 0) != (query > 0)).sum(axis=1), kind="stable")[:40]
    signs = np.where(vectors[near] > 0, 1, -1) @ query[0]
    assert sorted(near[np.argsort(-signs)[:4]].tolist()) == read[0].tolist()
    with monkeypatch.context() as numpy1:
        numpy1.delattr(np, "bitwise_count", raising=False)
        index.find(query, 1)
    assert read[0].tolist() == read[1].tolist()


def test_recall_of_bits_is_that_of_a_search_by_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bits, "CANDIDATES", 12)
    monkeypatch.setattr(bits, "CANDIDATES_PER_RESULT", 1)
    vectors = np.random.default_rng(0).normal(size=(500, 64)).astype(np.float32)
    vectors.tofile(tmp_path / "exact")
    exact = Column(path=tmp_path / "exact", dtype="<f4", shape=vectors.shape)
    quantized = quantize_column(exact, tmp_path / "int8")
    columns = add_bits(quantized, tmp_path)
    assert [column.path.stat().st_size for column in columns.values()] == [500 * 64 // 8, 500 * 4]
    recall, whole = measure_small(exact, quantized, columns["bits"]), measure_small(exact, quantized)
    assert recall is not None and whole is not None and 0.3 < recall < whole


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_a_binary_file_is_searched_by_its_bits_and_is_int8_for_all_else(
    runs: dict[str, Path], tmp_path: Path, suffix: str
) -> None:
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    small = osbert.embed(runs["encoder"], tmp_path / "texts.txt", out=tmp_path / f"int8{suffix}", dtype="int8")
    path = tmp_path / f"binary{suffix}"
    written = osbert.embed(runs["encoder"], tmp_path / "texts.txt", out=path, dtype="binary")
    assert written.recall == small.recall and written.dtype == "binary"
    opened = open_vectors(path)
    vectors = np.concatenate(list(opened.blocks()))
    np.testing.assert_array_equal(vectors, np.concatenate(list(open_vectors(tmp_path / f"int8{suffix}").blocks())))
    np.testing.assert_array_equal(opened.column("bits"), np.packbits(vectors > 0, axis=1))
    found = osbert.search(path, TEXTS, top=3)
    assert found == osbert.search(path, TEXTS, top=3, backend="exact")
    assert found == osbert.search(path, TEXTS, top=3, backend="binary")
    assert found == osbert.search(tmp_path / f"int8{suffix}", TEXTS, top=3)
    with refusal("wrong-format"):
        osbert.search(tmp_path / f"int8{suffix}", TEXTS, backend="binary")


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_a_flipped_bit_of_a_binary_file_is_found_or_makes_no_difference(
    runs: dict[str, Path], tmp_path: Path, suffix: str
) -> None:
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    path, rng, refused = tmp_path / f"x{suffix}", np.random.default_rng(0), 0
    osbert.embed(runs["encoder"], tmp_path / "texts.txt", out=path, dtype="binary")
    queries = np.concatenate(list(open_vectors(path).blocks()))

    def find() -> list[list[float]]:
        return [cosines.tolist() for _, cosines in open_bit_index(open_vectors(path)).find(queries, 3)]

    before = find()
    for file in [path, *([beside(path)] if suffix == ".npy" else [])]:
        whole = file.read_bytes()
        for place in rng.choice(8 * len(whole), 100, replace=False).tolist():
            flipped = bytearray(whole)
            flipped[place // 8] ^= 1 << place % 8
            file.write_bytes(flipped)
            try:
                assert find() == before
            except UserError as error:
                assert error.code in ("damaged-file", "wrong-format"), error
                refused += 1
        file.write_bytes(whole)
    assert refused > 20


def test_one_text_has_no_neighbours_to_measure(runs: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("a film")
    assert osbert.embed(runs["encoder"], tmp_path / "texts.txt", out=tmp_path / "one.npz", dtype="int8").recall is None


@pytest.mark.parametrize(
    ("name", "options", "code"),
    [
        ("out.jsonl", {"dtype": "int8", "pooling": "mean"}, "unknown-output-format"),
        ("out.npz", {"dtype": "int8", "pooling": "tokens"}, "unknown-output-format"),
        ("out.npz", {"dtype": "int4"}, "invalid-value"),
        ("out.parquet", {"dtype": "binary"}, "unknown-output-format"),
        ("out.npz", {"dtype": "binary", "layers": "-1,0"}, "options-exclude-each-other"),
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
