"""Files of a folder by words in their names, and by release where there are several."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from osbert.reading.data_file import DataFile
from osbert.reading.form import TableReading, find_format
from osbert.reading.splits import USUAL, find_named, find_splits, find_words
from refusals import refusal


def folder(path: Path, *names: str) -> Path:
    for name in names:
        (path / name).write_text("x")
    return path


def test_splits_of_a_folder(tmp_path: Path) -> None:
    folder(tmp_path, "train.tsv", "valid.csv.gz", "test.jsonl", "README.md")
    found = {split: path.name for split, path in find_splits(tmp_path).items()}
    assert found == {"train": "train.tsv", "dev": "valid.csv.gz", "test": "test.jsonl"}
    assert find_splits(tmp_path / "train.tsv") == {"all": tmp_path / "train.tsv"}
    folder(tmp_path, "dev.tsv")
    with refusal("missing-split", "dev.tsv", "valid.csv.gz"):
        find_splits(tmp_path)
    with refusal("missing-file"):
        find_splits(tmp_path / "absent")
    (tmp_path / "other").mkdir()
    with refusal("missing-split"):
        find_splits(tmp_path / "other")


def test_a_split_in_parts_is_not_passed_over(tmp_path: Path) -> None:
    folder(tmp_path, "train-00000-of-00001.parquet")
    assert [*find_splits(tmp_path)] == ["train"]
    folder(tmp_path, "validation-00000-of-00002.parquet")
    with refusal("missing-split", "validation-00000-of-00002.parquet", "0"):
        find_splits(tmp_path)
    folder(tmp_path, "validation-00001-of-00002.parquet")
    assert find_splits(tmp_path)["dev"].name == "validation-*-of-00002.parquet"
    folder(tmp_path, "test-00000-of-00002.csv", "test-00001-of-00002.csv")
    with refusal("missing-split", "test-00000-of-00002.csv"):
        find_splits(tmp_path)


def test_a_published_folder_has_its_tables_in_data(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    folder(tmp_path, "README.md", "dataset_infos.json")
    folder(tmp_path / "data", "train-00000-of-00001.parquet")
    assert find_splits(tmp_path) == {"train": tmp_path / "data" / "train-00000-of-00001.parquet"}


@pytest.mark.parametrize("find", [find_splits, find_named, lambda path: find_words(path, USUAL)])
def test_a_published_folder_has_a_folder_for_each_configuration(
    tmp_path: Path, find: Callable[[Path], dict[str, Path]]
) -> None:
    for name in ("plain_text", ".cache", "pictures"):
        (tmp_path / name).mkdir()
    folder(tmp_path, "README.md", ".gitattributes")
    folder(tmp_path / "plain_text", "train-00000-of-00001.parquet")
    assert find(tmp_path) == {"train": tmp_path / "plain_text" / "train-00000-of-00001.parquet"}
    (tmp_path / "en").mkdir()
    folder(tmp_path / "en", "train-00000-of-00001.parquet")
    with refusal("missing-split", "plain_text", "en"):
        find(tmp_path)


def test_words_in_names(tmp_path: Path) -> None:
    found = find_named(folder(tmp_path, "story-cloze-train.csv", "story_cloze.DEV.csv", "notes.md", "swag-sample.csv"))
    assert {split: path.name for split, path in found.items()} == {
        "train": "story-cloze-train.csv",
        "dev": "story_cloze.DEV.csv",
    }


def test_plain_names_come_first(tmp_path: Path) -> None:
    found = find_named(folder(tmp_path, "train.csv", "val.csv", "train_full.csv", "old-test.csv"))
    assert {split: path.name for split, path in found.items()} == {"train": "train.csv", "dev": "val.csv"}


def test_releases(tmp_path: Path) -> None:
    names = [f"{split}-v{release}-mini.json" for split in ("train", "dev") for release in ("1.1", "2.0")]
    folder(tmp_path, *names)
    assert [path.name for path in find_named(tmp_path, release="2.0").values()] == names[1::2]
    with refusal("missing-split", "--release", "1.1", "2.0"):
        find_named(tmp_path, option="--release")
    with refusal("missing-split"):
        find_named(tmp_path)


def test_one_file_and_none(tmp_path: Path) -> None:
    path = folder(tmp_path, "x.json") / "x.json"
    assert find_named(path) == {"all": path}
    with refusal("missing-split"):
        find_named(tmp_path)
    with refusal("missing-file"):
        find_named(tmp_path / "absent")


def test_a_pattern_of_parts_stands_for_a_table_if_all_parts_are_there(tmp_path: Path) -> None:
    folder(tmp_path, "train-00000-of-00002.parquet", "train-extra-00000-of-00002.parquet")
    pattern = tmp_path / "train-*-of-00002.parquet"
    with refusal("missing-file", str(pattern)):
        find_format(DataFile(pattern), TableReading())
    folder(tmp_path, "train-00001-of-00002.parquet")
    assert find_splits(tmp_path)["train"] == pattern
    assert [part.path.name for part in DataFile(pattern).parts] == [f"train-0000{n}-of-00002.parquet" for n in (0, 1)]
