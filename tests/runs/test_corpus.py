"""Corpora built from Python: events and no output, settings that are checked, a build that was stopped goes on."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import corpora
import osbert
from osbert.corpus.build import BuildProgress
from osbert.corpus.shards import Corpus
from osbert.runs.contract import Notice
from refusals import refusal


@pytest.fixture
def text(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text("\n".join(corpora.invented()) + "\n", encoding="utf-8")
    osbert.train_tokenizer(tmp_path / "text.txt", out=tmp_path / "vocabulary", vocabulary=120)
    return tmp_path / "text.txt"


def build(text: Path, out: str = "corpus", **settings: Any) -> Corpus:
    folder = text.parent
    chosen = {"documents": "line", "workers": 1, "shard_tokens": 1000, **settings}
    built = osbert.build_corpus(text, tokenizer=folder / "vocabulary", out=folder / out, **chosen)
    assert built is not None
    return built


def content(folder: Path) -> dict[str, bytes]:
    """Return the bytes of the shards."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.glob("shard-*/*"))}


def test_it_reports_by_events_and_prints_nothing(text: Path, capfd) -> None:
    events: list[Any] = []
    corpus = build(text, watch=events.append)
    assert (corpus.documents, corpus.sentences) == (60, 480)
    assert capfd.readouterr() == ("", "")
    assert {event.phase for event in events if isinstance(event, BuildProgress)} >= {"encoding", "duplicates"}
    again: list[Any] = []
    build(text, watch=again.append)
    assert [type(event) for event in again] == [Notice] and "is already finished" in str(again[0])


def test_ctrl_c_leaves_a_build_that_goes_on_in_any_thread(text: Path, monkeypatch) -> None:
    monkeypatch.setattr("osbert.corpus.build.PORTION", 1000)
    seen: list[Any] = []

    def interrupt(event: Any) -> None:
        seen.append(event)
        if len(seen) == 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(text, watch=interrupt)
    events: list[Any] = []
    thread = threading.Thread(target=lambda: build(text, watch=events.append))
    thread.start()
    thread.join()
    assert str(events[0]).startswith("Continuing after ")
    build(text, "whole")
    assert content(text.parent / "corpus") == content(text.parent / "whole")


def test_without_an_executor_of_another_package(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("osbert.extensions.extensions", lambda group: {})
    with refusal("missing-library", "--executor"):
        build(text, executor="local")


def test_settings_are_keywords_that_are_checked(text: Path) -> None:
    for settings, refused in (
        ({"deduplicat": True}, ("unknown-setting", "deduplicat", "'deduplicate'")),
        ({"documents": "lines"}, ("invalid-value", "lines", "'line'")),
        ({"workers": 0}, ("invalid-value", "--workers", "1")),
        ({"language": "en"}, ("options-exclude-each-other", "--executor")),
        ({"encoding": "utf-99"}, ("invalid-value", "utf-99")),
    ):
        with refusal(*refused):
            build(text, **settings)
    assert not (text.parent / "corpus").exists()
    assert build(text, "thin", deduplicate=True).report["deduplicated"]
