"""squad: SQuAD and CMRC 2018 as they are published."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from osbert.data.pack import Packer
from osbert.errors import Problems
from osbert.tasks import load
from osbert.tasks.kinds.span import Span
from osbert.tasks.kinds.span.questions import Gold
from osbert.tasks.kinds.span.windows import QuestionWindow
from osbert.text.tokenizer import SPECIALS, Tokenizer
from osbert_lab.data_sets.squad import Squad
from osbert_lab.data_sets.squad_questions import SquadQuestions
from questions import answers, pointed_text, squad
from refusals import refusal


def test_cmrc_2018_as_it_is_published(tmp_path: Path) -> None:
    context = "《旧城往事3》（）是由河马和ψ-works开发的游戏，2009年12月发售。"

    def content(split: str, *golds: tuple[str, int]) -> dict[str, Any]:
        qas = [{"question": "《旧城往事3》是由谁开发的？", "id": f"{split}_0_QUERY_{place}", **answers(*golds)}
               for place in range(2)]  # fmt: skip
        paragraph = {"id": f"{split}_0", "context": context, "qas": qas}
        return {"version": "v1.0", "data": [{"paragraphs": [paragraph], "id": f"{split}_0", "title": "旧城往事3"}]}

    told = {
        "cmrc2018_train.json": content("TRAIN", ("《旧城往事3》", 0)),
        "cmrc2018_dev.json": content("DEV", *[("河马和ψ-works", 11)] * 2, ("河马", 11)),
        "cmrc2018_trial.json": content("TRIAL", ("河马", 11)),
    }
    for name, one in told.items():
        (tmp_path / name).write_text(json.dumps(one, ensure_ascii=name.endswith("dev.json")), encoding="utf-8")
    task, records = load(Squad(data=str(tmp_path)).source.resolve(), ("train", "dev"))
    assert (task.scoring, task.unanswerable) == ("characters", "no")
    assert [record.key for record in records["dev"]] == ["DEV_0_QUERY_0", "DEV_0_QUERY_1"]  # type: ignore[attr-defined]
    assert records["dev"][0].label == (Gold("河马和ψ-works", 11), Gold("河马和ψ-works", 11), Gold("河马", 11))
    assert not any(record.remark for found in records.values() for record in found)
    tokenizer = Tokenizer([*SPECIALS, *dict.fromkeys(f"{context}谁？".lower())])
    windows = Span().encode(records["dev"][0], Packer(tokenizer=tokenizer, length=64))
    assert [pointed_text(window, records["dev"][0]) for window in windows if isinstance(window, QuestionWindow)] == [
        "河马和ψ-works"
    ]
    inputs = task.source.inputs(tmp_path / "cmrc2018_dev.json")
    assert [inputs.name_row(row) for row, _ in inputs.rows(Problems(heading=""))] == ["DEV_0_QUERY_0", "DEV_0_QUERY_1"]


def test_the_official_files(data: Path) -> None:
    sizes = {"1.1": (4000, 500, 0), "2.0": (3112, 1227, 1622)}
    for release, (train, dev, without) in sizes.items():
        task = Squad(data=str(data / "squad"), release=release).source.resolve()  # type: ignore[arg-type]
        task, records = load(task, ("train", "dev"))
        assert (len(records["train"]), len(records["dev"])) == (train, dev)
        assert sum(record.label == () for record in records["train"]) == without
        assert task.unanswerable == ("yes" if without else "no")
    with refusal("missing-split", "--release", "1.1", "2.0"):
        load(Squad(data=str(data / "squad")), ("train",))
    with refusal("missing-split"):
        Span(data=str(data / "squad")).source.files()
    (german,) = load(Squad(data=str(data / "squad" / "xquad.de.json")), ("all",))[1].values()
    for record in german:
        assert record.label and not record.remark
        assert all(record.texts[1].startswith(gold.text, gold.start) for gold in record.label)


def test_one_paragraph_leaves_no_question_to_write(write: Callable[..., Path]) -> None:
    path = write(squad(*[answers(("film", 4))] * 30))
    with refusal("no-data", "paragraph", "--dev") as error:
        load(SquadQuestions(data=str(path)), ("train", "dev"))
    assert "label" not in str(error.value)
