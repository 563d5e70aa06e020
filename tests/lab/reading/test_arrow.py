"""Data sets as the datasets library saves and publishes them: Arrow files, their folders, Parquet in parts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from osbert.errors import Problems
from osbert.reading.data_file import DataFile
from osbert.reading.splits import find_splits
from osbert.reading.table import open_table
from osbert.tasks.kinds.classify import Classify
from refusals import refusal

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

FEATURES = {"label": {"names": ["bad", "good"], "_type": "ClassLabel"}}


def table(texts: list[str], labels: list[int]) -> Any:
    told = json.dumps({"info": {"features": FEATURES}}).encode()
    return pyarrow.table({"text": texts, "label": labels}).replace_schema_metadata({b"huggingface": told})


def write_stream(path: Path, content: Any) -> None:
    with pyarrow.OSFile(str(path), "wb") as file, pyarrow.ipc.new_stream(file, content.schema) as writer:
        writer.write_table(content)


def save(folder: Path, *parts: Any) -> Path:
    """Write what `Dataset.save_to_disk` writes."""
    folder.mkdir(parents=True)
    names = [f"data-{number:05}-of-{len(parts):05}.arrow" for number in range(len(parts))]
    for name, part in zip(names, parts):
        write_stream(folder / name, part)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))
    (folder / "dataset_info.json").write_text(json.dumps({"features": FEATURES}))
    return folder


def labels(path: Path) -> list[tuple[int, str]]:
    return [(row.line, row.values["label"]) for row in open_table(path).rows(Problems(heading=""))]


def test_a_saved_folder_and_a_file(tmp_path: Path) -> None:
    first, second = table(["a", "b"], [1, 0]), table(["c"], [1])
    folder = save(tmp_path / "saved", first, second)
    assert find_splits(folder) == {"all": folder}
    assert labels(folder) == [(1, "good"), (2, "bad"), (3, "good")]
    assert labels(folder / "data-00000-of-00002.arrow") == [(1, "good"), (2, "bad")]
    with pyarrow.OSFile(str(tmp_path / "own.arrow"), "wb") as file, pyarrow.ipc.new_file(file, first.schema) as writer:
        writer.write_table(first)
    assert labels(tmp_path / "own.arrow") == [(1, "good"), (2, "bad")]
    records = list(Classify(data=str(folder)).source.records("all", Problems(heading="")))
    assert [record.label for record in records] == ["good", "bad", "good"]


def test_splits_of_a_saved_folder(tmp_path: Path) -> None:
    for split in ("train", "validation", "test"):
        save(tmp_path / "dict" / split, table(["a"], [1]))
    (tmp_path / "dict" / "dataset_dict.json").write_text('{"splits": ["train", "validation", "test"]}')
    found = {split: path.name for split, path in find_splits(tmp_path / "dict").items()}
    assert found == {"train": "train", "dev": "validation", "test": "test"}
    task = Classify(data=str(tmp_path / "dict" / "train"), dev=str(tmp_path / "dict" / "test"))
    assert [*task.source.files()] == ["train", "dev"]


def test_folders_that_are_damaged(tmp_path: Path) -> None:
    folder = save(tmp_path / "saved", table(["a"], [1]), table(["b"], [1]))
    data = folder / "data-00001-of-00002.arrow"
    data.write_bytes(data.read_bytes()[:100])
    with refusal("damaged-file", data.name):
        open_table(folder)
    data.unlink()
    with refusal("missing-file", data.name):
        open_table(folder)
    (folder / "state.json").write_text('{"_data_files": [{"filename": "../other.arrow"}]}')
    with refusal("wrong-format", "state.json"):
        open_table(folder)
    (folder / "data-00000-of-00002.arrow").rename(tmp_path / "rows.csv")
    with refusal("wrong-encoding", ".arrow"):
        open_table(tmp_path / "rows.csv")


def test_parquet_in_parts_is_one_table(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for number, texts in enumerate((["a", "b"], ["c"])):
        parquet.write_table(table(texts, [1] * len(texts)), tmp_path / "data" / f"train-{number:05}-of-00002.parquet")
    train = find_splits(tmp_path)["train"]
    assert labels(train) == [(1, "good"), (2, "good"), (3, "good")]
    file = DataFile(train)
    before = file.sha256
    parquet.write_table(table(["d"], [0]), tmp_path / "data" / "train-00001-of-00002.parquet")
    assert DataFile(train).sha256 != before
    with refusal("file-changed", str(train)):
        file.require_same()
