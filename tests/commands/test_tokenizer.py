"""osbert tokenizer train and encode, as a reader gives them."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest

from osbert.interop.tokenizers import read_any_tokenizer, read_tokenizer
from terminal import run

TEXT = "The lower the lowest, the newer the newest: wider widest low new wide café. "


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "a.txt").write_text(TEXT * 3 + "\n\n" + TEXT, "utf-8")
    with lzma.open(tmp_path / "b.jsonl.xz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": TEXT}) + "\n" for _ in range(3))
    return [str(tmp_path / "a.txt"), str(tmp_path / "b.jsonl.xz")]


def test_train(tmp_path: Path, files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "tok"
    assert run("tokenizer", "train", *files, "--out", str(out), "--vocabulary", "50") == 0
    printed = capsys.readouterr().out.splitlines()
    tokenizer = read_tokenizer(out)
    assert len(tokenizer) == 50 and tokenizer.lowercase and "the" in tokenizer.vocabulary
    assert printed[-2] == f"fingerprint {tokenizer.fingerprint}"
    assert "learned 50 pieces from 119 words (14 different) in " in printed[-1]
    again = tmp_path / "again"
    assert run("tokenizer", "train", *files, "--out", str(again), "--vocabulary", "50") == 0
    for name in ("vocab.txt", "tokenizer.json"):
        assert (out / name).read_bytes() == (again / name).read_bytes()


def test_train_says_when_the_text_gives_fewer_pieces(
    tmp_path: Path, files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("tokenizer", "train", *files, "--out", str(tmp_path / "tok"), "--no-lowercase") == 0
    printed = capsys.readouterr().out
    assert "30,522 pieces were requested, but no further pair of pieces occurs 2 times." in printed
    tokenizer = read_tokenizer(tmp_path / "tok")
    assert not tokenizer.lowercase and {"The", "café"} <= set(tokenizer.vocabulary)


def test_train_tells_repairs(tmp_path: Path, files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"the new \xff way\n")
    arguments = ["tokenizer", "train", *files, str(bad), "--out", str(tmp_path / "tok")]
    assert run(*arguments) == 1
    assert "bad.txt" in capsys.readouterr().err
    assert not (tmp_path / "tok").exists()
    assert run(*arguments, "--errors", "replace") == 0
    assert "1 runs of bad bytes replaced" in capsys.readouterr().out


def test_train_names_every_missing_file(tmp_path: Path, files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    missing = [str(tmp_path / "no.txt"), str(tmp_path / "none.txt")]
    assert run("tokenizer", "train", *files, *missing, "--out", str(tmp_path / "tok")) == 1
    error = capsys.readouterr().err
    assert "no.txt" in error and "none.txt" in error
    assert run("tokenizer", "train", *files, "--out", files[0]) == 1
    assert files[0] in capsys.readouterr().err


@pytest.mark.parametrize("setting", ["minimum", "alphabet"])
def test_train_refuses_settings_below_one(
    tmp_path: Path, files: list[str], capsys: pytest.CaptureFixture[str], setting: str
) -> None:
    assert run("tokenizer", "train", *files, "--out", str(tmp_path / "tok"), f"--{setting}", "0") == 1
    error = capsys.readouterr().err
    assert setting in error and "1" in error and "0" in error
    assert not (tmp_path / "tok").exists()


@pytest.mark.parametrize("name", ["run.json", "config.json", "corpus.json", "building.json"])
def test_train_refuses_a_folder_that_goes_with_another_tokenizer(
    tmp_path: Path, files: list[str], capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_text("{}")
    assert run("tokenizer", "train", *files, "--out", str(tmp_path / "out")) == 1
    assert name in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "out").iterdir()] == [name]


@pytest.mark.parametrize("kind", ["bpe", "unigram", "words"])
def test_train_another_kind(tmp_path: Path, files: list[str], capsys: pytest.CaptureFixture[str], kind: str) -> None:
    out = tmp_path / "tok"
    words = ("tokenizer", "train", *files, "--out", str(out), "--kind", kind, "--vocabulary", "300")
    assert run(*words) == 0
    printed, before = capsys.readouterr().out, (out / "tokenizer.json").read_bytes()
    tokenizer = read_any_tokenizer(out)
    assert f"learned {len(tokenizer)} pieces from" in printed and tokenizer.fingerprint in printed
    assert run(*words) == 0 and (out / "tokenizer.json").read_bytes() == before
    assert {"bpe": "Ġthe", "unigram": "▁", "words": "the"}[kind] in tokenizer.vocabulary
    assert run("tokenizer", "encode", str(out), "the lowest") == 0
    assert "lowest" not in capsys.readouterr().err
    assert run("tokenizer", "extend", str(out), *files, "--out", str(tmp_path / "more")) == 1


def test_encode(tmp_path: Path, files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "tok")
    assert run("tokenizer", "train", *files, "--out", out, "--vocabulary", "5000") == 0
    capsys.readouterr()
    assert run("tokenizer", "encode", out, "-The CAFÉ\u200b\nqed") == 0
    lines = capsys.readouterr().out.splitlines()
    tokenizer = read_tokenizer(out)
    the, cafe = (tokenizer.vocabulary.index(piece) for piece in ("the", "cafe"))
    rows = [line.split() for line in lines]
    assert ["0", "1", "0", "1", "[UNK]", "-"] in rows
    assert ["1", str(the), "1", "4", "the", "The"] in rows
    assert ["2", str(cafe), "5", "9", "cafe", "CAFÉ"] in rows
    assert ["3", "1", "11", "14", "[UNK]", "qed"] in rows
    assert lines[-1] == "4 pieces, 4 words, 14 characters"


def test_encode_needs_a_tokenizer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("tokenizer", "encode", str(tmp_path), "text") == 1
    error = capsys.readouterr().err
    assert str(tmp_path) in error and "tokenizer.json" in error and "vocab.txt" in error


def test_extend(tmp_path: Path, files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    old, out, more = tmp_path / "tok", tmp_path / "more", tmp_path / "more.txt"
    assert run("tokenizer", "train", *files, "--out", str(old), "--vocabulary", "40") == 0
    more.write_text("The newest carburettor. A carburettor is wide. " * 6, "utf-8")
    assert run("tokenizer", "extend", str(old), str(more), "--out", str(out), "--pieces", "1") == 0
    printed = capsys.readouterr().out
    before, after = read_tokenizer(old), read_tokenizer(out)
    assert after.vocabulary == (*before.vocabulary, "carburettor")
    assert "1 piece added to 40, among them: carburettor" in printed and "% fewer)" in printed
    assert run("tokenizer", "extend", str(old), str(more), "--out", str(out), "--minimum", "100") == 1
    assert "100" in capsys.readouterr().err
    kept = (old / "vocab.txt").read_bytes()
    for given in (old, old / "vocab.txt"):
        assert run("tokenizer", "extend", str(given), str(more), "--out", str(old), "--pieces", "1") == 1
        assert str(old) in capsys.readouterr().err
    assert (old / "vocab.txt").read_bytes() == kept
