"""An objective is one file: a toy objective, found by its file's name, is trained on, reported and shown."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import corpora
from osbert import objectives
from osbert.commands.pretrain import pretrain
from osbert.runs.pretrain.masks import sample_masks
from own_files import SHORT, beside
from vocabularies import train

RECIPE = """
objectives = ["mlm", "toy_parity"]
[model]
layers = 1
heads = 2
width = 16
length = 24
"""


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the folder of objectives have one file more."""
    beside(monkeypatch, objectives)


def test_a_toy_objective_has_its_line_in_the_report_and_beside_the_masks(tmp_path: Path) -> None:
    words = ["good", "bad", "film", "actor", "play"]
    rng = random.Random(0)
    texts = [" ".join(rng.choices(words, k=6)) + "." for _ in range(40)]
    corpus = corpora.build_corpus(tmp_path / "made", texts, train([" ".join(words) + " ."] * 3, vocabulary=60))
    (tmp_path / "toy.toml").write_text(RECIPE + SHORT)
    pretrain(str(tmp_path / "toy.toml"), corpus=corpus, out=tmp_path / "run")
    report = (tmp_path / "run" / "report.html").read_text()
    lead = report.partition('class="lead">')[2].partition("</p>")[0]
    assert "loss of Parity is" in lead and "of its answers are right" in lead
    assert "MLM loss is" in lead and "toy-parity loss (nats)" in report

    sample = sample_masks(corpus, str(tmp_path / "toy.toml"), {})
    first = next(text for text in map(str, sample.text(1)) if "[CLS]" in text)
    assert "(toy_parity: even)" in first or "(toy_parity: odd)" in first
    (rate,) = sample.plan.objectives["toy_parity"].rates(sample.examples)
    assert rate[0] == "odd lengths"
