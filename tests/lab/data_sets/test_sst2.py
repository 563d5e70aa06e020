"""sst2: the official files, row for row."""

from __future__ import annotations

from pathlib import Path

from osbert.errors import Problems
from osbert.tasks import load
from osbert_lab.data_sets.glue import Sst2


def test_the_official_files(data: Path) -> None:
    task, rows = load(Sst2(data=str(data / "glue" / "SST-2")).source.resolve(), ("train", "dev", "test"))
    assert {split: len(found) for split, found in rows.items()} == {"train": 67349, "dev": 872, "test": 1821}
    assert task.labels == ("negative", "positive") and task.name == "sst2"
    assert rows["dev"][0].texts == ("it 's a charming and often affecting journey . ",)
    assert [record.label for record in rows["dev"][:2]] == ["positive", "negative"]
    assert rows["test"][0].label is None and rows["test"][0].texts == ("uneasy mishmash of styles and genres .",)


def test_names_and_numbers_are_both_labels(tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    path.write_text("sentence,label\nfine,1\nbad,negative\n")
    problems = Problems(heading="")
    assert [record.label for record in Sst2(data=str(path)).source.records("all", problems)] == ["positive", "negative"]
    assert problems.count == 0
