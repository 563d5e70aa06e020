"""Labels that look like several in one cell are found, and ordinary ones with a comma are not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from osbert.runs.finetune.records import SPLITS, Overlap, data_warnings
from osbert.tasks import load
from osbert.tasks.kinds.classify import Classify
from osbert.tasks.tables.classes import find_joined_labels
from refusals import refusal


@pytest.mark.parametrize(
    ("labels", "joined"),
    [
        ("neg pos neg,long pos,long", "neg,long pos,long"),
        ("neg,long neg,short pos,long pos,short", "neg,long neg,short pos,long pos,short"),
        ("neg pos neg,pos", "neg,pos"),
        ("neg pos neg,long", "neg,long"),
        ("a|b b|c a|c", "a|b b|c a|c"),
        ("python;pandas python;numpy numpy;pandas", "python;pandas python;numpy numpy;pandas"),
        ("1 2 1,2,3 3", "1,2,3"),
        ('["a","b"] ["a"] []', '["a","b"] ["a"] []'),
        ("['joy'] ['joy','love']", "['joy'] ['joy','love']"),
        ("neg pos", ""),
        ("neg pos other,mixed", ""),
        ("1,0 1,3 2,0 2,3", ""),
        ("[spam] [ham]", ""),
        ("a, a b", ""),
    ],
)
def test_which_labels_look_joined(labels: str, joined: str) -> None:
    assert find_joined_labels(labels.split()) == joined.split()


def test_ordinary_labels_with_commas_do_not() -> None:
    assert not find_joined_labels(["New York, NY", "Boston, MA", "Albany, NY", "Buffalo, NY", "Austin, TX"])
    assert not find_joined_labels(
        ["Portland, OR", "Portland, ME", "Salem, OR", "Bangor, ME", "Boston, MA", "Austin, TX"]
    )
    assert not find_joined_labels(
        ["Clothing, Shoes & Jewelry", "Patio, Lawn & Garden", "Arts, Crafts & Sewing", "Books"]
    )


def test_classify_says_what_its_labels_look_like(tmp_path: Path) -> None:
    for labels, said in ((("neg", "pos", "neg,long", "pos,long"), True), (("neg", "pos", "New York, NY"), False)):
        rows = [f'text {number},"{label}"' for number in range(10) for label in labels]
        (tmp_path / "data.csv").write_text("\n".join(["text,label", *rows]) + "\n")
        warnings = " ".join(data_warnings(*load(Classify(data=str(tmp_path / "data.csv")), SPLITS), Overlap()))
        assert ("'neg,long'" in warnings) is said


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
@pytest.mark.parametrize("label", [["neg", "long"], {"neg": "yes"}])
def test_a_list_of_several_is_no_label(tmp_path: Path, kind: str, label: list[str] | dict[str, str]) -> None:
    path = tmp_path / f"data.{kind}"
    rows = [{"text": "good", "label": label}, {"text": "bad", "label": label}]
    if kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    with refusal("unusable-row", f"{path}, line 1: ", f"{path}, line 2: "):
        load(Classify(data=str(path)), ("train", "dev"))
