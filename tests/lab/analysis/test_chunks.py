"""Chunks of CoNLL-2000: known by their columns, probed, and bad lines named."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import osbert
from osbert_lab.analysis.forms.chunks import ChunkForm
from osbert_lab.analysis.forms.contract import FileHead
from osbert_lab.analysis.opened_model import AnalysisProgress
from refusals import refusal

SETTINGS = {"texts": 20, "shortest": 3, "length": 16, "device": "cpu"}
NOUN, VERB = ("film", "play", "actors"), ("the", "a", "good")


def sentences(count: int) -> str:
    rng = np.random.default_rng(count)
    words = [(rng.choice(VERB), "B-NP", rng.choice(NOUN), "I-NP", ".", "O") for _ in range(count)]
    return "".join(f"{a} X {b}\n{c} X {d}\n{e} X {f}\n\n" for a, b, c, d, e, f in words)


def test_files_are_known_by_three_columns_with_chunks_in_the_last(tmp_path: Path) -> None:
    for text, known in (("in IN B-PP\n\n", True), ("in B-PP\n", False), ("in IN B-PER\n", False), ("", False)):
        path = tmp_path / "one.txt"
        path.write_text(text)
        assert ChunkForm().knows(FileHead(path)) is known


def test_chunks_are_probed_in_each_layer(runs: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.txt").write_text(sentences(160))
    events: list[object] = []
    found = osbert.analyse(
        runs["encoder"], data=tmp_path / "data", out=tmp_path / "out", watch=events.append, **SETTINGS
    )
    trained = [one for one in events if isinstance(one, AnalysisProgress) and one.what == "training items of chunks"]
    assert trained[0].done == 0 and len({one.done for one in trained}) > 10 and trained[-1].done == trained[-1].count
    assert found.figure("chunks", layer=0).value == 1 and found.figure("chunks", layer=1).n == 240
    assert found.figure("chunks", layer=1).baselines["most frequent chunk label of the word"] == 1
    assert "the sentences of the chunks" in found.notes[0]


def test_a_line_with_a_column_too_few_a_lost_word_and_an_unknown_chunk_are_named(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    path = tmp_path / "train.txt"
    path.write_text(sentences(4) + "film X\n\n\u200b X O\n\na X B-QQ\n\n" + sentences(60))
    with refusal("unusable-row", "line 17", "line 19", "line 21", "B-QQ"):
        osbert.analyse(runs["encoder"], data=path, out=tmp_path / "out", **SETTINGS)
    found = osbert.analyse(runs["encoder"], data=path, out=tmp_path / "out", errors="replace", **SETTINGS)
    assert any("; 3 left out" in note for note in found.notes)
