"""Fine-tuning that begins at a fitted linear layer: when it is the default, which model is kept, what a run records."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import osbert
from osbert import options
from osbert.data.batch import collate
from osbert.interop.files.weight_files import fingerprint, read_file
from osbert.models.heads.tagging import TagHead
from osbert.runs.events import Epoch
from osbert.runs.finetune.defaults import CHOOSING, FEW_PER_CLASS, FEW_ROWS, fill_defaults
from osbert.runs.finetune.few_shot import PENALTY
from osbert.runs.finetune.finetune import FinetuneRun, finetune
from osbert.runs.finetune.plan import read_plan, schema
from osbert.tasks import load
from osbert.training.interruption import Interruption, StopRequest
from osbert.training.progress import Progress
from tiny_runs import write_run

WORDS = ["film", "play", "actor", "poor", "fine", "good", "bad", "the", "a"]


def make_rows(classes: int, per_class: int) -> list[dict[str, str]]:
    """Return rows whose label is told by their first two words, with further words that tell nothing."""
    return [
        {
            "text": f"{WORDS[label % 9]} {WORDS[label // 9]} {WORDS[row % 9]} {'a ' * (row % 4)}",
            "label": f"label {label}",
        }
        for row in range(per_class)
        for label in range(classes)
    ]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("encoder"), None)


@pytest.mark.parametrize(
    ("classes", "per_class", "method"),
    [
        (2, 1, "linear-first"),  # there are no two texts of a label
        (2, 2, "contrastive"),
        (2, FEW_ROWS // 2 - 1, "contrastive"),
        (2, FEW_ROWS // 2, "none"),
        (3, FEW_ROWS // 2, "linear-first"),
        (3, FEW_PER_CLASS, "none"),
        (20, 1, "linear-first"),
        (20, 2, "contrastive"),
        (20, 8, "linear-first"),
        (77, 1, "linear-first"),
        (77, 30, "linear-first"),
        (77, FEW_PER_CLASS, "none"),
    ],
)
def test_the_method_depends_on_the_rows_and_on_those_of_each_label(
    encoder: Path, tmp_path: Path, classes: int, per_class: int, method: str
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in make_rows(classes, per_class)))
    words = options.parse_settings(("--dev", str(path)), schema("classify"))
    read = read_plan("classify", words, model=encoder, data=path)
    task, records = load(read.task, ("train", "dev"))
    notices: list[Any] = []
    plan = fill_defaults(replace(read, tasks=(task,)), [records["train"]], tmp_path / "none", notices.append)
    assert plan.training.few_shot == method
    if method == "linear-first":
        text = notices[0].text
        assert f"{classes * per_class:,} training rows" in text and f"{classes} labels" in text
        assert all(f"{value}" in text for value in (plan.training.batch, plan.training.epochs))


CALL: dict[str, Any] = {
    "few_shot": "linear-first",
    "batch": 8,
    "epochs": 2,
    "seed": 1,
    "learning_rate": 1e-4,
    "dropout": 0.0,
}


def run_of(encoder: Path, out: Path, *, dev: int, **more: Any) -> FinetuneRun:
    rows = make_rows(20, 6)
    data = {"train": rows, "dev": make_rows(20, -(-dev // 20))[:dev]}
    return osbert.finetune("classify", model=encoder, data=data, out=out, **more)


@pytest.mark.parametrize(("dev", "keep"), [(40, "better"), (CHOOSING, "best")])
def test_fine_tuning_begins_at_the_linear_layer_and_both_scores_are_recorded(
    encoder: Path, tmp_path: Path, dev: int, keep: str
) -> None:
    events: list[Any] = []
    linear = run_of(encoder, tmp_path / "linear", dev=dev, few_shot="linear")
    run = run_of(encoder, tmp_path / "run", dev=dev, watch=events.append, **CALL)
    epochs = [event for event in events if isinstance(event, Epoch)]
    assert [epoch.epoch for epoch in epochs] == [0, 1, 2]
    # The layer, and the rows that it is scored on, are those of a run that fits the layer alone.
    assert epochs[0].metrics == linear.metrics and epochs[0].loss == linear.facts["best"]["loss"]
    assert epochs[1].loss < 1.5  # a new layer of 20 outputs begins at 3
    assert osbert.recipe.read(run.folder / "recipe.toml").get("scores", {}).get("keep", "best") == keep
    compared = run.facts["compared"]
    assert compared["linear layer"]["metrics"] == linear.metrics
    assert run.metrics["accuracy"] == max(epoch["metrics"]["accuracy"] for epoch in compared.values())
    report = (run.folder / "report.html").read_text()
    lines = [event.text for event in events if hasattr(event, "text")]
    for name, epoch in compared.items():
        assert name in report and f"{epoch['metrics']['accuracy']:.4f}" in report
        assert any(line.startswith(f"{name}: ") for line in lines)


def test_the_linear_layer_is_kept_where_fine_tuning_is_behind(encoder: Path, tmp_path: Path) -> None:
    linear = run_of(encoder, tmp_path / "linear", dev=40, few_shot="linear")
    run = run_of(encoder, tmp_path / "run", dev=40, **CALL | {"learning_rate": 0.5})
    assert run.facts["best"]["epoch"] == 0 and run.facts["best"]["step"] == 0
    assert fingerprint(read_file(run.folder / "model.safetensors")) == fingerprint(
        read_file(linear.folder / "model.safetensors")
    )
    texts = [row["text"] for row in make_rows(20, 1)]
    assert run.predict(texts) == linear.predict(texts)
    last = run_of(encoder, tmp_path / "last", dev=40, **CALL | {"learning_rate": 0.5, "keep": "last"})
    assert last.facts["best"]["epoch"] == 2


@pytest.mark.parametrize("step", [0, 4, 30])
def test_a_stopped_run_ends_with_the_same_weights_and_scores(encoder: Path, tmp_path: Path, step: int) -> None:
    whole = run_of(encoder, tmp_path / "whole", dev=40, **CALL)
    wish = Interruption()

    def watch(event: object) -> None:
        if (isinstance(event, Progress) and event.step == step) or (isinstance(event, Epoch) and event.step == step):
            signal.raise_signal(signal.SIGTERM)

    data = {"train": make_rows(20, 6), "dev": make_rows(20, 2)}
    call = {"model": encoder, "data": data, "out": tmp_path / "run", **CALL}
    with pytest.raises(StopRequest):
        finetune("classify", watch=watch, wish=wish, **call)
    run = finetune("classify", **call)
    assert fingerprint(read_file(run.folder / "model.safetensors")) == fingerprint(
        read_file(whole.folder / "model.safetensors")
    )
    compared, wanted = (
        {name: epoch | {"seconds": 0} for name, epoch in facts["compared"].items()}
        for facts in (run.facts, whole.facts)
    )
    assert compared == wanted


def test_one_row_of_each_label_is_learnt(encoder: Path, tmp_path: Path) -> None:
    rows = make_rows(20, 1)
    run = osbert.finetune("classify", model=encoder, data={"train": rows, "dev": rows}, out=tmp_path / "run", epochs=1)
    assert osbert.recipe.read(run.folder / "recipe.toml")["training"]["few_shot"] == "linear-first"
    assert run.metrics["accuracy"] > 0.5


@pytest.mark.parametrize(
    ("task", "rows", "method"),
    [
        ("regress", FEW_PER_CLASS - 1, "none"),
        ("multilabel", 3 * FEW_PER_CLASS - 1, "linear-first"),
        ("multilabel", 3 * FEW_PER_CLASS, "none"),
    ],
)
def test_the_method_for_numbers_and_several_labels_depends_on_the_rows_of_each(
    encoder: Path, tmp_path: Path, task: str, rows: int, method: str
) -> None:
    path = tmp_path / "rows.jsonl"
    labels = [1.0, 2.0, 3.0] if task == "regress" else [["a"], ["b", "c"], []]
    lines = [{"text": f"a {WORDS[number % 9]}", "label": labels[number % 3]} for number in range(rows)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = options.parse_settings(("--dev", str(path)), schema(task))
    read = read_plan(task, words, model=encoder, data=path)
    loaded, records = load(read.task, ("train", "dev"))
    plan = fill_defaults(replace(read, tasks=(loaded,)), [records["train"]], tmp_path / "none")
    assert plan.training.few_shot == method


TAGGED = [
    {"words": ["the", word, "a", other], "tags": ["O", tag, "O", "O"]}
    for word, tag in (("film", "B-art"), ("play", "B-art"), ("actor", "B-person"), ("good", "O"))
    for other in WORDS[:6]
]


@pytest.mark.parametrize("decoder", ["linear", "crf"])
def test_tags_begin_at_a_linear_layer_on_the_states_of_words(encoder: Path, tmp_path: Path, decoder: str) -> None:
    call: dict[str, Any] = {"model": encoder, "data": {"train": TAGGED, "dev": TAGGED}, "decoder": decoder}
    linear = osbert.finetune("tag", out=tmp_path / "linear", few_shot="linear", **call)
    run = osbert.finetune("tag", out=tmp_path / "run", few_shot="linear-first", epochs=1, **call)
    assert run.facts["compared"]["linear layer"]["metrics"] == linear.metrics
    assert linear.metrics["f1"] > 0.9
    before = osbert.load(str(encoder)).embed(["the film"], pooling="mean")
    assert linear.model.embed(["the film"], pooling="mean") == pytest.approx(before, abs=1e-6)


def test_the_layer_of_tags_is_a_logistic_regression_on_the_states_of_words(encoder: Path, tmp_path: Path) -> None:
    from sklearn.linear_model import LogisticRegression

    data = {"train": TAGGED, "dev": TAGGED}
    run = osbert.finetune("tag", model=encoder, data=data, out=tmp_path / "run", few_shot="linear")
    engine = osbert.load(str(run.folder))
    head = engine.learner.heads["tag"]
    assert isinstance(head, TagHead)
    task, packer = engine.fine_tuned, engine.packer
    records = run.development["tag"]
    examples = [
        replace(one, record=number) for number, record in enumerate(records) for one in task.encode(record, packer)
    ]
    batch = collate(examples)
    with torch.inference_mode():
        states = engine.learner.states(batch)
        [block] = head.blocks(states, batch)
        scores = head.linear(block).softmax(dim=1).numpy()
    x = block.numpy() - block.numpy().mean(axis=0)
    x = x / np.linalg.norm(x, axis=1).mean()
    theirs = LogisticRegression(C=1 / PENALTY, tol=1e-8, max_iter=2000).fit(x, batch.targets["tag"].labels.numpy())
    assert scores[:, theirs.classes_] == pytest.approx(theirs.predict_proba(x), abs=5e-3)


@pytest.mark.parametrize(("task", "criterion"), [("regress", "spearman"), ("multilabel", "micro_f1")])
def test_numbers_and_several_labels_begin_at_the_linear_layer_if_asked(
    encoder: Path, tmp_path: Path, task: str, criterion: str
) -> None:
    rows = [
        {"text": row["text"], "label": label % 3 if task == "regress" else [f"a{label % 2}", f"b{label % 3}"]}
        for label, row in enumerate(make_rows(12, 4))
    ]
    call: dict[str, Any] = {"model": encoder, "data": {"train": rows, "dev": rows}}
    run, linear = (
        osbert.finetune(task, out=tmp_path / few_shot, few_shot=few_shot, **call, **more)
        for few_shot, more in (("linear-first", {"epochs": 1}), ("linear", {}))
    )
    assert run.facts["compared"]["linear layer"]["metrics"] == linear.metrics
    assert run.metrics[criterion] >= linear.metrics[criterion]
