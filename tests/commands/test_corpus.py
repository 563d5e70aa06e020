from __future__ import annotations

import json
import re
import string
from pathlib import Path

import pytest

from osbert.corpus.shards import Corpus
from osbert.corpus.state import BuildState
from osbert.interop.tokenizers import read_tokenizer, write_tokenizer
from osbert.lock import hold_lock
from osbert.text.tokenizer import SPECIALS, Tokenizer
from terminal import told


@pytest.fixture()
def tokenizer(tmp_path) -> Tokenizer:
    letters = string.ascii_lowercase + ".,"
    made = Tokenizer([*SPECIALS, *letters, *(f"##{letter}" for letter in letters), "river", "[shore]"])
    write_tokenizer(made, tmp_path / "tokenizer")
    return made


@pytest.fixture()
def osbert(tmp_path, monkeypatch, capsys, tokenizer):
    """Return a function that runs a command in the test's folder and returns (status, output, errors)."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str, str]:
        done = told(capsys, *words)
        return done.status, done.output, done.error

    return run


BUILD = ("corpus", "build", "texts", "--tokenizer", "tokenizer", "--out", "corpus", "--workers", "1")


@pytest.fixture()
def texts(tmp_path) -> Path:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_text("A river runs. It is wide.\n\nThe shore.\n", encoding="utf-8")
    (folder / "b.jsonl").write_text('{"text": "The shore."}\n{"text": "Rivers, again."}\n', encoding="utf-8")
    return folder


def test_build_makes_a_corpus_that_stands_alone_and_reports(osbert, texts, tmp_path, tokenizer):
    status, output, errors = osbert(*BUILD)
    assert status == 0
    corpus = Corpus.open(tmp_path / "corpus")
    assert (corpus.documents, corpus.sentences) == (4, 5)
    assert corpus.fingerprint == tokenizer.fingerprint == read_tokenizer(tmp_path / "corpus").fingerprint
    for line in ("documents", "sentences", "tokens a word", "[UNK] rate", "1 of 4, kept", "on disk", "MB/s"):
        assert line in output
    assert "encoding" in errors or "duplicates" in errors  # progress does not mix with the report


def test_the_same_command_again_does_nothing_and_another_is_refused(osbert, texts, tmp_path):
    osbert(*BUILD)
    before = (tmp_path / "corpus" / "corpus.json").read_bytes()
    status, output, _ = osbert(*BUILD)
    assert status == 0 and "already finished" in output and "documents" in output
    status, _, errors = osbert(*BUILD, "--documents", "line", "--deduplicate")
    assert status == 1
    assert 'documents: "blank-line" -> "line"' in errors and "deduplicate: false -> true" in errors
    assert (tmp_path / "corpus" / "corpus.json").read_bytes() == before


def test_a_build_that_was_stopped_says_where_it_goes_on(osbert, texts, tmp_path, monkeypatch):
    monkeypatch.setattr("osbert.corpus.build.PORTION", 1000)
    (texts / "c.jsonl").write_text('{"text": "Fine."}\n' * 1000 + "{\n", encoding="utf-8")
    status, _, errors = osbert(*BUILD, "--shard-tokens", "3000")
    assert status == 1 and "c.jsonl has lines" in errors
    status, output, _ = osbert(*BUILD, "--shard-tokens", "3000", "--errors", "replace")
    assert status == 0 and "Continuing after" in output
    assert "warning: 1 record(s) without a usable text left out." in output
    assert Corpus.open(tmp_path / "corpus").documents == 4 + 1000


def test_every_setting_of_reading_reaches_the_reader(osbert, tmp_path):
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_bytes("Été.\nEncore.".encode("cp1252"))
    (tmp_path / "texts" / "b.jsonl").write_text(json.dumps({"body": "Done."}))
    status, _, _ = osbert(*BUILD, "--documents", "line", "--encoding", "cp1252", "--field", "body", "--deduplicate")
    corpus = Corpus.open(tmp_path / "corpus")
    assert status == 0 and corpus.documents == 3 and corpus.report["unknown"] == 0
    assert corpus.manifest["identity"]["settings"] == {
        "documents": "line",
        "field": "body",
        "encoding": "cp1252",
        "errors": "strict",
        "deduplicate": True,
        "words": "characters",
        "shard_tokens": 2**25,
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--workers", "0"), "--workers must be 1 or more"),
        (("--shard-tokens", "0"), "--shard-tokens must be from 1"),
        (("--encoding", "utf-9"), "Did you mean 'utf-8'?"),
        (("--tokenizer", "nowhere"), "nowhere"),
        (("--out", "texts/a.txt"), "is a file"),
        (("--out", "texts"), "already contains a.txt, b.jsonl"),
    ],
)
def test_what_cannot_be_is_refused_before_any_work(osbert, texts, tmp_path, words, message):
    settings = {"--tokenizer": "tokenizer", "--out": "corpus", **dict([words])}
    status, _, errors = osbert("corpus", "build", "texts", *(part for pair in settings.items() for part in pair))
    assert status == 1 and message in errors
    assert not (tmp_path / "corpus").exists()


def test_show_prints_the_report_and_a_sample_with_marked_pieces(osbert, texts):
    osbert(*BUILD)
    status, output, _ = osbert("corpus", "show", "corpus", "--sample", "1")
    assert status == 0
    assert "documents" in output and "Unigram entropy" in output
    assert "a river r·u·n·s ." in output
    assert "river·s" not in output
    status, output, _ = osbert("corpus", "show", "corpus", "--sample", "50")
    assert "river·s" in output or "r·i·v·e·r·s" in output
    _, output, _ = osbert("corpus", "show", "corpus", "--sample", "0")
    assert "r·u·n·s" not in output


def test_show_refuses_options_that_do_nothing(osbert, texts):
    osbert(*BUILD)
    for words, message in (
        (("--masks", "-3"), "--masks must be 0 or more, not -3."),
        (("--sample", "-1"), "--sample must be 0 or more, not -1."),
        (("--masks", "2", "--verify"), "--sample or --verify"),
        (("--masks", "2", "--sample", "3"), "--sample or --verify"),
    ):
        status, output, errors = osbert("corpus", "show", "corpus", *words)
        assert status == 1 and message in errors and not output


def test_show_refuses_what_is_no_corpus(osbert, texts, tmp_path):
    status, _, errors = osbert("corpus", "show", "texts")
    assert status == 1 and "there is no corpus" in errors
    osbert(*BUILD)
    other = Tokenizer([*SPECIALS, *string.ascii_letters])
    write_tokenizer(other, tmp_path / "corpus")
    status, _, errors = osbert("corpus", "show", "corpus")
    assert status == 1 and "not the one that the corpus was built with" in errors


def test_a_folder_around_the_corpus_may_be_given_again(osbert, texts, tmp_path):
    words = ("corpus", "build", "texts", "--tokenizer", "tokenizer", "--out", "texts/corpus", "--workers", "1")
    assert osbert(*words)[0] == 0
    status, output, _ = osbert(*words)
    assert status == 0 and "already finished" in output


def test_a_refused_build_does_not_replace_the_tokenizer_of_the_one_at_work(osbert, texts, tmp_path):
    other = Tokenizer([*SPECIALS, *string.ascii_letters])
    write_tokenizer(other, tmp_path / "other")
    write_tokenizer(other, tmp_path / "corpus")
    with hold_lock(tmp_path / "corpus", file=tmp_path / "corpus" / "building" / "lock"):
        BuildState(identity={}).save(tmp_path / "corpus")
        before = {path.name: path.read_bytes() for path in (tmp_path / "corpus").iterdir() if path.is_file()}
        status, _, errors = osbert(*BUILD)
        assert status == 1 and "is in use: process" in errors
        assert before == {path.name: path.read_bytes() for path in (tmp_path / "corpus").iterdir() if path.is_file()}


@pytest.mark.lab
def test_build_in_tasks(osbert, texts, tmp_path):
    pytest.importorskip("datatrove", reason="the extra 'scale' is not installed")
    status, _, errors = osbert(*BUILD, "--tasks", "2")
    assert status == 1
    assert "--tasks needs --executor" in errors
    for given in (("--time", "1:00:00"), ("--partition", "cpu")):
        status, _, errors = osbert(*BUILD, *given)
        assert status == 1 and f"{given[0]} needs --executor" in errors
        status, _, errors = osbert(*BUILD, "--executor", "local", *given)
        assert status == 1 and "--partition and --time" in errors and "Slurm" in errors
    status, _, errors = osbert(*BUILD, "--executor", "local", "--tasks", "2")
    assert status == 0, errors
    assert Corpus.open(tmp_path / "corpus").documents == 4
    status, _, errors = osbert(*BUILD, "--executor", "local", "--quality")
    assert status == 1
    assert "quality" in errors


@pytest.mark.lab
def test_the_report_tells_what_the_filters_left_out(osbert, texts, tmp_path):
    pytest.importorskip("datatrove", reason="the extra 'scale' is not installed")
    english = "The river runs past the old houses on the hill, and nobody knows why it is so. "
    (texts / "a.txt").write_text(english + "\n\nDas ist nicht so, und das war es auch nie in der Stadt.\n")
    status, output, errors = osbert(*BUILD, "--executor", "local", "--tasks", "1", "--language", "en")
    assert status == 0, errors
    assert re.search(r"documents left out .* 2 by language", output)


def test_inputs_that_changed_since_are_named_when_asked_for(osbert, texts, tmp_path):
    assert osbert(*BUILD)[0] == 0
    assert "changed since" not in osbert("corpus", "show", "corpus", "--verify")[1]
    path = next(path for path in (tmp_path / "texts").rglob("*") if path.is_file())
    path.write_bytes(path.read_bytes() + b" ")
    output = osbert("corpus", "show", "corpus", "--verify")[1]
    assert re.search(rf"1 of \d+ inputs? changed since .*{path.name}", output)


def test_a_flipped_bit_is_found_when_asked_for(osbert, texts, tmp_path):
    assert osbert(*BUILD)[0] == 0
    status, output, _ = osbert("corpus", "show", "corpus", "--verify")
    assert status == 0 and "Every file is what was written" in output
    (path,) = (tmp_path / "corpus").glob("shard-*/ids.npy")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    status, _, errors = osbert("corpus", "show", "corpus", "--verify")
    assert status == 1 and "ids.npy: not what was written" in errors
