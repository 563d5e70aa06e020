"""A flipped bit in a file of vectors is noticed, or makes no difference; parts of two files are not mixed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import osbert
from osbert.errors import UserError
from osbert.inference.vectors import files, reading
from osbert.inference.vectors.files import Column, VectorOutput, beside, write_vectors
from osbert.inference.vectors.reading import open_vectors
from osbert.runs.similarity.search import SearchRequest
from refusals import refusal

ROWS, WIDTH = 40, 8
SETTINGS = {
    "columns": ["text"], "model": "m", "vectors": {"pooling": "mean"}, "weights": "w", "tokenizer": "t", "rows": ROWS,
}  # fmt: skip


def columns(folder: Path) -> dict[str, Column]:
    """Return columns of raw files in a folder: vectors, line numbers and texts."""
    texts = [f"text {number}".encode() for number in range(ROWS)]
    arrays = {
        "vectors": np.random.default_rng(0).normal(size=(ROWS, WIDTH)).astype("<f4"),
        "lines": np.arange(1, ROWS + 1, dtype="<i8"),
        "text": np.frombuffer(b"".join(texts), "|u1"),
        "text_ends": np.cumsum([len(text) for text in texts]).astype("<i8"),
    }
    for name, array in arrays.items():
        array.tofile(folder / f"{name}.bin")
    return {
        name: Column(path=folder / f"{name}.bin", dtype=array.dtype.str, shape=array.shape)
        for name, array in arrays.items()
    }


def write(folder: Path, form: str) -> list[Path]:
    """Write a file of vectors; return its files."""
    path = folder / f"x{form}"
    rows = beside(path) if form == ".npy" else None
    write_vectors(VectorOutput(form=form, path=path, rows=rows), columns(folder), SETTINGS)
    return [path] if rows is None else [path, rows]


def content(path: Path) -> Any:
    """Return all that a reader can learn from a file of vectors."""
    opened = open_vectors(path)
    vectors = np.concatenate([*opened.blocks()])
    return vectors.tolist(), opened.rows([3, 17]), [*opened.all_rows()], opened.settings["columns"]


@pytest.mark.parametrize("form", [".npy", ".npz", ".parquet"])
def test_a_flipped_bit_is_found_or_makes_no_difference(tmp_path: Path, monkeypatch, form: str) -> None:
    monkeypatch.setattr(reading, "BLOCK", 16)
    monkeypatch.setattr(files, "BLOCK", 16)
    written = write(tmp_path, form)
    before, found = content(written[0]), 0
    for path in written:
        whole = path.read_bytes()
        # The data of Parquet's pages has checksums, its own description of them has none.
        size = 8 * (whole.rindex(b"osbert") - 200 if form == ".parquet" else len(whole))
        for place in random.Random(0).sample(range(size), 150):
            flipped = bytearray(whole)
            flipped[place // 8] ^= 1 << place % 8
            path.write_bytes(flipped)
            try:
                assert content(written[0]) == before
            except UserError as error:
                assert error.code in ("damaged-file", "wrong-format"), error
                found += 1
        path.write_bytes(whole)
    assert found > 100
    assert content(written[0]) == before


def test_a_flipped_vector_and_a_flipped_text_are_found(tmp_path: Path) -> None:
    path, rows = write(tmp_path, ".npy")
    for file, place in ((path, -1), (rows, rows.read_bytes().index(b"text 30"))):
        whole = file.read_bytes()
        flipped = bytearray(whole)
        flipped[place] ^= 1
        file.write_bytes(flipped)
        with refusal("damaged-file", path.name):
            opened = open_vectors(path)
            opened.rows([3])
            for _ in opened.blocks():
                pass
        file.write_bytes(whole)


@pytest.mark.lab
@pytest.mark.parametrize("backend", ["faiss", "usearch"])
def test_a_flipped_bit_in_an_index_has_it_built_anew(tmp_path: Path, backend: str) -> None:
    from osbert_lab.approximate_search import index_path, open_index

    pytest.importorskip(backend)
    (path,) = write(tmp_path, ".npz")
    assert open_index(open_vectors(path), backend).recall == 1
    index = index_path(path, backend)
    whole = index.read_bytes()
    flipped = bytearray(whole)
    flipped[-5] ^= 64
    index.write_bytes(flipped)
    assert open_index(open_vectors(path), backend).recall == 1
    assert index.read_bytes() != flipped


@pytest.mark.parametrize("form", [".npy", ".npz"])
def test_the_fingerprint_is_of_the_vectors_and_not_of_their_settings_alone(tmp_path: Path, form: str) -> None:
    arrays, paths = columns(tmp_path), write(tmp_path, form)
    before = open_vectors(paths[0]).fingerprint
    assert open_vectors(paths[0]).fingerprint == before
    out = VectorOutput(form=form, path=paths[0], rows=paths[1] if form == ".npy" else None)
    np.zeros((ROWS, WIDTH), "<f4").tofile(arrays["vectors"].path)
    write_vectors(out, arrays, SETTINGS)
    assert open_vectors(paths[0]).fingerprint != before


def test_a_file_without_a_checksum_is_read(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(files, "CHECKSUM", "other")  # as versions before wrote it
    path, _ = write(tmp_path, ".npy")
    assert len(np.concatenate([*open_vectors(path).blocks()])) == ROWS


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".parquet"])
def test_a_file_that_is_replaced_is_not_read_in_parts(runs: dict[str, Path], tmp_path: Path, suffix: str) -> None:
    paths = [tmp_path / f"{name}{suffix}" for name in ("old", "new")]
    for path, texts in zip(paths, ("a good film\nbad\nthe actor\n", "the play\nxx\nfilm film f\n"), strict=True):
        (tmp_path / "texts.txt").write_text(texts)
        osbert.embed(runs["encoder"], tmp_path / "texts.txt", out=path)
    request = SearchRequest(vectors=paths[0])
    opened, found = open_vectors(paths[0]), request.open(request.open_file())
    assert {near.texts[0] for near in found.find([("film",)], 3)[0].nearest} == {"a good film", "bad", "the actor"}
    if suffix == ".npy":
        beside(paths[1]).replace(beside(paths[0]))
    paths[1].replace(paths[0])
    for read in (lambda: opened.rows([0]), lambda: [*opened.all_rows()], lambda: [*opened.blocks()]):
        with refusal("file-changed", str(paths[0])):
            read()
    with refusal("file-changed", str(paths[0])):
        found.find([("film",)], 3)
