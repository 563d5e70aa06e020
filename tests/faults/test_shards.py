"""A corpus that is not what it was: told before any training, or while it runs, with the file's name."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from harness import Site, build_corpus, compare, steps_taken

SHARD = "shard-00002"


def remove(corpus: Path) -> None:
    (corpus / SHARD / "ids.npy").unlink()


def remove_shard(corpus: Path) -> None:
    shutil.rmtree(corpus / SHARD)


def truncate(corpus: Path) -> None:
    path = corpus / SHARD / "sentences.npy"
    path.write_bytes(path.read_bytes()[:-4])


def another_tokenizer(corpus: Path) -> None:
    other = build_corpus(corpus.with_name("other"), seed=5)
    shutil.rmtree(corpus / SHARD)
    shutil.copytree(other / SHARD, corpus / SHARD)


def another_vocabulary(corpus: Path) -> None:
    other = build_corpus(corpus.with_name("other"), seed=5)
    for name in ("vocab.txt", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(other / name, corpus / name)


def no_manifest(corpus: Path) -> None:
    (corpus / "corpus.json").unlink()


def broken_manifest(corpus: Path) -> None:
    path = corpus / "corpus.json"
    path.write_bytes(path.read_bytes()[:-50])


def emptied_manifest(corpus: Path) -> None:
    (corpus / "corpus.json").write_text('{"format": 1}')


def piece_out_of_range(corpus: Path) -> None:
    change(corpus / SHARD / "ids.npy", 60_000)


def another_piece(corpus: Path) -> None:
    change(corpus / SHARD / "ids.npy", 7)


def change(path: Path, value: int) -> None:
    array = np.load(path)
    array[100] = value if array[100] != value else value + 1
    np.save(path, array)


@pytest.mark.parametrize(
    ("harm", "named"),
    [
        (remove, f"{SHARD}/ids.npy: missing"),
        (remove_shard, f"{SHARD}/words.npy: missing"),
        (truncate, f"{SHARD}/sentences.npy: "),
        (another_tokenizer, f"{SHARD}/ids.npy: "),
        (another_vocabulary, "is not the one that the corpus was built with"),
        (no_manifest, "corpus.json is missing"),
        (broken_manifest, "corpus.json: this is not JSON"),
        (emptied_manifest, "corpus.json: "),
        (piece_out_of_range, f"{SHARD}/ids.npy: "),
        (another_piece, f"{SHARD}/ids.npy: "),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_harm_is_told_before_training_begins(
    site: Site, tmp_path: Path, harm: Callable[[Path], None], named: str
) -> None:
    corpus, out = tmp_path / "corpus", tmp_path / "run"
    shutil.copytree(site.corpus, corpus)
    harm(corpus)
    refused = site.run(out, corpus=corpus)
    assert refused.status == 1, refused
    assert named in refused.output, refused
    assert "Traceback" not in refused.output, refused
    assert not out.exists()
    site.tally.count("harm to the corpus, before")


@pytest.mark.parametrize("harm", ["remove", "half"])
def test_harm_while_the_run_is_on(site: Site, tmp_path: Path, harm: str) -> None:
    """A file that is deleted is still read to the end; one that is cut ends the run with a word, not a bus error."""
    corpus, out = tmp_path / "corpus", site.fresh()
    shutil.copytree(site.corpus, corpus)
    paths = sorted(corpus.glob("shard-*/ids.npy"))
    moment, pool = site.moment("open", "/metrics.jsonl", nth=4), ("--pool", "300")
    whole = site.fresh()
    assert site.run(whole, *pool).status == 0
    fault = {"kind": "vanish", "folder": str(out), "number": moment, "paths": [str(path) for path in paths]}
    ended = site.run(out, *pool, corpus=corpus, harm=harm, **fault)
    assert "Traceback" not in ended.output, ended
    if harm == "remove":
        assert ended.status == 0, ended
    else:
        assert ended.status == 1, ended
        assert f"{SHARD.removesuffix('2')}" in ended.output and "/ids.npy: " in ended.output, ended
        last = steps_taken(out)
        assert (out / "checkpoints" / f"step-{last}").is_dir()
        done = site.run(out, *pool)
        assert done.status == 0 and done.resumed == last, done
    differences = compare(whole, out)
    site.tally.count("harm to the corpus, while it is read", wrong=bool(differences))
    assert not differences
