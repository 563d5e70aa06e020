"""Mixtures of corpora: what is written, and what is refused."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import osbert
from osbert.corpus.mixture import Mixture
from osbert.corpus.shards import Corpus
from osbert.errors import UserError
from refusals import refusal

WORDS = {"web": "the cat sat", "law": "a court ruled", "old": "it ran home"}


@pytest.fixture
def corpora(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Build three corpora of one tokenizer, of different sizes, each with words of its own."""
    monkeypatch.chdir(tmp_path)
    for times, (name, words) in enumerate(WORDS.items(), start=1):
        Path(f"{name}.txt").write_text(f"{words}. {words} again.\n\n" * 60 * times, encoding="utf-8")
    osbert.train_tokenizer([f"{name}.txt" for name in WORDS], out="vocabulary", vocabulary=120)
    for name in WORDS:
        osbert.build_corpus(f"{name}.txt", tokenizer="vocabulary", out=name, workers=1, shard_tokens=300)
    return [Path(name) for name in WORDS]


def test_a_mixture_holds_all_text_in_the_order_of_its_parts(corpora: Sequence[Path]) -> None:
    mixed = osbert.mix_corpora(corpora, weights=[2, 1, 1], out="mixed")
    opened = [Corpus.open(folder) for folder in corpora]
    assert [(part.name, part.fraction) for part in mixed.parts] == [("web", 0.5), ("law", 0.25), ("old", 0.25)]
    assert mixed.tokens == sum(corpus.tokens for corpus in opened)
    assert mixed.documents == sum(corpus.documents for corpus in opened)
    ids = [corpus.read(block).ids for corpus in opened for block in corpus.blocks(100)]
    assert np.array_equal(np.concatenate(ids), np.concatenate([mixed.read(block).ids for block in mixed.blocks(100)]))
    sources = np.concatenate([mixed.read(block).sources for block in mixed.blocks(100)])
    assert len(np.unique(sources)) == mixed.documents
    mixed.verify()
    inode = (corpora[0] / "shard-00000" / "ids.npy").stat().st_ino
    assert Path("mixed/shard-00000/ids.npy").stat().st_ino == inode, "copied where a link was possible"


def test_counts_are_those_of_an_epoch(corpora: Sequence[Path]) -> None:
    mixed = osbert.mix_corpora(corpora[:2], weights=[9, 1], out="mixed")
    web, law = (Corpus.open(folder) for folder in corpora[:2])
    own = (web.counts > 0) & (law.counts == 0)
    assert mixed.counts[own].sum() / mixed.tokens == pytest.approx(0.9 * web.counts[own].sum() / web.tokens, abs=0.01)
    assert (mixed.counts > 0)[(web.counts > 0) | (law.counts > 0)].all()
    assert 0 < mixed.unigram_entropy < np.log(len(mixed.counts))


def test_a_mixture_of_mixtures_divides_its_share(corpora: Sequence[Path]) -> None:
    osbert.mix_corpora(corpora[:2], weights=[3, 1], out="first")
    whole = osbert.mix_corpora(["first", corpora[2]], out="whole")
    assert [(part.name, part.fraction) for part in whole.parts] == [("web", 0.375), ("law", 0.125), ("old", 0.5)]


def test_other_weights_are_another_corpus(corpora: Sequence[Path]) -> None:
    first, again, other = (
        osbert.mix_corpora(corpora, weights=weights, out=f"mixed{place}").content
        for place, weights in enumerate([(2, 1, 1), (4, 2, 2), (1, 1, 1)])
    )
    assert first == again != other


def test_small_languages_are_read_more_often_by_an_exponent(corpora: Sequence[Path]) -> None:
    """XLM (Lample and Conneau 2019), section 3.1: q_i = p_i ** a / sum of p_j ** a."""
    tokens = np.array([Corpus.open(folder).tokens for folder in corpora], np.float64)
    for power in (0.0, 0.5, 0.7, 1.0):
        mixed = osbert.mix_corpora(corpora, weights=f"tokens^{power}", out=f"mixed{power}")
        wanted = (tokens / tokens.sum()) ** power
        assert [part.fraction for part in mixed.parts] == pytest.approx(wanted / wanted.sum())


POWERS = ["tokens^", "tokens^x", "tokens^1,2", "tokens^-1", "tokens^nan"]


@pytest.mark.parametrize(
    "weights",
    [[1, 2], [1, 2, 0], [1, 2, -1], [1, 2, float("nan")], [1, 2, float("inf")], "1,2,x", "1,,2", *POWERS],
    ids=str,
)
def test_weights_that_do_not_fit(corpora: Sequence[Path], weights: object) -> None:
    with pytest.raises(UserError) as caught:
        osbert.mix_corpora(corpora, weights=weights, out="mixed")  # type: ignore[arg-type]
    assert caught.value.code == "invalid-value"
    assert not Path("mixed").exists()


def test_a_full_disk_is_named_by_the_output(corpora: Sequence[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise OSError(errno.EXDEV, "another disk", str(source), None, str(target))

    def fill(source: Path, target: Path) -> None:  # as shutil names the files of a copy
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(source), None, str(target))

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(shutil, "copyfile", fill)
    with refusal("not-written", "mixed could not be written", "disk is full"):
        osbert.mix_corpora(corpora, out="mixed")
    assert not Path("mixed").exists()


def code_of(corpora: Sequence[str | Path], out: str | Path = "mixed") -> str:
    with pytest.raises(UserError) as caught:
        osbert.mix_corpora(corpora, out=out)
    return caught.value.code


def test_what_cannot_be_mixed(corpora: Sequence[Path]) -> None:
    assert code_of(corpora[:1]) == "invalid-value"
    assert code_of([corpora[0], corpora[0].resolve()]) == "invalid-value"
    assert code_of([corpora[0], "nowhere"]) == "not-a-model"
    assert code_of(corpora, out=corpora[0]) == "output-exists"
    osbert.train_tokenizer("web.txt", out="other", vocabulary=60)
    osbert.build_corpus("web.txt", tokenizer="other", out="strange", workers=1)
    assert code_of([corpora[0], "strange"]) == "mismatched-tokenizer"
    osbert.build_corpus("web.txt", tokenizer="vocabulary", out="marked", workers=1, capitals=True)
    assert code_of([corpora[0], "marked"]) == "invalid-value"
    assert not Path("mixed").exists()


def test_a_corpus_without_text_has_no_share(corpora: Sequence[Path]) -> None:
    opened = [Corpus.open(folder) for folder in corpora]
    mixture = Mixture(corpora=opened, fractions=[0.5, 0.25, 0.25])
    mixture.check()
    opened[0].tokens = 0
    with refusal("too-little-data", str(corpora[0])):
        mixture.check()


def test_without_hard_links_the_shards_are_copied(corpora: Sequence[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refused)
    osbert.mix_corpora(corpora, out="mixed").verify()
    here = Path("mixed/shard-00000/ids.npy").stat()
    assert here.st_nlink == 1
