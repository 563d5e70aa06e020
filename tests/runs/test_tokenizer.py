"""Vocabularies trained and extended from Python: texts or files, events and no output."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

import osbert
from osbert import files
from osbert.errors import UserError
from osbert.interop import tokenizers
from osbert.interop.tokenizers import read_tokenizer
from osbert.runs.contract import Notice
from osbert.runs.tokenizer import VocabularyProgress
from refusals import refusal

TEXT = "The lower the lowest, the newer the newest: wider widest low new wide.\n"


def test_texts_and_files_give_the_same_vocabulary(tmp_path: Path, monkeypatch, capfd) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text(TEXT * 3)
    Path("folder").mkdir()
    Path("folder", "b.txt").write_text(TEXT * 3)
    sources: list[Any] = [[TEXT] * 3, iter([TEXT] * 3), "a.txt", Path("a.txt"), ["a.txt"], [Path("a.txt")], "folder"]
    made = [osbert.train_tokenizer(one, out=f"out-{n}", vocabulary=45) for n, one in enumerate(sources)]
    assert len({tokenizer.fingerprint for tokenizer in made}) == 1
    assert read_tokenizer(tmp_path / "out-0") == made[0]
    assert capfd.readouterr() == ("", "")


def test_a_text_longer_than_a_file_name_may_be_is_a_text(tmp_path: Path) -> None:
    assert len(osbert.train_tokenizer([TEXT.strip() * 9], out=tmp_path / "out", vocabulary=45)) == 45


def test_events_tell_how_far_it_is_and_how_it_ended(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT * 3)
    events: list[Any] = []
    tokenizer = osbert.train_tokenizer(tmp_path / "a.txt", out=tmp_path / "out", vocabulary=45, watch=events.append)
    progress = [event for event in events if isinstance(event, VocabularyProgress)]
    assert progress[-2].done == progress[-2].total == (tmp_path / "a.txt").stat().st_size
    assert progress[-1].phase == "learning pieces"
    notices = [str(event) for event in events if isinstance(event, Notice)]
    assert notices[0] == f"fingerprint {tokenizer.fingerprint}" and "learned 45 pieces from 48 words" in notices[1]


def test_mistakes_are_user_errors(tmp_path: Path) -> None:
    for texts, settings, refused in (
        (["missing.txt"], {}, ("missing-file", "missing.txt")),
        ("missing", {}, ("missing-file", "missing")),
        ([], {}, ("no-data",)),
        ([TEXT], {"vocabluary": 45}, ("unknown-setting", "vocabluary", "'vocabulary'")),
        ([TEXT], {"vocabulary": "45"}, ("invalid-value", "vocabulary", "integer", "'45'")),
        ([TEXT], {"vocabulary": 3}, ("invalid-value", "3")),
    ):
        with refusal(*refused):
            osbert.train_tokenizer(texts, out=tmp_path / "out", **settings)
    assert not (tmp_path / "out").exists()


def test_what_is_no_text_is_not_learnt_as_a_word(tmp_path: Path) -> None:
    for texts in (["the cat", float("nan")], ["the cat", tmp_path], {"the cat": ["the dog"]}):
        with refusal("invalid-value"):
            osbert.train_tokenizer(texts, out=tmp_path / "out", vocabulary=60)


def test_ctrl_c_leaves_no_folder(tmp_path: Path) -> None:
    def interrupt(event: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        osbert.train_tokenizer([TEXT], out=tmp_path / "out", vocabulary=45, watch=interrupt)
    assert list(tmp_path.iterdir()) == []


def test_a_vocabulary_is_extended_in_a_thread(tmp_path: Path) -> None:
    old = osbert.train_tokenizer([TEXT] * 3, out=tmp_path / "old", vocabulary=45)
    made: list[Any] = []
    texts = ["A wombat is a wombat."] * 9
    thread = threading.Thread(
        target=lambda: made.append(
            osbert.extend_tokenizer(tmp_path / "old", texts, out=tmp_path / "new", pieces=1, minimum=2)
        )
    )
    thread.start()
    thread.join()
    assert made[0].vocabulary == (*old.vocabulary, "wombat")
    with refusal("output-holds-something-else"):
        osbert.extend_tokenizer(tmp_path / "old", texts, out=tmp_path / "old")


@pytest.mark.parametrize(
    ("text", "settings", "warned"),
    [
        ("สวัสดี ชาวโลก นี่คือภาษาไทย", {}, True),
        ("नमस्ते दुनिया, मैं किताब पढ़ता हूँ", {"kind": "words"}, True),
        ("がくせい です", {"kind": "unigram"}, True),
        ("สวัสดี ชาวโลก นี่คือภาษาไทย", {"lowercase": False}, False),
        ("สวัสดี ชาวโลก นี่คือภาษาไทย", {"kind": "bpe", "vocabulary": 300}, False),
        ("Größe naïve café, мир 我们", {}, False),
    ],
)
def test_vowel_signs_that_are_stripped_as_accents_are_named(
    tmp_path: Path, text: str, settings: dict[str, Any], warned: bool
) -> None:
    events: list[Any] = []
    osbert.train_tokenizer(
        [f"{text}\n"] * 9, out=tmp_path / "out", watch=events.append, **{"vocabulary": 60} | settings
    )
    warnings = [str(event) for event in events if isinstance(event, Notice) and event.warning]
    assert [("--no-lowercase" in text) for text in warnings] == [True] * warned


@pytest.mark.parametrize("written", range(4))
def test_a_full_disk_is_named_by_the_output_and_leaves_no_half_of_a_tokenizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    write, calls = files.write_text, []

    def fill(path: Path, text: str) -> None:
        calls.append(path)
        if len(calls) > written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path, text)

    for module in (files, tokenizers):
        monkeypatch.setattr(module, "write_text", fill)
    with refusal("not-written", "vocabulary could not be written", "disk is full"):
        osbert.train_tokenizer([TEXT] * 3, out=tmp_path / "vocabulary", vocabulary=45, lowercase=False)
    monkeypatch.undo()
    with contextlib.suppress(UserError):
        assert not read_tokenizer(tmp_path / "vocabulary").lowercase
