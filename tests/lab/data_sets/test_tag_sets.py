"""conll2003, wnut17, weibo, cluener: the official files, sentence for sentence."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from osbert import components
from osbert.reading.tagged.files import TagReading
from osbert.reading.tagged.schemes import EntitySpan
from osbert.tasks import Task, findings, load
from osbert.tasks.kinds.tag.passages import TaggedText
from osbert.tasks.record import records_per_step
from osbert_lab.data_sets.entities import Cluener, Weibo
from refusals import refusal


@pytest.mark.parametrize(
    ("name", "folder", "counts"),
    [
        ("conll2003", "conll2003", {"train": (946, 14041, 203621, 23499), "dev": (216, 3250, 51362, 5942)}),
        ("wnut17", "wnut17", {"train": (3394, 3394, 62730, 1975), "dev": (1009, 1009, 15733, 836)}),
        ("weibo", "weibo-zh", {"train": (1350, 1350, 73778, 1895), "dev": (270, 270, 14509, 389)}),
    ],
)
def test_the_official_files(data: Path, name: str, folder: str, counts: dict[str, tuple[int, ...]]) -> None:
    """Rows, sentences, words and entities; those of the first two sets are as their papers tell."""
    task = components.find("tasks", name, base=Task)(data=str(data / "ner" / folder))
    fitted, records = load(task, ("train", "dev"))
    assert fitted == task
    for split, expected in counts.items():
        passages = [record for record in records[split] if isinstance(record, TaggedText)]
        sizes = [(len(one.sentences), len(one.words), len(one.label)) for one in passages]
        assert (len(passages), *(sum(column) for column in zip(*sizes))) == expected
    assert records_per_step(32, records["train"]) == (2 if name == "conll2003" else 32)  # 14.8 sentences a document


def test_weibos_characters_stand_side_by_side(data: Path) -> None:
    _, records = load(Weibo(data=str(data / "ner" / "weibo-zh")), ("dev",), fit=False)
    record = records["dev"][5]
    assert record.texts == ("老百姓心新乡新闻网话说这几天新乡天气还好吧偷笑",)
    assert record.label[:2] == (EntitySpan(0, 3, "PER.NOM"), EntitySpan(4, 6, "GPE.NAM"))


def test_clueners_form(tmp_path: Path) -> None:
    lines = [
        {
            "text": "彭小军认为A股",
            "label": {"name": {"彭小军": [[0, 2]]}, "company": {"A股": [[5, 6]], "股": [[6, 6]]}},
        },
        {"text": "无", "label": {}},
    ]
    (tmp_path / "train.json").write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    (tmp_path / "dev.json").write_text(json.dumps(lines[0]))
    (tmp_path / "test.json").write_text('{"id": 0, "text": "四川敦煌学"}\n')
    task, records = load(Cluener(data=str(tmp_path)), ("train", "dev", "test"))
    assert (
        records["train"][0].label == (EntitySpan(0, 3, "name"), EntitySpan(5, 7, "company")) == records["dev"][0].label
    )
    assert records["train"][1].label == () and records["test"][0].label is None
    assert len(task.types) == 10 and "1 overlap a longer one" in findings(task)[0]


def test_how_files_are_read_is_said_by_settings() -> None:
    task = Weibo(column=2, text="t", encoding="gb18030", scheme="words")
    reading = dataclasses.replace(task.source.reading, spell=str)
    assert reading == TagReading(column=2, text="t", encoding="gb18030", split="characters", plain=True)
    assert [task.source.reading.spell(cell) for cell in ("北0", "0", "20")] == ["北", "0", "2"]
    assert (
        task.source.switch_data(Path("x"), {}).encoding == ""
        and task.source.switch_data(Path("x"), {"column": "3"}).column == 3
    )
    with refusal("invalid-value", "1", "ner"):
        task.source.switch_data(Path("x"), {"column": "ner"})
