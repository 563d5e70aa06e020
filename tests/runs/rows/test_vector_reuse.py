"""osbert embed --update: texts that a file has already are not embedded again, and the file is as if all were."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import osbert
from interrupted import stop_an_update
from osbert.inference.embedder import Embedder
from osbert.inference.vectors.reading import open_vectors
from refusals import refusal

BEFORE = ["a good film", "the poor actor plays", "fine", "a bad film .", "fine"]
AFTER = ["the play", "a bad film .", "a good film", "a good actor", "fine"]


@pytest.fixture
def embedded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of texts that the model has read, call by call; opening it takes calls of a single text."""
    counts: list[int] = []
    vectors = Embedder.vectors

    def count(self: Embedder, groups: list) -> np.ndarray:
        counts.extend([len(groups)] if len(groups) > 1 else [])
        return vectors(self, groups)

    monkeypatch.setattr(Embedder, "vectors", count)
    return counts


def write(path: Path, texts: list[str]) -> Path:
    path.write_text("\n".join(texts) + "\n")
    return path


def content(path: Path) -> tuple[np.ndarray, list, dict]:
    opened = open_vectors(path)
    return np.concatenate([*opened.blocks()]), [*opened.all_rows()], dict(opened.settings)


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".parquet"])
def test_a_file_is_updated_as_if_it_were_made_anew(
    runs: dict[str, Path], tmp_path: Path, suffix: str, embedded: list[int]
) -> None:
    file, path, anew = tmp_path / "texts.txt", tmp_path / f"x{suffix}", tmp_path / f"anew{suffix}"
    first = osbert.embed(runs["encoder"], write(file, BEFORE), out=path, update=True)
    second = osbert.embed(runs["encoder"], write(file, AFTER), out=path, update=True)
    assert embedded == [5, 2] and "reused" not in first.tally and second.tally["reused"] == 3
    osbert.embed(runs["encoder"], file, out=anew)
    (vectors, *others), (expected, *expected_others) = content(path), content(anew)
    np.testing.assert_allclose(vectors, expected, atol=1e-6)
    others[1].pop("crc32", None), expected_others[1].pop("crc32", None)
    assert others == expected_others
    osbert.embed(runs["encoder"], file, out=path, update=True)
    assert embedded == [5, 2, 5]
    np.testing.assert_array_equal(content(path)[0], vectors)


def test_pairs_and_kept_columns_are_those_of_the_new_file(
    runs: dict[str, Path], tmp_path: Path, embedded: list[int]
) -> None:
    file, path = tmp_path / "pairs.csv", tmp_path / "x.npz"
    options = {"text": "a", "pair": "b", "keep_columns": True, "update": True}
    file.write_text("id,a,b\n1,film,fine\n2,fine,film\n3,filmf,ine\n")
    osbert.embed(runs["encoder"], file, out=path, **options)
    file.write_text("id,a,b\n7,fine,film\n8,film,film\n9,fine,fine\n")
    osbert.embed(runs["encoder"], file, out=path, **options)
    assert embedded == [3, 2] and np.load(path)["id"].tobytes() == b"789"


@pytest.mark.parametrize("dtype", ["int8", "binary"])
def test_int8_stays_as_it_is_and_its_recall_is_not_measured_again(
    runs: dict[str, Path], tmp_path: Path, dtype: str, embedded: list[int]
) -> None:
    file, path, anew = tmp_path / "texts.txt", tmp_path / "x.npz", tmp_path / "anew.npz"
    first = osbert.embed(runs["encoder"], write(file, BEFORE), out=path, dtype=dtype)
    second = osbert.embed(runs["encoder"], write(file, AFTER), out=path, dtype=dtype, update=True)
    assert embedded == [5, 2] and first.recall is not None and second.recall is None
    osbert.embed(runs["encoder"], file, out=anew, dtype=dtype)
    np.testing.assert_allclose(content(path)[0], content(anew)[0], atol=1)
    with refusal("mismatched-base", "dtype"):
        osbert.embed(runs["encoder"], file, out=path, update=True)


def test_a_stopped_update_leaves_the_file_and_goes_on(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, path = tmp_path / "texts.txt", tmp_path / "x.npz"
    osbert.embed(runs["encoder"], write(file, BEFORE), out=path)
    stop_an_update(monkeypatch, runs["encoder"], write(file, AFTER), path)
    with refusal("begun-with-other-settings"):
        osbert.embed(runs["encoder"], file, out=path)
    assert osbert.embed(runs["encoder"], file, out=path, update=True).tally["reused"] == 3
    assert [row.texts[0] for row in content(path)[1]] == AFTER


def test_vectors_that_cannot_be_used_again_are_refused(runs: dict[str, Path], tmp_path: Path) -> None:
    file, path = write(tmp_path / "texts.txt", BEFORE), tmp_path / "x.npz"
    osbert.embed(runs["encoder"], file, out=path)
    for options, value in (({"pooling": "cls"}, "vectors"), ({"length": 9}, "vectors")):
        with refusal("mismatched-base", value):
            osbert.embed(runs["encoder"], file, out=path, update=True, **options)
    with refusal("options-exclude-each-other"):
        osbert.embed(runs["encoder"], file, out=tmp_path / "x.jsonl", pooling="mean", update=True)
    path.write_bytes(path.read_bytes().replace(b"good", b"gold"))
    with refusal("damaged-file"):
        osbert.embed(runs["encoder"], file, out=path, update=True)
