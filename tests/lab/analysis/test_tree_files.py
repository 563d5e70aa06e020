"""CoNLL-U: words, heads and relations; what is no tree is named with its line and left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from osbert.errors import Problems
from osbert_lab.analysis.tree_files import Tree, read_trees
from refusals import refusal


def line(number: object, head: object, word: str = "w") -> str:
    return f"{number}\t{word}\t{word}\tNOUN\tNN\t_\t{head}\tobj\t_\t_\n"


def read(path: Path, text: str) -> tuple[list[Tree], Problems]:
    path.write_text(text)
    problems = Problems(heading="bad")
    return list(read_trees(path, problems)), problems


def test_a_tree_is_read_without_multiword_tokens_and_empty_nodes(tmp_path: Path) -> None:
    text = "# text = don't\n" + line("1-2", "_", "don't") + line(1, 0, "do") + line("1.1", "_") + line(2, 1, "n't")
    [tree], problems = read(tmp_path / "a.conllu", text)
    assert (tree.words, tree.heads, tree.line) == (("do", "n't"), (-1, 0), 3) and not problems.count


def test_every_tree_that_is_none_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    circle = line(1, 2) + line(2, 3) + line(3, 2) + "\n"
    missing = line(1, "_") + "\n"
    outside = line(1, 0) + line(2, 7) + "\n"
    numbered = line(2, 0) + "\n"
    found, problems = read(tmp_path / "a.conllu", circle + missing + outside + numbered + line(1, 0))
    assert [tree.words for tree in found] == [("w",)] and problems.count == 4
    with refusal("unusable-row", "a.conllu, line 2", "line 5", "'_'", "line 8", "'7'", "line 10"):
        problems.stop_if_any()


def test_other_columns_are_refused(tmp_path: Path) -> None:
    with refusal("wrong-format", "a.conllu, line 2", 3):
        read(tmp_path / "a.conllu", line(1, 0) + "2\ta\tb\n")


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.conllu").write_bytes(line(1, 0).encode() + b"2\t\xff")
    with refusal("wrong-encoding", "line 2"):
        list(read_trees(tmp_path / "a.conllu", Problems(heading="bad")))
    (tmp_path / "a.conllu").write_bytes(line(1, 0, "café").encode("cp1252"))
    [tree] = read_trees(tmp_path / "a.conllu", Problems(heading="bad"), encoding="cp1252")
    assert tree.words == ("café",)


def test_a_published_treebank_is_read(data: Path) -> None:
    path = data / "ud-english-ewt" / "en_ewt-ud-dev.conllu.xz"
    if not path.is_file():
        pytest.skip(f"needs {path.name}")
    problems = Problems(heading="bad")
    trees = list(read_trees(path, problems))
    assert (len(trees), problems.count) == (2001, 0)
    assert all(sum(head < 0 for head in tree.heads) == 1 for tree in trees)
