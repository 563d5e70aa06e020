"""Files of word vectors: read and written in each form, and refused with the line where they are wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import osbert
from osbert_lab.static_vectors.word_vectors import WordVectors, read_word_vectors, write_word_vectors
from refusals import refusal
from terminal import run

WORDS = ("the", "café", "日本", "</s>", "of")
VECTORS = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)


@pytest.mark.parametrize(("form", "name"), [("word2vec", "v.txt"), ("word2vec", "v.bin"), ("glove", "v.txt")])
def test_every_form_keeps_words_and_bits(form, name, tmp_path: Path) -> None:
    write_word_vectors(tmp_path / name, WordVectors(words=WORDS, vectors=VECTORS), form)
    found = read_word_vectors(tmp_path / name)
    assert tuple(found.words) == WORDS and np.array_equal(found.vectors, VECTORS)
    lines = (tmp_path / name).read_bytes().split(b"\n")
    assert (lines[0] == b"5 3") == (form == "word2vec")
    assert lines[form == "word2vec"].startswith(b"the ")


def test_forms_of_others_are_read(tmp_path: Path) -> None:
    """fastText ends lines with a space; binary files may lack the line ends; GloVe's words may have spaces."""
    (tmp_path / "a.vec").write_text("2 2\nthe 1 -2.5 \nof 3e-1 4 \n")
    (tmp_path / "b.bin").write_bytes(b"2 2\nthe " + np.array([1, -2.5], "<f4").tobytes() + b"of " + bytes(8))
    (tmp_path / "c.txt").write_text("the 1 2\n. . 3 4\n")
    assert read_word_vectors(tmp_path / "a.vec").vectors.tolist() == [[1, -2.5], [np.float32(0.3), 4]]
    assert read_word_vectors(tmp_path / "b.bin").vectors.tolist() == [[1, -2.5], [0, 0]]
    assert read_word_vectors(tmp_path / "c.txt").words == ["the", ". ."]
    (tmp_path / "d.vec").write_text("2 2\nthe 1 2\nof 3 4\n", encoding="utf-8-sig")
    assert read_word_vectors(tmp_path / "d.vec").words == ["the", "of"]


BAD = {
    "few": ("v.txt", b"3 2\na 1 2\nb 1 2\n", "damaged-file", ("line 1", "3", "2")),
    "many": ("v.txt", b"1 2\na 1 2\nb 1 2\n", "damaged-file", ("line 1",)),
    "short": ("v.txt", b"a 1 2\nb 1\n", "damaged-file", ("line 2", "1 values", "2")),
    "word": ("v.txt", b"a 1 2\nb 1 x\n", "damaged-file", ("line 2", "x")),
    "nan": ("v.txt", b"a 1 2\nb 1 nan\n", "damaged-file", ("line 2", "'b'")),
    "twice": ("v.vec", b"2 2\na 1 2\na 1 2\n", "damaged-file", ("line 3", "'a'")),
    "bytes": ("v.txt", b"a 1 2\n\xff 1 2\n", "wrong-encoding", ("line 2",)),
    "nothing": ("v.txt", b"", "no-data", ()),
    "cut": ("v.bin", b"2 1\na \0\0\0\0\nb \0\0", "damaged-file", ("word 2 of 2",)),
    "longer": ("v.bin", b"1 1\na \0\0\0\0\nb \0\0\0\0\n", "damaged-file", ("line 1", "1")),
    "spaced": ("v.bin", b"2 1\na b 1234\nc 1234\n", "damaged-file", ("word 2 of 2",)),
    "wide": ("v.vec", b"1 99999999\na 1 2\n", "damaged-file", ("line 1", "99,999,999")),
    "widthless": ("v.vec", b"1 0\na\n", "damaged-file", ("line 1",)),
    "tabs": ("v.txt", b"a\t1\t2\n", "damaged-file", ("line 1",)),
    "over": ("v.txt", b"a 1 1e39\n", "damaged-file", ("line 1", "'a'")),
    "text": ("v.bin", b"a 1 2\n", "wrong-format", ("line 1", "v.bin")),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_refused_with_their_line(case: str, tmp_path: Path) -> None:
    name, content, code, values = BAD[case]
    (tmp_path / name).write_bytes(content)
    with refusal(code, name, *values):
        read_word_vectors(tmp_path / name)


def test_convert_both_ways(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, folder = tmp_path / "v.txt", tmp_path / "model"
    words = ("the", "good", "film", "well-made", "<unk>")
    write_word_vectors(source, WordVectors(words=words, vectors=VECTORS), "glove")
    assert run("convert", str(source), str(folder), "--to", "osbert") == 0
    assert "1 of 5 words" in capsys.readouterr().out
    model = osbert.load(folder)
    expected = VECTORS[[0, 1, 4]].sum(0)  # unseen is <unk>; <s> and </s> have the vector 0
    np.testing.assert_allclose(model.embed(["The good unseen"], normalize=False)[0] * 5, expected, atol=1e-6)
    for name, form in (("w.bin", "word2vec"), ("w.vec", "word2vec"), ("g.txt", "glove")):
        assert run("convert", str(folder), str(tmp_path / name), "--to", form) == 0
        found = read_word_vectors(tmp_path / name)
        assert dict(zip(found.words, found.vectors.tolist())) == dict(zip(words, VECTORS.tolist()))
    assert run("convert", str(folder), str(tmp_path / "v.npy"), "--to", "glove") == 1
    assert run("convert", str(source), str(tmp_path / "x"), "--to", "google") == 1


def test_chinese_words_are_cut_at_spaces() -> None:
    tokenizer, lost = WordVectors(words=["日本", "东京", "a"], vectors=VECTORS[:3]).tokenizer()
    assert not lost and tokenizer.tokens(tokenizer.encode("日本 a")) == ["日本", "a"]
