"""text_to_text: GLUE's rows as T5 writes them, their labels there and back, and the sets' own scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score, matthews_corrcoef

import osbert
from osbert import components
from osbert.errors import Problems
from osbert.interop.huggingface.folders import write_model
from osbert.interop.tokenizers import write_tokenizer
from osbert.models.contract import Learner
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert.tasks import Prediction, Record, load
from osbert.text.tokenizer import SPECIALS, Tokenizer
from osbert_lab.data_sets.text_to_text import TextToText, table
from osbert_lab.writing.families.t5 import VALUES
from osbert_lab.writing.pair_architecture import PairArchitecture
from refusals import refusal
from tiny_runs import WORDS

# The header and one row of each set's official file, the source that T5's code makes of the row, and its target.
ROWS = {
    "sst2": ("sentence\tlabel", "a fine film\t1", "sst2 sentence: a fine film", "positive"),
    "mrpc": (
        "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String",
        "0\t1\t2\tHe left.\tShe stayed.",
        "mrpc sentence1: He left. sentence2: She stayed.",
        "not_equivalent",
    ),
    "stsb": (
        "index\tsentence1\tsentence2\tscore",
        "1\tA plane.\tA jet.\t3.75",
        "stsb sentence1: A plane. sentence2: A jet.",
        "3.8",
    ),
    "rte": (
        "index\tsentence1\tsentence2\tlabel",
        "1\tIt rains.\tIt is wet.\tentailment",
        "rte sentence1: It rains. sentence2: It is wet.",
        "entailment",
    ),
    "mnli": (
        "index\tsentence1\tsentence2\tgold_label",
        "1\tIt rains.\tIt is dry.\tcontradiction",
        "mnli hypothesis: It is dry. premise: It rains.",
        "contradiction",
    ),
    "qnli": (
        "index\tquestion\tsentence\tlabel",
        "1\tWhere?\tIt is here.\tnot_entailment",
        "qnli question: Where? sentence: It is here.",
        "not_entailment",
    ),
    "qqp": (
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
        "1\t2\t3\tWhere?\tHow?\t0",
        "qqp question1: Where? question2: How?",
        "not_duplicate",
    ),
    "cola": ("", "x\t1\t\tIt is here.", "cola sentence: It is here.", "acceptable"),
}
NAMES = {"mnli": ("train.tsv", "dev_matched.tsv")}


@pytest.mark.parametrize("name", ROWS)
def test_rows_are_t5s_texts_and_labels_come_back(name: str, tmp_path: Path) -> None:
    header, row, source, target = ROWS[name]
    for file in NAMES.get(name, ("train.tsv", "dev.tsv")):
        (tmp_path / file).write_text("".join(f"{line}\n" for line in (header, row) if line))
    task = TextToText(data_set=name, data=str(tmp_path))  # type: ignore[arg-type]
    resolved, records = load(task.source.resolve(), ("dev",))
    [record] = records["dev"]
    assert isinstance(resolved, TextToText)
    assert (resolved.source_text(record), resolved.words_of(record.label)) == (source, target)
    assert resolved.label_of(target) == pytest.approx(record.label, abs=0.1) if name == "stsb" else record.label
    moved = TextToText(data_set=name, delimiter=";").source.switch_data(tmp_path / "train.tsv", {})  # type: ignore[arg-type]
    [(_, read)] = moved.source.inputs(tmp_path / "train.tsv").rows(Problems(heading=""))
    assert read is not None and resolved.source_text(read) == source


def test_the_table_is_of_data_sets() -> None:
    assert {*table()} == {*ROWS} <= {*components.names("tasks")}


@pytest.mark.parametrize("name", [name for name in ROWS if name != "stsb"])
def test_each_label_is_written_and_read(name: str) -> None:
    task = TextToText(data_set=name)  # type: ignore[arg-type]
    assert len(task.classes) > 1
    for label in task.classes:
        written = task.words_of(label)
        assert task.label_of(written) == task.label_of(written.replace("_", " _ ")) == label
    assert task.label_of("maybe") is None and task.label_of("") is None


@given(st.floats(0, 5))
def test_a_number_is_rounded_to_the_nearest_of_its_words(number: float) -> None:
    task = TextToText(data_set="stsb")
    written = task.words_of(number)
    assert written in [f"{place / 5:.1f}" for place in range(26)]
    read = task.label_of(written)
    assert abs(read - number) <= 0.1 + 1e-9 and task.words_of(read) == written
    assert float(written) == pytest.approx(float(np.round(np.float64(number) * 5) / 5))


def _said(values: list[str]) -> list[Prediction]:
    return [Prediction(value=value) for value in values]


def test_a_text_that_is_no_label_is_wrong() -> None:
    labels = ["equivalent", "equivalent", "not_equivalent", "not_equivalent"]
    written = ["equivalent", "what", "not _ equivalent", "equivalent"]
    records = [Record(number=number, texts=("a", "b"), label=label) for number, label in enumerate(labels)]
    task = TextToText(data_set="mrpc")
    scores = task.metrics(_said(written), records)
    plain = [one.replace(" ", "") for one in written]
    assert scores["accuracy"] == 0.5 and task.criterion == "f1"
    assert scores["f1"] == pytest.approx(f1_score(labels, plain, labels=["equivalent"], average="macro"))
    assert scores["matthews"] == pytest.approx(matthews_corrcoef(labels, plain))
    assert scores["macro_f1"] == pytest.approx(f1_score(labels, plain, average="macro"))
    assert not [name for name in scores if "no label" in name]
    outcome = task.outcome(_said(["what"])[0], records[0])
    assert (outcome.right, outcome.guess, outcome.truth) == (False, "what", "equivalent")


def test_numbers_are_compared_with_the_rows_own() -> None:
    numbers = [0.0, 1.1, 3.75, 5.0]
    records = [Record(number=number, texts=("a", "b"), label=one) for number, one in enumerate(numbers)]
    task = TextToText(data_set="stsb")
    scores = task.metrics(_said([task.words_of(one) for one in numbers]), records)
    rounded = [0.0, 1.0 if task.words_of(1.1) == "1.0" else 1.2, 3.8, 5.0]
    assert scores["pearson"] == pytest.approx(np.corrcoef(numbers, rounded)[0, 1])
    assert task.metrics(_said(["none", "1.0", "3.8", "5.0"]), records)["pearson"] == pytest.approx(
        np.corrcoef(numbers, [-1, 1, 3.8, 5])[0, 1]
    )


def test_what_follows_from_the_set_is_no_setting() -> None:
    for name, value in {"prefix": "a", "text": ("b",), "target": "c", "kept_by": "bleu"}.items():
        with pytest.raises(ValueError, match=name):
            TextToText(**{name: value})  # type: ignore[arg-type]


def test_an_encoder_decoder_learns_labels_as_words(tmp_path: Path) -> None:
    tokenizer = Tokenizer([*SPECIALS, *WORDS, "sst", "##2", "sentence", ":", "positive", "negative"])
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"layers": 1, "heads": 2, "width": 16, "length": 24, "vocabulary": len(tokenizer)}
    values = VALUES | {"distance_scores": 8, "scaled_pieces": True, "activation": "relu"}
    backbone = PairArchitecture(**sizes, **values).build()
    write_model(Learner(backbone, {"mlm": MaskedLanguageHead(backbone)}), tmp_path / "pair")
    write_tokenizer(tokenizer, tmp_path / "pair", length=24)
    rows = [{"sentence": f"{one} {other}", "label": str(place % 2)} for one in WORDS[:4]
            for place, other in enumerate(WORDS[:6])]  # fmt: skip
    settings = {"epochs": 8, "batch": 8, "learning_rate": 0.02, "dropout": 0.0, "precision": "fp32"}
    data = {"train": rows, "dev": rows[:6]}
    run = osbert.finetune("text_to_text", model=str(tmp_path / "pair"), data=data, out=tmp_path / "run", **settings)
    assert run.metrics["accuracy"] >= 0.5  # what it writes are labels
    assert osbert.evaluate(run.folder, data=rows[:6]) == pytest.approx(run.metrics)
    [said] = run.predict([rows[1]["sentence"]])
    assert said.value in ("positive", "negative")
    with refusal("unknown-setting", "prefix"):
        osbert.evaluate(run.folder, data=rows, prefix="x")
