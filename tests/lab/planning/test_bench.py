"""osbert bench: figures that agree with each other, on a corpus of one's own and on one made up."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from osbert.interop.tokenizers import read_tokenizer
from osbert_lab.planning.benchmark import synthetic_corpus
from terminal import run

SMALL = (
    "--layers",
    "1",
    "--width",
    "16",
    "--heads",
    "4",
    "--data.batch",
    "4",
    "--precision",
    "fp32",
    "--device",
    "cpu",
)


def bench(*arguments: str) -> int:
    return run("bench", *arguments)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic_corpus(tmp_path_factory.mktemp("texts") / "one", vocabulary=90, tokens=6000).folder


def test_figures_agree_with_each_other(corpus, tmp_path, capsys) -> None:
    path = tmp_path / "new" / "figures.json"
    two = ("--long-share", "0.5", "--long-length", "128")
    arguments = ("cpu", *SMALL, *two, "--corpus", str(corpus), "--seconds", "1", "--out", str(path))
    assert bench(*arguments) == 0
    figures = json.loads(path.read_text())
    assert [phase["length"] for phase in figures["phases"]] == [64, 128]
    for phase in figures["phases"]:
        share = phase["flops_per_token"] * phase["tokens_per_second"] / figures["peak_flops"]
        assert phase["share_of_peak"] == pytest.approx(share)
        assert 0 < phase["share_of_peak"] < 1
        assert phase["memory"] >= figures["memory_before"] * 0.9
        assert phase["loader_tokens_per_second"] > 0
    assert figures["phases"][1]["flops_per_token"] > figures["phases"][0]["flops_per_token"]
    output = " ".join(capsys.readouterr().out.split())
    for words in ("tokens/s", "share of peak", "measured: cpu fp32", "the loader alone", "3 x (2 N W - 2 (N - R)"):
        assert words in output


def test_without_a_corpus_one_is_made_up(capsys, monkeypatch) -> None:
    made = synthetic_corpus
    monkeypatch.setattr(
        "osbert_lab.planning.benchmark.synthetic_corpus", lambda folder, **kind: made(folder, tokens=5000, **kind)
    )
    assert bench(*SMALL, "--model.vocabulary", "200", "--seconds", "0.5") == 0
    assert "cpu: " in capsys.readouterr().out


def test_wrong_arguments_are_told(capsys, corpus) -> None:
    assert bench("cpu", "--seconds", "0") == 1
    assert bench("cpu", "--seconds", "1", "--corpus", str(corpus), "--data.length", "4000") == 1
    assert bench("cppu") == 1
    assert bench("--model.vocabulary", "4") == 1
    assert bench("cpu", "--out", str(corpus)) == 1
    assert bench("cpu", "--cropus", str(corpus)) == 1
    errors = capsys.readouterr().err
    for words in (
        *("--seconds", "data.length", "4,000", "'cpu'", "model.vocabulary is 4", "8", "456,982"),
        *(str(corpus), "--out", "--cropus", "'corpus'"),
    ):
        assert words in errors


def test_the_made_up_corpus_is_zipfs_and_always_the_same(tmp_path) -> None:
    one, other = (synthetic_corpus(tmp_path / name, vocabulary=300, tokens=20_000) for name in ("one", "other"))
    assert len(read_tokenizer(one.folder)) == 300
    assert (one.counts == other.counts).all()
    assert one.tokens == pytest.approx(20_000, rel=0.1)
    assert one.report["unknown"] == 0
    words = np.sort(one.counts)[::-1][1:]  # the full stop apart
    assert words[0] / words[20] == pytest.approx((20 + 2.7 + 1) / 2.7, rel=0.6)
    assert one.documents > 10
