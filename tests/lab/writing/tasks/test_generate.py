"""generate: sources and targets in one sequence, the target alone learnt, and what a run then writes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import osbert
from osbert.data.batch import collate
from osbert.data.pack import Packer
from osbert.errors import Problems
from osbert.evaluation.score import score
from osbert.interop.folder import open_folder
from osbert.interop.huggingface.folders import osbert_only_reason, to_huggingface, write_model
from osbert.interop.tokenizers import write_tokenizer
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert.runs.finetune.finetune import FinetuneRun
from osbert.runs.finetune.model import read_model
from osbert.runs.finetune.rows import TextFit
from osbert.runs.finetune.settings import FinetuneSettings
from osbert.tasks import Record, load, with_data
from osbert.text.tokenizer import SPECIALS, Tokenizer
from osbert_lab.commands.generate import generate
from osbert_lab.writing.families.t5 import VALUES
from osbert_lab.writing.generate import Generate, SourceColumns, WrittenText, choose
from osbert_lab.writing.generate.sequences import Sight
from osbert_lab.writing.pair_architecture import PairArchitecture
from refusals import refusal
from tiny_runs import WORDS, write_run

TOKENIZER = Tokenizer([*SPECIALS, *WORDS])
PACKER = Packer(tokenizer=TOKENIZER, length=12)
ROW = Record(number=3, texts=("good film",), label=("a play .",))


def _task(**settings: Any) -> Generate:
    return Generate(most=4, **settings)


@pytest.mark.parametrize(("sight", "order"), [("prefix", [0, 0, 0, 0, 1, 2, 3, 4]), ("left_to_right", [*range(8)])])
def test_the_target_is_learnt_behind_the_source(sight: Sight, order: list[int]) -> None:
    [example] = _task(sight=sight).encode(ROW, PACKER)
    assert TOKENIZER.tokens(example.ids.tolist()) == ["[CLS]", "good", "film", "[SEP]", "a", "play", ".", "[SEP]"]
    assert example.order is not None and example.order.tolist() == order
    target = example.targets["generate"]
    assert target.index is not None and target.index.tolist() == [3, 4, 5, 6]
    assert target.labels.tolist() == example.ids[4:].tolist()
    [prompt] = _task(sight=sight).encode(dataclasses.replace(ROW, label=None), PACKER)
    assert prompt.ids.tolist() == example.ids[:4].tolist() and not prompt.targets and prompt.record == 3


def test_what_does_not_fit_is_cut_and_counted() -> None:
    long = Record(number=0, texts=("film " * 9,), label=("a play . a good film",))
    [example] = _task().encode(long, PACKER)
    assert len(example) == PACKER.length and example.truncated == (9 - 6) + (6 - 4)
    assert example.targets["generate"].labels[-1] != TOKENIZER.sep  # a target without its end teaches none
    fit = TextFit(sequences=np.ones(1, np.int64), cut=np.array([5]), tokens=5).describe(_task(), 12)
    assert "12 tokens, or their targets than 4 pieces" in fit and "--most" in _task().description.longer
    with refusal("invalid-value", "10", "12"):
        Generate(most=10).encode(long, PACKER)


def test_each_target_of_a_row_is_learnt() -> None:
    several = dataclasses.replace(ROW, label=("a play", "the film ."))
    assert [len(one.targets["generate"].labels) for one in _task().encode(several, PACKER)] == [3, 4]


def test_a_decoder_writes_from_the_source() -> None:
    task = _task(sight="source", prefix="a ")
    [example] = task.encode(ROW, PACKER)
    assert example.source is not None
    assert TOKENIZER.tokens(example.source.ids.tolist()) == ["[CLS]", "a", "good", "film", "[SEP]"]
    assert TOKENIZER.tokens(example.ids.tolist()) == ["[SEP]", "[CLS]", "a", "play", "."]
    labels = example.targets["generate"].labels.tolist()
    assert TOKENIZER.tokens(labels) == ["[CLS]", "a", "play", ".", "[SEP]"]
    [prompt] = task.encode(dataclasses.replace(ROW, label=None), PACKER)
    assert TOKENIZER.tokens(prompt.ids.tolist()) == ["[SEP]", "[CLS]"] and prompt.source is not None
    [cut] = task.encode(Record(number=0, texts=("film " * 20,), label=("a play . a good film",)), PACKER)
    assert cut.source is not None and len(cut.source) == 12 and cut.truncated == (21 - 10) + (6 - 4)
    assert cut.targets["generate"].labels[-1] != TOKENIZER.sep


def test_an_encoder_with_a_decoder_learns_and_writes() -> None:
    torch.manual_seed(0)
    sizes = PairArchitecture(layers=1, heads=2, width=16, length=12, vocabulary=len(TOKENIZER), dropout=0.0)
    task = Generate(most=5, text=("source",)).for_model(sizes, TOKENIZER)
    assert task.sight == "source"
    learner = Learner(backbone := sizes.build(), {"generate": task.head(backbone)})
    records = [Record(number=n, texts=(f"{one} film",), label=(f"{one} play .",)) for n, one in enumerate(WORDS[:4])]
    batch = collate([example for record in records for example in task.encode(record, PACKER)])
    optimizer = torch.optim.Adam(learner.parameters(), lr=0.005)
    for _ in range(200):
        loss = learner(batch)["generate"]
        optimizer.zero_grad()
        (loss.total / loss.count).backward()
        optimizer.step()
    found = score(learner, task, records, PACKER)
    assert found.metrics["exact_match"] == 1
    with refusal("invalid-setting", "prefix"):
        Generate(sight="prefix").for_model(sizes, TOKENIZER)
    with refusal("invalid-setting", "source"):
        Generate(sight="source").for_model(sizes.encoder_side, TOKENIZER)


def test_what_a_model_cannot_predict_is_refused_before_training() -> None:
    pair = PairArchitecture(layers=1, heads=2, width=16, vocabulary=40, length=16)
    left = Architecture(layers=1, heads=2, width=16, vocabulary=40, length=16, direction="left_to_right", segments=0)
    for prediction in ("masked", "shifted"):
        for sizes in (pair, left):
            with refusal("invalid-setting", prediction):
                Generate(prediction=prediction).for_model(sizes, TOKENIZER)
    with refusal("invalid-setting", "0.5"):
        Generate(masked=0.5).for_model(left, TOKENIZER)
    with refusal("options-exclude-each-other", "'target'", "--target"):
        choose(["target"], user_columns=SourceColumns(source=("target",), label="target"), path="x.csv", labelled=True)


def test_a_run_on_an_encoder_with_a_decoder_is_whole(tmp_path: Path) -> None:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"layers": 1, "heads": 2, "width": 16, "length": 24, "vocabulary": len(TOKENIZER)}
    values = VALUES | {"distance_scores": 8, "scaled_pieces": True, "activation": "relu"}
    backbone = PairArchitecture(**sizes, **values).build()
    write_model(Learner(backbone, {"mlm": MaskedLanguageHead(backbone)}), tmp_path / "pair")
    write_tokenizer(TOKENIZER, tmp_path / "pair", length=24)
    settings = {"epochs": 2, "batch": 8, "learning_rate": 0.01, "most": 4, "precision": "fp32"}
    data = {"train": ROWS, "dev": ROWS[:6]}
    run = osbert.finetune("generate", model=str(tmp_path / "pair"), data=data, out=tmp_path / "run", **settings)
    assert osbert.evaluate(run.folder, data=ROWS[:6]) == pytest.approx(run.metrics)
    [said] = run.predict(["good film"])
    assert "".join(run.model.stream("good film")).strip() == said.value
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["architectures"] == ["T5ForConditionalGeneration"]


@pytest.mark.parametrize("direction", ["both", "left_to_right"])
@pytest.mark.parametrize("sight", ["prefix", "left_to_right"])
def test_nothing_sees_what_it_is_to_write(direction: Any, sight: Sight) -> None:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"layers": 2, "heads": 2, "width": 16, "length": 12, "direction": direction}
    backbone = Architecture(vocabulary=len(TOKENIZER), **sizes).build().eval()
    [example] = _task(sight=sight).encode(ROW, PACKER)
    ids = example.ids.copy()
    ids[5] += 1  # a piece of the target
    with torch.inference_mode():
        before, after = (
            backbone(collate([dataclasses.replace(example, ids=own)])).hidden for own in (example.ids, ids)
        )
    assert torch.equal(before[:5], after[:5]) and not torch.equal(before[5:], after[5:])
    ids = example.ids.copy()
    ids[2] += 1  # a piece of the source is seen by those before it in a prefix alone
    with torch.inference_mode():
        after = backbone(collate([dataclasses.replace(example, ids=ids)])).hidden
    assert torch.equal(before[:2], after[:2]) == (sight == "left_to_right") and not torch.equal(before[4:], after[4:])


def test_the_task_takes_what_suits_the_model() -> None:
    sizes: dict[str, Any] = {"layers": 1, "heads": 2, "width": 16, "vocabulary": 9}
    looks_left = Generate().for_model(Architecture(direction="left_to_right", length=64, **sizes), TOKENIZER)
    assert (looks_left.sight, looks_left.most) == ("left_to_right", 32)
    both = Generate(most=7).for_model(Architecture(length=512, **sizes), TOKENIZER)
    assert (both.sight, both.most) == ("prefix", 7)
    with refusal("unsupported-model"):
        Generate().head(Architecture(length=64, recurrent=1, **sizes).build())


@pytest.mark.lab
def test_a_model_without_piece_embeddings_does_not_generate() -> None:
    from osbert_lab.recurrent.bilm_architecture import BilmArchitecture

    with refusal("unsupported-model"):
        Generate().head(BilmArchitecture(layers=1, width=16, cells=16, filters=64, vocabulary=9, length=64).build())


def test_columns_are_found_and_lists_are_sentences_or_references() -> None:
    rows = [{"source": ["One.", "Two."], "target": ["A.", "B."]}, {"source": ["Three."], "target": ["C."]}] * 10
    task, records = load(with_data(Generate(), rows).source.resolve(), ("train", "dev"))
    assert isinstance(task, Generate) and (task.text, task.target) == (("source",), "target")
    assert len(records["dev"]) == 2
    first = next(one for one in records["train"] if len(one.label) == 2)
    assert (first.texts, first.label) == (("One. Two.",), ("A.", "B."))
    asked = with_data(Generate(text=("answer", "context"), target="question"), [
        {"answer": "Paris", "context": "In Paris.", "question": "Where?"}
    ] * 10)  # fmt: skip
    _, records = load(asked.source.resolve(), ("train",))
    assert records["train"][0].texts == ("Paris", "In Paris.")
    two = with_data(Generate(), [("en", "de")] * 10).source
    assert two.resolve().target != ""  # type: ignore[attr-defined]
    with refusal("unknown-column", "x", "y", "z"):
        with_data(Generate(), [{"x": "1", "y": "2", "z": "3"}] * 10).source.resolve()
    problems = Problems(heading="")
    source = with_data(Generate(), [{"source": "a", "target": ""}, {"source": "", "target": "b"}]).source
    assert not [*source.read(source.file("train"), problems, labelled=True)] and problems.count == 2


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(
        tmp_path_factory.mktemp("made") / "writer", None, masks=True, direction="left_to_right", segments=0
    )


ROWS = [(f"{one} {other}", other) for one in WORDS[:5] for other in WORDS[:5]]


@pytest.fixture(scope="module")
def run(writer: Path) -> FinetuneRun:
    settings = {"epochs": 30, "batch": 8, "learning_rate": 0.02, "most": 4, "dropout": 0.0, "precision": "fp32"}
    data = {"train": ROWS, "dev": ROWS[:6]}
    out = writer.parent / "run"
    return osbert.finetune("generate", model=str(writer), data=data, out=out, kept_by="exact_match", **settings)


def test_a_run_writes_what_it_has_learnt(run: FinetuneRun) -> None:
    assert run.metrics["exact_match"] > 0.8 and run.metrics["rougeL"] >= run.metrics["exact_match"]
    said = run.predict(["good film", "a the"])
    assert all(isinstance(one, WrittenText) for one in said)
    recipe = open_folder(run.folder).task
    assert isinstance(recipe, Generate) and (recipe.sight, recipe.most) == ("left_to_right", 4)
    assert osbert.evaluate(run.folder, data=ROWS[:6]) == pytest.approx(run.metrics)


def test_a_run_begins_with_the_language_head(writer: Path) -> None:
    start = read_model(writer, FinetuneSettings(), writes=True)
    stored = open_folder(writer).heads["mlm"].state_dict()
    assert start.language is not None
    assert all(torch.equal(stored[name], value) for name, value in start.language.state_dict().items())


def test_rows_are_written_to_a_file(run: FinetuneRun, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"text": "good film"}\n{"text": "film bad"}\n')
    osbert.predict(run.folder, tmp_path / "rows.jsonl", out=tmp_path / "said.jsonl")
    said = [json.loads(line) for line in (tmp_path / "said.jsonl").read_text().splitlines()]
    assert [one["prediction"] for one in said] == [one.value for one in run.predict(["good film", "film bad"])]


@pytest.mark.parametrize(("sight", "closed"), [("left_to_right", False), ("prefix", True)])
def test_others_open_what_they_would_write_alike(tmp_path: Path, sight: Sight, closed: bool) -> None:
    sizes = open_folder(write_run(tmp_path / "gpt", None, masks=True, **GPT2)).architecture
    head = Generate(sight=sight).head(backbone := sizes.build())
    learner = Learner(backbone, {"generate": head})
    assert bool(osbert_only_reason(sizes, learner)) == closed
    config, _ = to_huggingface(learner)
    assert config["model_type"] == ("osbert" if closed else "gpt2")
    assert closed or config["architectures"] == ["GPT2LMHeadModel"]


GPT2: dict[str, Any] = {
    "segments": 0,
    "embedding_norm": False,
    "pooling": "none",
    "normalization": "pre",
    "piece_transform": False,
    "scaled_outputs": True,
    "direction": "left_to_right",
}


def test_a_run_is_a_model_that_writes(run: FinetuneRun, capsys: pytest.CaptureFixture[str]) -> None:
    model, texts = run.model, ["good film", "film bad"]
    said = [one.value for one in run.predict(texts)]
    assert [one.text.strip() for one in model.generate(texts)] == said
    assert "".join(model.stream(texts[0])).strip() == said[0]
    assert model.generate(texts, most=1)[0].pieces == 1 and model.generate(texts, sample=True, seed=3)
    generate(run.folder, *texts)
    assert capsys.readouterr().out.splitlines() == said
    generate(run.folder, texts[0])
    assert capsys.readouterr().out == f"{said[0]}\n"
    with refusal("invalid-value", "22"):
        model.generate(texts, most=22)
    with refusal("wrong-number-of-texts", "texts[0]"):
        model.generate([("good", "film")])


def test_an_instruction_is_read_with_its_input_which_may_be_empty() -> None:
    row = {"instruction": "Add.", "input": "1 2", "output": "3", "text": "Below is an instruction: Add. 1 2: 3"}
    task, records = load(with_data(Generate(), [row, row | {"input": ""}] * 10).source.resolve(), ("train", "dev"))
    assert isinstance(task, Generate) and (task.text, task.target) == (("instruction", "input"), "output")
    read = {task.source_text(record) for split in records.values() for record in split}
    assert read == {"instruction: Add. input: 1 2", "instruction: Add."}
    with refusal("empty-text"):
        load(with_data(Generate(), [row, row | {"instruction": ""}] * 10).source.resolve(), ("train", "dev"))
    dolly = with_data(Generate(), [{"instruction": "Add.", "context": "1 2", "response": "3", "category": "sums"}])
    [record] = dolly.source.resolve().source.records("all", Problems(heading=""))
    assert (record.texts, record.label) == (("Add.", "1 2"), ("3",))


def test_doc_is_a_document_where_no_other_column_is() -> None:
    source = with_data(Generate(), [{"doc": "a film", "summary": "film"}]).source
    [record] = source.resolve().source.records("all", Problems(heading=""))
    assert record.texts == ("a film",)
