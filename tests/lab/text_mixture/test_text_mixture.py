"""text_mixture: rows of several data sets as texts of one model, each scored as its own set is."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import osbert
from osbert.errors import Problems
from osbert.interop.files.weight_files import read_file
from osbert.interop.huggingface.folders import write_model
from osbert.interop.tokenizers import write_tokenizer
from osbert.models.contract import Learner
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert.tasks import Prediction, load, with_data
from osbert.text.tokenizer import SPECIALS, Tokenizer
from osbert_lab.data_sets.squad_answers import SquadAnswers
from osbert_lab.data_sets.text_to_text import TextToText
from osbert_lab.text_mixture import MEAN, PartRecord, TextMixture, own_record
from osbert_lab.writing.families.t5 import VALUES
from osbert_lab.writing.pair_architecture import PairArchitecture
from refusals import refusal
from tiny_runs import WORDS

NAMES = ("sst2", "rte", "squad", "titles")


def write_sets(folder: Path) -> Path:
    """Write a folder with two sets of GLUE, one of SQuAD, and a table of one's own."""
    for name in ("SST-2", "RTE", "squad"):
        (folder / name).mkdir(parents=True)
    sst2 = [f"{one} {other}\t{place % 2}" for one in WORDS[:6] for place, other in enumerate(WORDS[:6])]
    rte = [
        f"{place}\t{one} .\t{other} .\t{'entailment' if one == other else 'not_entailment'}"
        for place, (one, other) in enumerate((one, other) for one in WORDS[:5] for other in WORDS[:5])
    ]
    for split in ("train", "dev"):
        (folder / "SST-2" / f"{split}.tsv").write_text("\n".join(["sentence\tlabel", *sst2, ""]))
        (folder / "RTE" / f"{split}.tsv").write_text("\n".join(["index\tsentence1\tsentence2\tlabel", *rte, ""]))
        qas = [{"id": f"{split}1", "question": "film", "answers": [{"text": "good film", "answer_start": 2}]},
               {"id": f"{split}2", "question": "play", "answers": []}]  # fmt: skip
        data = {"data": [{"paragraphs": [{"context": "a good film .", "qas": qas}]}]}
        (folder / "squad" / f"{split}-v1.1.json").write_text(json.dumps(data))
    (folder / "titles.csv").write_text("source,target\n" + "a good play,play\na fine film,film\n" * 10)
    return folder


