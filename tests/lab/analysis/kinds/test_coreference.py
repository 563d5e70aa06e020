"""Heads against coreference: made-up attention with known answers, the baselines, and a run on both sorts of files."""

from __future__ import annotations

from pathlib import Path

import torch

import osbert
from osbert_lab.analysis.coreference_files import GAP, MentionLink
from osbert_lab.analysis.kinds.coreference import answers, nearest, same_word

SETTINGS = {"texts": 40, "shortest": 3, "length": 16, "device": "cpu"}
LINK = MentionLink(mention=5, candidates=(1, 3, 4), right=frozenset({1}), kind="pronouns")


def test_a_head_answers_with_the_mention_that_it_attends_to_most() -> None:
    words = torch.zeros(3, 6, 6)
    words[0, 5, 1] = 0.2  # right, although a word that is no mention has more
    words[0, 5, 2] = 0.7
    words[1, 5, 4] = 0.9
    words[2, 1, 5] = 0.9  # the other way round does not count
    words[2, 5, 3] = 0.1
    assert answers(words, [LINK]).tolist() == [[True, False, False]]


def test_the_answers_without_a_model() -> None:
    assert nearest(LINK) == 4
    assert nearest(MentionLink(mention=2, candidates=(0, 4), right=frozenset({0}), kind="pronouns")) == 0
    assert same_word(("x", "Dog", "a", "cat", "cat", "dog"), LINK) == 1
    assert same_word(("x", "Dog", "a", "cat", "cat", "he"), LINK) is None


def test_both_sorts_of_files_are_read_and_scored(runs: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    words = [("the", "(1"), ("film", "1)"), ("a", "(2"), ("play", "2)"), ("the", "(1"), ("film", "1)"), ("play", "(2)")]
    document = "#begin document (a)\n" + "".join(f"a\t0\t0\t{word}\t_\t{mark}\n" for word, mark in words) + "\n#end\n"
    (folder / "books.conll").write_text(document * 60)
    row = ["film play a bad play", "a", "10", "film", "0", "TRUE", "play", "5", "FALSE"]
    (folder / "gap.tsv").write_text("\n".join("\t".join(one) for one in [[*GAP], *[row] * 50]) + "\n")
    found = osbert.analyse(runs["encoder"], data=folder, out=tmp_path / "out", **SETTINGS)
    nouns = found.figure("coreference", mentions="nouns")
    assert nouns.n == 60 and nouns.baselines["same head word"] == 1 and nouns.baselines["nearest mention"] == 0.0
    pronouns = found.figure("coreference", mentions="ambiguous pronouns")
    assert pronouns.n == 25 and pronouns.baselines["nearest mention"] == 0 and pronouns.value in (0, 1)
    assert found.figure("coreference", mentions="all mentions").n == 60
    assert "What heads know of coreference" in (tmp_path / "out" / "report.html").read_text()
    assert any("110 texts of 110" in note for note in found.notes)
