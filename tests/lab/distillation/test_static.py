"""Static vectors of an encoder: sentence-transformers gives the same, frequent pieces weigh less, what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import osbert
from osbert.interop.folder import open_folder
from osbert.interop.sentence_files import SentenceModel, write_sentence_model
from osbert.interop.sentence_parts import Dense
from osbert.lock import claim
from osbert_lab.distillation.static import StaticStudent, piece_vectors
from refusals import refusal, refused
from terminal import told
from tiny_runs import write_run

PAIRS = [("the good film", "a good film", 5), ("the bad play", "a good film", 1), ("bad", "the poor actor", 3)]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("encoder"), None, deviation=0.3)


def test_a_folder_opens_here_and_in_sentence_transformers(encoder: Path, tmp_path: Path) -> None:
    student = osbert.distil(encoder, to="static", out=tmp_path / "static", data=PAIRS, dimensions=5)
    assert isinstance(student, StaticStudent)
    assert -1 <= student.metrics["spearman"] <= 1 and {*student.teacher} == {"spearman", "texts_per_second"}
    texts = ["the good film", "bad", "unheardof"]
    vectors = np.asarray(osbert.load(student.folder).embed(texts))
    assert vectors.shape == (3, 5) and np.linalg.norm(vectors[:2], axis=1) == pytest.approx(1)
    theirs = pytest.importorskip("sentence_transformers").SentenceTransformer(str(student.folder), device="cpu")
    np.testing.assert_allclose(vectors, theirs.encode(texts), atol=1e-6)
    folder = open_folder(student.folder)
    assert folder.form == "osbert" and folder.architecture.family == "static"


def test_vectors_are_the_encoders_main_components_and_frequent_pieces_weigh_less(encoder: Path, tmp_path: Path) -> None:
    folder = open_folder(encoder)
    width, tokenizer = folder.architecture.width, folder.tokenizer
    states, film = piece_vectors(folder), tokenizer.vocabulary.index("film")
    alone = osbert.load(encoder).embed(["film"], pooling="mean", normalize=False)
    assert states[film] == pytest.approx(np.asarray(alone)[0], abs=1e-5)
    plain = osbert.distil(encoder, to="static", out=tmp_path / "plain", dimensions=width, sif=0.0)
    table = open_folder(plain.folder).tensors["table.weight"].numpy()
    regular = np.flatnonzero(np.abs(table).sum(axis=1))  # special pieces have the vector 0
    assert tokenizer.vocabulary.index("[UNK]") not in regular and film in regular
    centered = (states - states.mean(axis=0))[regular]
    np.testing.assert_allclose(table[regular] @ table[regular].T, centered @ centered.T, atol=1e-3)
    texts = [("the film", "x"), ("the film the film the film good", "y")]
    counted = osbert.distil(encoder, to="static", out=tmp_path / "counted", dimensions=width, texts=texts)
    weighed = open_folder(counted.folder).tensors["table.weight"].numpy()
    factors = np.linalg.norm(weighed, axis=1)[regular] / np.linalg.norm(table, axis=1)[regular]
    by_piece = {tokenizer.vocabulary[piece]: factor for piece, factor in zip(regular.tolist(), factors)}
    total = sum(count + 1 for count in (4, 4, 1)) + len(regular) - 3
    assert by_piece["film"] == pytest.approx(1e-4 / (1e-4 + 5 / total), rel=1e-3)
    assert by_piece["film"] == pytest.approx(by_piece["the"]) and by_piece["film"] < by_piece["good"] < by_piece["bad"]


def test_vectors_are_those_after_a_dense_part(tmp_path: Path) -> None:
    encoder = write_run(tmp_path / "encoder", None, deviation=0.3)
    narrow = Dense.linear(np.random.default_rng(0).normal(size=(3, 16)).astype(np.float32))
    write_sentence_model(encoder, SentenceModel(pooling="cls", normalize=False, parts=(narrow,)), width=16)
    folder = open_folder(encoder)
    film = folder.tokenizer.vocabulary.index("film")
    assert piece_vectors(folder)[film] == pytest.approx(np.asarray(osbert.load(encoder).embed(["film"]))[0], abs=1e-5)
    write_sentence_model(encoder, SentenceModel(pooling="splade", normalize=False, similarity="dot"), width=16)
    with refusal("unsupported-model", "sparse"):
        osbert.distil(encoder, to="static", out=tmp_path / "static")


def test_one_process_at_a_time_writes_a_folder(encoder: Path, tmp_path: Path) -> None:
    with claim(tmp_path / "static"), refusal("output-in-use", "static"):
        osbert.distil(encoder, to="static", out=tmp_path / "static")


def test_what_static_vectors_do_not_go_with(encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    words = ("distil", str(encoder), "--out", str(out))
    refused(told(capsys, *words, "--to", "static", "--epochs", "2"), "options-exclude-each-other", "training")
    refused(
        told(capsys, *words, "--dimensions", "8", "--data", str(encoder / "config.json")), "options-exclude-each-other"
    )
    refused(told(capsys, *words), "missing-value", "--data")
    with refusal("wrong-number-of-texts", "row 1"):
        osbert.distil(encoder, to="static", out=out, data=[("a text", 1), ("another", 2)])
    assert not out.exists()
