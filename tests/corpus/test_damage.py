"""A corpus that was harmed is told of with the file's name, when it is opened, verified or read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from osbert.corpus.build import Build
from osbert.corpus.shards import Corpus
from osbert.corpus.state import BuildSettings
from refusals import refusal


@pytest.fixture
def folder(tmp_path, tokenizer, prose) -> Path:
    source = tmp_path / "text.txt"
    source.write_text("\n\n".join(prose(20)))
    Build.prepare([source], tokenizer=tokenizer, folder=tmp_path / "corpus", settings=BuildSettings()).run()
    return tmp_path / "corpus"


@pytest.fixture
def ids(folder) -> Path:
    return folder / "shard-00000" / "ids.npy"


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_a_whole_one_is_not_complained_of(folder) -> None:
    corpus = Corpus.open(folder)
    corpus.verify()
    assert sum(len(document) for block in corpus.blocks() for document in corpus.read(block)) == corpus.tokens


@pytest.mark.parametrize(
    ("harm", "told"),
    [(Path.unlink, "missing"), (lambda path: os.truncate(path, 99), "99 bytes, must be")],
    ids=["gone", "cut"],
)
def test_sizes_are_compared_when_it_is_opened(folder, ids, harm: Callable[[Path], None], told) -> None:
    harm(ids)
    with refusal("damaged-file", "ids.npy", told):
        Corpus.open(folder)


@pytest.mark.parametrize("name", ["shard-00000/ids.npy", "shard-00000/words.npy", "counts.npy"])
def test_contents_are_compared_when_asked_for(folder, name) -> None:
    flip(folder / name)
    corpus = Corpus.open(folder)
    corpus.verify(most=100)  # it is larger, so nothing is read
    with refusal("damaged-file", name):
        corpus.verify()


def test_a_piece_that_is_not_in_the_vocabulary(folder, ids) -> None:
    array = np.load(ids)
    array[123] = 65_000
    np.save(ids, array)
    corpus = Corpus.open(folder)
    with refusal("mismatched-tokenizer", "ids.npy", "65,000", "123"):
        for block in corpus.blocks(50):
            corpus.read(block)


def test_a_file_cut_while_it_is_mapped_is_told_instead_of_a_bus_error(folder, ids) -> None:
    corpus = Corpus.open(folder)
    (block,) = corpus.blocks()
    corpus.read(block)
    os.truncate(ids, ids.stat().st_size // 2)
    with refusal("damaged-file", "ids.npy"):
        corpus.read(block)


def test_a_file_deleted_while_it_is_mapped_is_still_read(folder, ids) -> None:
    corpus = Corpus.open(folder)
    (block,) = corpus.blocks()
    before = [document.ids.tolist() for document in corpus.read(block)]
    ids.unlink()
    assert [document.ids.tolist() for document in corpus.read(block)] == before
    with refusal("damaged-file"):
        Corpus(corpus.folder, corpus.manifest).blocks()


@pytest.mark.parametrize("content", ['{"format": 1}', '{"format": 1, "report": 3}', '{"format": 1, "shards": {}}'])
def test_a_manifest_that_is_not_whole(folder, content) -> None:
    (folder / "corpus.json").write_text(content)
    with refusal("damaged-file", "corpus.json"):
        Corpus.open(folder)


@pytest.mark.parametrize("name", ["../outside", "/outside", "a\0b", 5])
def test_a_manifest_that_names_a_shard_elsewhere(folder: Path, name: object) -> None:
    manifest = json.loads((folder / "corpus.json").read_text())
    manifest["shards"][0]["name"] = name
    (folder / "corpus.json").write_text(json.dumps(manifest))
    with refusal("damaged-file"):
        Corpus.open(folder)


def test_a_manifest_that_names_a_file_elsewhere(folder: Path) -> None:
    manifest = json.loads((folder / "corpus.json").read_text())
    files = manifest["shards"][0]["files"]
    files["../../ids.npy"] = files.pop("ids.npy")
    (folder / "corpus.json").write_text(json.dumps(manifest))
    with refusal("damaged-file"):
        Corpus.open(folder)


def test_an_input_that_changed_is_noticed_at_the_same_size_and_time(folder, tmp_path, tokenizer) -> None:
    def prepare() -> Build:
        return Build.prepare([tmp_path / "text.txt"], tokenizer=tokenizer, folder=folder, settings=BuildSettings())

    path = tmp_path / "text.txt"
    stamp, content = path.stat(), path.read_bytes()
    path.write_bytes(content[:-8] + b"changed\n")
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    with refusal("begun-with-other-settings", "text.txt", "another content"):
        prepare()
    path.write_bytes(content)
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert prepare().report
    # A corpus of an earlier version knows its inputs by size and time alone.
    manifest = json.loads((folder / "corpus.json").read_text())
    for entry in manifest["identity"]["inputs"]:
        del entry["sha256"]
    (folder / "corpus.json").write_text(json.dumps(manifest))
    assert prepare().report