def write_pair(folder: Path, tokenizer: Tokenizer, *, tied: bool) -> None:
    """Write a small T5 with random weights."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"layers": 1, "heads": 2, "width": 16, "length": 32, "vocabulary": len(tokenizer)}
    values = VALUES | {"distance_scores": 8, "scaled_pieces": tied, "tied": tied, "activation": "relu"}
    backbone = PairArchitecture(**sizes, **values).build()
    write_model(Learner(backbone, {"mlm": MaskedLanguageHead(backbone)}), folder)
    write_tokenizer(tokenizer, folder, length=32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_sets(tmp_path / "sets")


def loaded(folder: Path, **settings: Any) -> tuple[TextMixture, dict[str, list[PartRecord]]]:
    task = TextMixture(**{"data_sets": NAMES, "data": str(folder), **settings})
    resolved, records = load(task.source.resolve(), ("train", "dev"))
    assert isinstance(resolved, TextMixture)
    return resolved, records  # type: ignore[return-value]


def test_rows_are_texts_of_their_sets(folder: Path) -> None:
    task, records = loaded(folder)
    first = {row.part: (row.texts[0], row.label) for row in reversed(records["train"])}
    assert first == {
        "sst2": ("sst2 sentence: good good", ("negative",)),
        "rte": ("rte sentence1: good . sentence2: good .", ("entailment",)),
        "squad": ("question: film context: a good film .", ("good film",)),
        "titles": ("titles: a good play", ("play",)),
    } | {"titles": first["titles"]}
    assert first["titles"][0] in ("titles: a good play", "titles: a fine film")
    # Each set is read as its own task reads it, in its order; a table without a file for development is divided.
    own = TextToText(data_set="sst2", data=str(folder / "SST-2"))
    expected = list(own.source.records("dev", Problems(heading="")))
    assert [own_record(row).texts for row in records["dev"] if row.part == "sst2"] == [row.texts for row in expected]
    assert sum(row.part == "titles" for row in records["train"]) == 18
    assert [row.number for row in records["train"]] == list(range(len(records["train"])))
    assert "sst2 36 rows" in task.description.describe_split(records["train"])
    assert any("an epoch has rows" in line and "rte" in line for line in task.description.remarks())
    assert pickle.loads(pickle.dumps(task)) == task


def test_scores_are_those_of_each_set(folder: Path) -> None:
    task, records = loaded(folder)
    rng = np.random.default_rng(0)
    said = [Prediction(value=row.label[0] if rng.random() < 0.6 else "film") for row in records["dev"] if row.label]
    scores = task.metrics(said, records["dev"])
    parts = {"sst2": TextToText(), "rte": TextToText(data_set="rte"), "squad": SquadAnswers()}
    for name, part in parts.items():
        places = [place for place, row in enumerate(records["dev"]) if row.part == name]
        own = part.metrics([said[place] for place in places], [records["dev"][place].row for place in places])
        assert {key: scores[f"{name}.{key}"] for key in own} == pytest.approx(own, nan_ok=True)
    criteria = [scores["sst2.accuracy"], scores["rte.accuracy"], scores["squad.f1"], scores["titles.rougeL"]]
    assert scores[MEAN] == pytest.approx(np.mean(criteria))
    row = next(row for row in records["dev"] if row.part == "rte")
    assert task.outcome(Prediction(value="not _ entailment"), row).guess == "not_entailment"


def test_an_epoch_follows_the_rates(folder: Path) -> None:
    task, records = loaded(folder, temperature=1e6)
    drawn = task.draw_epoch(records["train"], np.random.default_rng(0))
    names, counts = np.unique([records["train"][place].part for place in drawn], return_counts=True)
    assert {*names} == {*NAMES} and np.ptp(counts) <= 1 and len(drawn) == len(records["train"])
    task, records = loaded(folder)
    assert sorted(task.draw_epoch(records["train"], np.random.default_rng(0)).tolist()) == list(range(len(drawn)))


def test_what_is_missing_is_named_with_its_remedy(folder: Path) -> None:
    with refusal("missing-file", "qnli", "SST-2"):
        loaded(folder, data_sets=("sst2", "qnli"))
    with refusal("missing-value", "--data-sets"):
        loaded(folder, data_sets=())
    for settings in ({"temperature": 0.0}, {"mixing_limit": 0}, {"data_sets": ("rte", "rte")}, {"prefix": "x"}):
        with pytest.raises(ValueError, match=next(iter(settings))):
            TextMixture(**settings)  # type: ignore[arg-type]
    with refusal("invalid-value", "folder"):
        with_data(TextMixture(data_sets=("rte",)), [("a", "b")])


def test_files_belong_to_the_set_that_they_are_named_after(folder: Path) -> None:
    task, _ = loaded(folder)
    for path in (folder / "RTE", folder / "RTE" / "dev.tsv"):
        moved = task.source.switch_data(path, {})
        assert isinstance(moved, TextMixture) and moved.data_sets == ("rte",)
    inputs = moved.source.inputs(folder / "RTE" / "dev.tsv")
    first = next(record for _, record in inputs.rows(Problems(heading="")) if record)
    assert first.texts == ("rte sentence1: good . sentence2: good .",)
    other = folder / "new.tsv"
    other.write_text("index\tsentence1\tsentence2\n1\tgood .\tbad .\n")
    with refusal("ambiguous-setting", "--columns.data-sets"):
        task.source.switch_data(other, {}).source.inputs(other)
    given = task.source.switch_data(other, {"data_sets": "rte"}).source.inputs(other)
    assert [record.texts for _, record in given.rows(Problems(heading="")) if record] == [
        ("rte sentence1: good . sentence2: bad .",)
    ]


def test_answers_are_scored_as_squad_does(folder: Path) -> None:
    task, records = load(SquadAnswers(data=str(folder / "squad")).source.resolve(), ("train", "dev"))
    [row] = records["dev"]  # the question without an answer is skipped
    assert task.metrics([Prediction(value="The good film!")], [row]) == {"exact": 1.0, "f1": 1.0}
    assert task.metrics([Prediction(value="film")], [row])["f1"] == pytest.approx(2 / 3)
    inputs = task.source.inputs(folder / "squad" / "dev-v1.1.json")
    assert [row.values["id"] for row, _ in inputs.rows(Problems(heading=""))] == ["dev1", "dev2"]


@pytest.mark.parametrize("tied", [True, False])
def test_one_untied_model_learns_every_set_and_is_opened(tmp_path: Path, folder: Path, tied: bool) -> None:
    more = ["sst", "##2", "sentence", "sentence1", "sentence2", "rte", ":", "positive", "negative", "entailment",
            "not", "_", "question", "context", "titles"]  # fmt: skip
    tokenizer = Tokenizer([*SPECIALS, *WORDS, *more])
    write_pair(tmp_path / "pair", tokenizer, tied=tied)
    settings = {"epochs": 2, "batch": 16, "learning_rate": 0.02, "dropout": 0.0, "precision": "fp32", "most": 6}
    run = osbert.finetune(
        "text_mixture", model=str(tmp_path / "pair"), data=folder, out=tmp_path / "run", data_sets=NAMES,
        temperature=2.0, **settings,
    )  # fmt: skip
    assert {name.partition(".")[0] for name in run.metrics} == {MEAN, *NAMES}
    assert osbert.evaluate(run.folder, data=folder) == pytest.approx(run.metrics)
    alone = osbert.evaluate(run.folder, data=folder / "RTE")
    assert alone["rte.accuracy"] == pytest.approx(run.metrics["rte.accuracy"])
    assert {*alone} == {MEAN, *(name for name in run.metrics if name.startswith("rte."))}
    # One folder, and one output table for all.
    tensors = read_file(run.folder / "model.safetensors")
    assert sum(name.startswith("lm_head") for name in tensors) == (0 if tied else 1)
    texts = ["sst2 sentence: a fine film", "question: film context: a good film ."]
    assert len(run.predict(texts)) == 2


def test_text_tasks_of_one_run_share_an_untied_output_table(tmp_path: Path) -> None:
    write_pair(tmp_path / "pair", Tokenizer([*SPECIALS, *WORDS]), tied=False)
    for name, targets in (("scitldr", WORDS[:4]), ("multi30k", WORDS[4:8])):
        rows = [f"{source},{target}" for source in WORDS[:5] for target in targets]
        (tmp_path / "sets" / name).mkdir(parents=True)
        heading = "source,target" if name == "scitldr" else "en,de"
        (tmp_path / "sets" / name / "train.csv").write_text("\n".join([heading, *rows, ""]))
    settings = {"epochs": 2, "batch": 8, "learning_rate": 0.02, "dropout": 0.0, "precision": "fp32", "most": 6}
    data = {name: tmp_path / "sets" / name for name in ("scitldr", "multi30k")}
    run = osbert.finetune(
        ["scitldr", "multi30k"], model=str(tmp_path / "pair"), data=data, out=tmp_path / "run", **settings
    )
    before = read_file(tmp_path / "pair" / "model.safetensors")["lm_head.weight"]
    tables = [read_file(run.folder / name / "model.safetensors")["lm_head.weight"] for name in data]
    assert torch.equal(*tables) and not torch.equal(tables[0], before)
    assert [len(osbert.load(run.folder / name).predict(["film"])) for name in data] == [1, 1]


def test_labels_that_are_too_long_to_be_written_are_refused() -> None:
    tokenizer = Tokenizer([*SPECIALS, "positive", "negative", "not", "_", "entailment"])
    sizes: dict[str, Any] = {"layers": 1, "heads": 2, "width": 16, "length": 32, "vocabulary": len(tokenizer)}
    pair = PairArchitecture(**sizes, **VALUES | {"distance_scores": 8, "activation": "relu"})
    for task in (TextToText(data_set="rte", most=2), TextMixture(data_sets=("sst2", "rte"), most=2)):
        with refusal("invalid-setting", "not_entailment (3)", "--most 3"):
            task.for_model(pair, tokenizer)
    assert TextToText(data_set="rte", most=3).for_model(pair, tokenizer).most == 3
    assert TextMixture(data_sets=("sst2",), most=1).for_model(pair, tokenizer).most == 1
