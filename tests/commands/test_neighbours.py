"""osbert neighbours: the nearest texts, as a plain comparison of all finds them, from every form of file."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from osbert.commands.embed import VectorOptions, embed
from osbert.commands.neighbours import neighbours
from osbert.inference.engine import load
from osbert.inference.neighbours import nearest_rows
from osbert.inference.vectors import files as vector_files
from osbert.inference.vectors import reading as vector_reading
from refusals import refusal

TEXTS = ["a good film", "bad", "Ärger . the plays", "film", "poor actor", "bad", "the actor plays"]


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS) + "\n")
    return path


@pytest.mark.parametrize("form", ["npy", "npz", "parquet"])
def test_the_nearest_texts_are_shown(
    encoder: Path, lines: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str, monkeypatch
) -> None:
    monkeypatch.setattr(vector_files, "BLOCK", 2)
    monkeypatch.setattr(vector_reading, "BLOCK", 2)
    embed(encoder, lines, out=tmp_path / f"x.{form}", vectors=VectorOptions(pooling="weighted"))
    capsys.readouterr()
    neighbours(tmp_path / f"x.{form}", "bad", count=5)
    shown = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    vectors = load(encoder).embed(TEXTS, pooling="weighted")
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = vectors @ vectors[1]
    order = np.argsort(-cosines.round(5), kind="stable")[:5]
    assert [text for *_, text in shown] == [TEXTS[place] for place in order]
    assert [line for _, line, _ in shown] == [f"line {place + 1}" for place in order]
    np.testing.assert_allclose([float(score) for score, *_ in shown], cosines[order], atol=1e-4)


def test_blocks_make_no_difference() -> None:
    rng = np.random.default_rng(0)
    rows, wanted = rng.normal(size=(100, 8)), rng.normal(size=8)
    rows[40] = rows[70] = wanted * 2
    rows[50] = 0
    whole = nearest_rows([rows], wanted, 10)
    assert whole == nearest_rows(np.array_split(rows, 9), wanted, 10)
    assert [place for place, _ in whole[:2]] == [40, 70] and len(whole) == 10
    assert len(nearest_rows([rows], wanted, 1000)) == 100
    with refusal("damaged-file", "7", "8"):
        nearest_rows([rows[:, :7]], wanted, 10)


def test_what_cannot_be_compared_is_said(encoder: Path, run: Path, lines: Path, tmp_path: Path) -> None:
    moved = tmp_path / "model"
    shutil.copytree(encoder, moved)
    embed(moved, lines, out=tmp_path / "x.npy")
    shutil.rmtree(moved)
    with refusal("missing-file", "--model"):
        neighbours(tmp_path / "x.npy", "bad")
    neighbours(tmp_path / "x.npy", "bad", model=encoder)
    with refusal("mismatched-base"):
        neighbours(tmp_path / "x.npy", "bad", model=run)
    with refusal("wrong-number-of-texts", "2"):
        neighbours(tmp_path / "x.npy", "bad", "good")
    with refusal("invalid-value", "--count"):
        neighbours(tmp_path / "x.npy", "bad", count=0)
    embed(encoder, lines, out=tmp_path / "y.npz", vectors=VectorOptions(layers="0,1"))
    with refusal("wrong-format", "0,1"):
        neighbours(tmp_path / "y.npz", "bad")
    (tmp_path / "x.rows.npz").unlink()
    with refusal("missing-file", "x.rows.npz"):
        neighbours(tmp_path / "x.npy", "bad")
    (tmp_path / "z.npz").write_bytes(b"no zip")
    np.savez(tmp_path / "w.npz", vectors=np.zeros((2, 2)))
    for name, refused in (
        ("z.npz", ("damaged-file", "z.npz")),
        ("w.npz", ("damaged-file", "w.npz")),
        ("texts.txt", ("wrong-format", "texts.txt")),
        ("n.npy", ("missing-file", "n.npy")),
    ):
        with refusal(*refused):
            neighbours(tmp_path / name, "bad")


def test_vectors_and_texts_of_different_runs_are_refused(encoder: Path, lines: Path, tmp_path: Path) -> None:
    embed(encoder, lines, out=tmp_path / "x.npy")
    np.save(tmp_path / "x.npy", np.load(tmp_path / "x.npy")[:5])
    with refusal("damaged-file", "x.npy", "5", "7"):
        neighbours(tmp_path / "x.npy", "bad")


@pytest.mark.parametrize("of", ["vectors", "texts"])
def test_one_changed_byte_is_told(encoder: Path, lines: Path, tmp_path: Path, of: str) -> None:
    path = tmp_path / "x.npz"
    embed(encoder, lines, out=path)
    (whole,) = vector_reading.open_vectors(path).blocks()
    good = path.read_bytes()
    place = good.index(whole[3].tobytes() if of == "vectors" else b"a good film")
    path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
    with refusal("damaged-file", "x.npz", "32"):
        neighbours(path, "bad")


def test_a_damaged_parquet_file_is_told(encoder: Path, lines: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    embed(encoder, lines, out=path)
    good = path.read_bytes()
    path.write_bytes(good[:4] + bytes(len(good) // 3) + good[4 + len(good) // 3 :])
    with refusal("damaged-file", "x.parquet"):
        neighbours(path, "bad")


def test_settings_that_are_not_there_or_not_known(encoder: Path, lines: Path, tmp_path: Path) -> None:
    embed(encoder, lines, out=tmp_path / "y.npz")
    with np.load(tmp_path / "y.npz") as opened:
        arrays = dict(opened)
    arrays["settings"] = np.array(arrays["settings"].item().replace('"pooling"', '"pulling"'))
    np.savez(tmp_path / "y.npz", **arrays)
    with refusal("wrong-format", "y.npz"):
        neighbours(tmp_path / "y.npz", "bad")
    np.savez(tmp_path / "x.npz", settings=np.array("{}"), lines=np.arange(2))
    with refusal("damaged-file"):
        neighbours(tmp_path / "x.npz", "bad")
