"""A corpus on an object store that is larger than the cache: the batches of the local one, and what may be wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import corpora
import osbert
from object_store import QUIET
from osbert.commands.corpus.show import show
from osbert.corpus.shards import Corpus, open_corpus
from osbert.data.loader import LoaderSettings, PretrainingLoader
from osbert.data.pack import Packer
from osbert.data.step import Cursor, Step
from osbert.interop.tokenizers import read_any_tokenizer
from osbert.objectives.mlm import MaskedLanguage
from osbert.remote import reading_copies
from refusals import refusal

pytestmark = QUIET
URL = "s3://box/mixed"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a corpus of three shards, which no test changes."""
    folder = tmp_path_factory.mktemp("built")
    files = [folder / f"{name}.txt" for name in "abc"]
    for seed, file in enumerate(files):
        file.write_text("\n\n".join(corpora.invented(seed=seed) + corpora.invented(seed=seed + 3)))
    osbert.train_tokenizer(files, out=folder / "tokenizer", vocabulary=120)
    for file in files:
        osbert.build_corpus(file, tokenizer=folder / "tokenizer", out=file.with_suffix(""))
    parts = [file.with_suffix("") for file in files]
    osbert.mix_corpora(parts, weights=[3, 1, 1], out=folder / "mixed")
    return folder / "mixed"


@pytest.fixture
def local(s3: Any, built: Path) -> Path:
    """Return the folder of the corpus, which lies in the store as well."""
    s3.put(f"{built}/", "box/mixed/", recursive=True)
    return built


@pytest.fixture(scope="module")
def wanted(built: Path) -> list[Step]:
    """Return the first steps of the local corpus, of which the last is in the second epoch."""
    found = list(islice(steps(Corpus.open(built)), 130))
    assert found[-1].cursor.epoch == 1
    return found


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def steps(corpus: Corpus, workers: int = 0, cursor: Cursor | None = None) -> Iterator[Step]:
    packer = Packer(tokenizer=read_any_tokenizer(corpus.folder), length=32)
    settings = LoaderSettings(batch=8, pool=1_000, held_out=0.05, workers=workers)
    return PretrainingLoader(corpus, {"mlm": MaskedLanguage()}, packer, settings).steps(cursor or Cursor())


def arrays(held: Any) -> Any:
    """Return all that a step holds, with its tensors as bytes."""
    if isinstance(held, torch.Tensor):
        return str(held.dtype), tuple(held.shape), held.numpy().tobytes()
    if is_dataclass(held):
        return [arrays(getattr(held, field.name)) for field in fields(held)]
    if isinstance(held, dict):
        return {name: arrays(value) for name, value in held.items()}
    return [arrays(one) for one in held] if isinstance(held, list | tuple) else held


def test_the_batches_of_the_local_corpus(
    local: Path, wanted: list[Step], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = size(local) * 6 // 10
    monkeypatch.setenv("OSBERT_CACHE_GB", str(bound / 1e9))
    stored = open_corpus(URL)
    assert stored.store is not None and stored.content == Corpus.open(local).content
    stored.verify()
    for place, (step, known) in enumerate(zip(steps(stored), wanted)):
        assert arrays(step) == arrays(known)
        if not place % 20:
            assert size(tmp_path / "cache") <= bound, "less than all blocks, which an epoch reads"
    middle = len(wanted) // 2
    [after] = islice(steps(stored, cursor=wanted[middle].cursor), 1)
    assert arrays(after) == arrays(wanted[middle + 1])
    for block in stored.blocks(512):
        assert np.array_equal(stored.read(block).ids, Corpus.open(local).read(block).ids)


def test_the_batches_of_the_local_corpus_by_several_processes(
    local: Path, wanted: list[Step], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may exceed the bound together for a moment."""
    monkeypatch.setenv("OSBERT_CACHE_GB", str(size(local) * 0.6 / 1e9))
    stored = open_corpus(URL)
    assert stored.store is not None
    for step, known in zip(steps(stored, workers=2), wanted):
        assert arrays(step) == arrays(known)


def test_verify_says_what_it_compared(
    local: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def said() -> str:
        with reading_copies():
            show(URL, sample=0, verify=True)  # type: ignore[arg-type]
        return " ".join("".join(capsys.readouterr()).split())

    assert "Every file is" in said()
    monkeypatch.setenv("OSBERT_CACHE_GB", str(size(local) * 0.6 / 1e9))
    assert "Every file is" not in said()


def test_a_corpus_that_fits_is_copied(local: Path) -> None:
    assert open_corpus(URL).store is None
    assert open_corpus(local).store is None


def test_what_is_wrong_in_the_store(local: Path, s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with refusal("too-large", "OSBERT_CACHE_GB"):
        monkeypatch.setenv("OSBERT_CACHE_GB", "1e-6")
        open_corpus(URL)
    monkeypatch.setenv("OSBERT_CACHE_GB", str(size(local) * 0.6 / 1e9))
    corpus = open_corpus(URL)
    s3.put_file(str(local / "shard-00000" / "ids.npy"), "box/mixed/shard-00001/ids.npy")
    with refusal("file-changed", f"{URL}/shard-00001/ids.npy"):
        corpus.read(corpus.blocks(128)[-1])
        for block in corpus.blocks(128):
            corpus.read(block)
    with refusal("damaged-file", f"{URL}/shard-00001/ids.npy"), reading_copies():
        open_corpus(URL)
    s3.rm("box/mixed/shard-00001", recursive=True)
    with refusal("damaged-file", f"{URL}/shard-00001/ids.npy"), reading_copies():
        open_corpus(URL)
    s3.rm_file("box/mixed/corpus.json")
    with refusal("not-a-model"), reading_copies():
        open_corpus(URL)
    with refusal("missing-file", "s3://box/none"), reading_copies():
        open_corpus("s3://box/none")


def test_without_room_blocks_are_read_all_the_same(
    local: Path, s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OSBERT_CACHE_GB", str(size(local) * 0.6 / 1e9))
    corpus = open_corpus(URL)
    monkeypatch.setenv("OSBERT_CACHE_GB", "1e-6")
    before = size(tmp_path / "cache")
    for block in corpus.blocks(512):
        assert np.array_equal(corpus.read(block).ids, Corpus.open(local).read(block).ids)
    assert size(tmp_path / "cache") == before

    def lost(*_: Any, **__: Any) -> None:
        raise ConnectionError("reset by peer")

    monkeypatch.setattr(s3, "cat_file", lost)
    with refusal("not-downloaded", URL):
        corpus.read(corpus.blocks(512)[0])
