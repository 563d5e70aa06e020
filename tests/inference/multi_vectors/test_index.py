"""The index of centroids and residuals: what it finds, and when it is built anew."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from osbert.data.multi_vectors import MultiVectors
from osbert.inference.multi_vectors import index
from osbert.inference.multi_vectors.index import open_residual_index
from osbert.inference.multi_vectors.nearest import NearestMultiRows
from osbert.inference.multi_vectors.residuals import ResidualCodec, fit_centroids
from osbert.inference.vectors.files import Column, VectorOutput, write_vectors
from osbert.inference.vectors.reading import VectorFile, open_vectors
from osbert.inference.vectors.settings import normalize_vectors

TEXTS, WIDTH = 300, 16


def draw(seed: int, texts: int = TEXTS) -> MultiVectors:
    """Return unit vectors around 40 directions, 3 to 9 a text."""
    rng = np.random.default_rng(seed)
    directions = np.random.default_rng(0).normal(size=(40, WIDTH))
    lengths = rng.integers(3, 10, texts)
    rows = directions[rng.integers(0, 40, lengths.sum())] + 0.4 * rng.normal(size=(lengths.sum(), WIDTH))
    starts = np.concatenate([[0], np.cumsum(lengths)])
    return MultiVectors(normalize_vectors(rows), starts, np.zeros(starts[-1], np.int64))


def write(path: Path, vectors: MultiVectors) -> VectorFile:
    texts, lines = np.frombuffer(b"a" * len(vectors), np.uint8), np.arange(1, len(vectors) + 1)
    arrays = {"vectors": vectors.vectors, "starts": vectors.starts, "ids": vectors.ids, "lines": lines}
    columns = {}
    for name, array in (arrays | {"text": texts, "text_ends": lines}).items():
        array.tofile(path.parent / f"{name}.bin")
        columns[name] = Column(path=path.parent / f"{name}.bin", dtype=array.dtype.str, shape=array.shape)
    settings = {"columns": ["text"], "model": "", "weights": "", "tokenizer": ""}
    write_vectors(
        VectorOutput(form=".npz", path=path), columns, settings | {"vectors": {"pooling": "colbert", "normalize": True}}
    )
    return open_vectors(path)


@pytest.mark.parametrize(("backend", "least"), [("plaid", 0.9), ("plaid-2bit", 0.7)])
def test_most_of_the_nearest_are_found_and_their_fraction_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, least: float
) -> None:
    monkeypatch.setattr(index, "CANDIDATES", 60)
    monkeypatch.setattr(index, "CANDIDATES_PER_RESULT", 1)
    vectors, queries, lines = draw(1), draw(2, 20), []  # type: ignore[var-annotated]
    opened = write(tmp_path / "x.npz", vectors)
    approximate = open_residual_index(opened, backend, lines.append)
    assert len(lines) == 1 and "recall@10" in lines[0] and float(lines[0].split()[-1].rstrip(".")) >= least
    exact = NearestMultiRows(queries, 10)
    exact.compare(vectors)
    pairs = [*zip(exact.ranked, approximate.find(queries, 10), strict=True)]
    assert np.mean([len({*first[0].tolist()} & {*second[0].tolist()}) / 10 for first, second in pairs]) >= least
    for (_, first), (_, second) in pairs:
        np.testing.assert_allclose(first, second, rtol=0.2)


def test_an_index_is_used_again_unless_it_is_damaged_or_of_other_vectors(tmp_path: Path) -> None:
    lines: list[str] = []
    opened, path = write(tmp_path / "x.npz", draw(1)), tmp_path / "x.npz.plaid"
    for _ in range(2):
        open_residual_index(opened, "plaid", lines.append)
    assert len(lines) == 1
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    open_residual_index(opened, "plaid", lines.append)
    assert len(lines) == 2
    open_residual_index(write(tmp_path / "x.npz", draw(3)), "plaid", lines.append)
    assert len(lines) == 3


@pytest.mark.parametrize(("bits", "error"), [(2, 0.6), (4, 0.2)])
def test_more_bits_lose_less(bits: int, error: float) -> None:
    vectors = draw(1).vectors[:, :15]  # a width that does not fill the last byte
    codec = ResidualCodec.fit(vectors, fit_centroids(vectors, 32, np.random.default_rng(0)), bits=bits)
    codes, residuals = codec.encode(vectors)
    assert residuals.shape == (len(vectors), -(-15 * bits // 8))
    distances = np.linalg.norm(codec.decode(codes, residuals) - vectors, axis=1)
    assert distances.mean() < error * np.linalg.norm(codec.centroids[codes] - vectors, axis=1).mean()
