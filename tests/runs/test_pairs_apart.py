"""Pairs whose texts are read apart: what the layer is equal to, where a run is opened, and when it is chosen."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import osbert
from osbert import options
from osbert.evaluation.score import decode_records, encode_records
from osbert.inference.onnx_backend import OnnxBackend
from osbert.interop.sentence_files import SentenceModel, write_sentence_model
from osbert.models.forms import pair_blocks
from osbert.runs.contract import Watch, ignore
from osbert.runs.events import Epoch
from osbert.runs.finetune.defaults import FEW_PAIRS, FEW_SCORED_PAIRS, MANY_PAIRS, fill_defaults
from osbert.runs.finetune.few_shot import PAIR_PENALTY
from osbert.runs.finetune.finetune import FinetuneRun
from osbert.runs.finetune.plan import read_plan, schema
from osbert.tasks import load
from osbert.tasks.kinds.classify import Classify
from osbert.tasks.kinds.regress import Regress
from refusals import refusal
from tiny_runs import write_run

TEXTS = ["good film", "bad film", "fine play", "poor play", "the good actor", "a bad actor s .", "film", "the play ."]
PAIRS = [(one, other) for one in TEXTS for other in TEXTS[:5]]
NUMBERS = [{"one": one, "two": two, "label": float(len(set(one.split()) & {*two.split()}))} for one, two in PAIRS]
CLASSES = [{**row, "label": "alike" if row["label"] else "unlike"} for row in NUMBERS]
COLUMNS = {"text": "one", "pair": "two"}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an encoder that says of itself to be a model of sentences."""
    folder = write_run(tmp_path_factory.mktemp("encoder"), None)
    write_sentence_model(folder, SentenceModel(pooling="mean", normalize=True), width=16)
    return folder


@pytest.fixture(scope="module")
def numbers(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> FinetuneRun:
    data = {"train": NUMBERS, "dev": NUMBERS[:12]}
    return osbert.finetune("regress", model=encoder, data=data, out=tmp_path_factory.mktemp("n") / "run", **COLUMNS)


@pytest.fixture(scope="module")
def classes(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> FinetuneRun:
    data = {"train": CLASSES, "dev": CLASSES[:12]}
    return osbert.finetune("classify", model=encoder, data=data, out=tmp_path_factory.mktemp("c") / "run", **COLUMNS)


def test_it_is_a_ridge_regression_on_what_two_vectors_say_of_a_pair(encoder: Path, numbers: FinetuneRun) -> None:
    vectors = osbert.load(str(encoder)).embed(TEXTS, pooling="mean", normalize=True).astype(np.float64)
    u, v = (np.stack([vectors[TEXTS.index(pair[side])] for pair in PAIRS]) for side in (0, 1))
    blocks = [block - block.mean(axis=0) for block in pair_blocks(u, v)]
    x = np.concatenate([block / np.linalg.norm(block, axis=1).mean() for block in blocks], axis=1)
    y = np.array([row["label"] for row in NUMBERS])
    weights = np.linalg.solve(x.T @ x + PAIR_PENALTY / 2 * np.eye(x.shape[1]), x.T @ (y - y.mean()))
    said = [one.value for one in numbers.predict(PAIRS)]
    assert said == pytest.approx((y.mean() + x @ weights).tolist(), abs=2e-3)
    assert numbers.predict([PAIRS[1]])[0].value == pytest.approx(said[1], abs=1e-5)  # wherever the batches end


def test_the_run_says_how_it_reads_pairs_and_is_opened_by_osbert_alone(classes: FinetuneRun) -> None:
    table = osbert.recipe.read(classes.folder / "recipe.toml")
    assert table["classify"]["apart"] and table["training"]["few_shot"] == "linear"
    assert json.loads((classes.folder / "config.json").read_text())["model_type"] == "osbert"
    model = osbert.load(str(classes.folder))
    probabilities = [one.probabilities["alike"] for one in classes.predict(PAIRS)]
    assert [one.probabilities["alike"] for one in model.predict(PAIRS)] == pytest.approx(probabilities)
    assert classes.metrics["accuracy"] > 0.7
    with refusal("wrong-number-of-texts", "pairs"):
        model.predict(["one text"])


def test_the_words_of_both_texts_make_the_score(classes: FinetuneRun, numbers: FinetuneRun) -> None:
    model = osbert.load(str(classes.folder))
    [said], [mirrored] = model.explain(PAIRS[0]), model.explain(PAIRS[0][::-1], label=model.predict(PAIRS)[0].value)
    assert {word.text for word in said.words} == {0, 1}
    weights = sum(word.weight for word in said.words)
    assert weights == pytest.approx(said.score - said.baseline_score, abs=2e-3) and (said.error or 0) < 0.02
    assert mirrored.label == said.label and model.explains
    [number] = osbert.load(str(numbers.folder)).explain(PAIRS[1])
    mean = np.mean([row["label"] for row in NUMBERS])
    assert number.score == pytest.approx(numbers.predict(PAIRS)[1].value - mean, abs=2e-3)
    drops = [word.occlusion for word in number.words]
    assert None not in drops and max(map(abs, filter(None, drops))) > 0


def test_an_export_says_the_same(numbers: FinetuneRun, tmp_path: Path) -> None:
    for name in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(name)
    from osbert.inference.engine import load as opened
    from osbert.runs.export import write

    write(opened(numbers.folder, device="cpu"), numbers.folder, tmp_path, int8=False)
    exported = opened(tmp_path)
    assert isinstance(exported.backend, OnnxBackend) and "sentence_embedding" in exported.backend.opened.names
    own = [one.value for one in numbers.predict(PAIRS)]
    assert [one.value for one in exported.predict(PAIRS)] == pytest.approx(own, abs=1e-4)


@pytest.mark.lab
def test_the_encoder_can_be_tuned_by_it_too(tmp_path: Path) -> None:
    """Sentence-BERT's own training: what is learnt in a step and what decoding makes of the vectors are one."""
    encoder = write_run(tmp_path / "encoder", None)  # with a pooler
    call: dict[str, Any] = {"batch": 8, "epochs": 8, "learning_rate": 1e-2, "dropout": 0, "apart": True}
    call |= COLUMNS
    data, events = {"train": CLASSES, "dev": CLASSES[:12]}, list[Any]()
    run = osbert.finetune("classify", model=encoder, data=data, out=tmp_path / "run", watch=events.append, **call)
    losses = [event.loss for event in events if isinstance(event, Epoch)]
    assert len(losses) == 8 and losses[-1] < 0.9 * losses[0]
    assert json.loads((run.folder / "config.json").read_text())["model_type"] == "osbert"  # never a random classifier
    before, after = (osbert.load(str(path)).embed(TEXTS[:1]) for path in (encoder, run.folder))
    assert not np.allclose(before, after, atol=1e-3)
    with refusal("unsupported-model", "--few-shot none"):
        osbert.distil(run.folder, data=data, out=tmp_path / "student")


def test_training_and_decoding_give_a_pair_the_same_scores(tmp_path: Path) -> None:
    import torch

    from osbert.data.batch import collate
    from osbert.data.example import Target
    from osbert.models.heads.contrastive import ApartHead

    task = Classify(labels=("a", "b", "c"), text="one", pair="two", apart=True)
    engine = osbert.load(str(write_run(tmp_path, task)))
    head = engine.learner.heads["classify"]
    assert isinstance(head, ApartHead)
    records = [task.record_of(pair) for pair in PAIRS[:5]]
    examples = []
    for number, (_, (first, second)) in enumerate(encode_records(task, records, engine.packer)):
        target = {"classify": Target(labels=np.array([number % 3]))}
        examples += [
            dataclasses.replace(first, record=number, targets=target),
            dataclasses.replace(second, record=number),
        ]
    batch = collate(examples)
    with torch.inference_mode():
        scores = head.score_targets(engine.learner.states(batch), batch)
    order = batch.records[batch.targets["classify"].index].argsort()
    shares = torch.softmax(scores[order], dim=1).numpy()
    outputs = lambda parts: engine.backend.outputs(task, parts, tokens=64)  # noqa: E731
    said = decode_records(
        encode_records(task, records, engine.packer), outputs=outputs, decode=engine.backend.decoding(task)
    )
    assert np.allclose([[*one.probabilities.values()] for one in said], shares, atol=1e-5)


def test_two_ways_to_read_a_pair_and_windows_are_refused(encoder: Path, tmp_path: Path) -> None:
    for settings in ({"both_orders": True}, {"long": "window"}):
        with refusal("invalid-setting", "apart", next(iter(settings))):
            osbert.finetune(
                "classify", model=encoder, data=CLASSES, out=tmp_path / "r", apart=True, **COLUMNS, **settings
            )
    single = [{"text": row["one"], "label": row["label"]} for row in CLASSES]
    with refusal("wrong-number-of-texts", "--apart"):
        osbert.finetune("classify", model=encoder, data=single, out=tmp_path / "r", apart=True)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ((), "linear apart"),
        (("--few-shot", "linear"), "linear apart"),
        (("--few-shot", "linear", "--both-orders"), "linear"),
        (("--few-shot", "none"), "none"),
        (("--patience", "2"), "none"),
        pytest.param(("--seeds", "3"), "none", marks=pytest.mark.lab),
        (("--long", "window"), "none"),
        (("--epochs", "4"), "none"),
        (("--both-orders",), "none"),
        (("--long", "head+tail"), "linear apart"),
        (("--settings", "paper"), "none"),
    ],
    ids=" ".join,
)
def test_few_pairs_are_read_apart_where_all_is_left_open(
    encoder: Path, tmp_path: Path, settings: Sequence[str], expected: str
) -> None:
    events: list[Any] = []
    assert _chosen(encoder, tmp_path, settings, watch=events.append) == expected
    warnings = [event.text for event in events if event.warning]
    ruled_out = expected == "none" and not {"--few-shot", "--settings"} & {*settings}
    assert [settings[0] in text for text in warnings] == [True] * ruled_out, warnings


def test_other_encoders_than_those_of_sentences_are_fine_tuned(tmp_path: Path) -> None:
    assert _chosen(write_run(tmp_path / "encoder", None), tmp_path, ()) == "none"


def test_an_encoder_that_was_pretrained_for_minutes_compares_vectors_too(tmp_path: Path) -> None:
    encoder = write_run(tmp_path / "encoder", None)
    settings = {"objectives": ["mlm"], "training": {"steps": 1000}, "data": {"batch": 32, "length": 64}}
    (encoder / "run.json").write_text(json.dumps({"settings": settings}))
    assert _chosen(encoder, tmp_path, ()) == "linear apart"
    assert _chosen(encoder, tmp_path, ("--few-shot", "none")) == "none"


@pytest.mark.parametrize(("kind", "most"), [("classify", FEW_PAIRS), ("regress", FEW_SCORED_PAIRS)])
def test_many_pairs_are_fine_tuned_beside_the_layer(encoder: Path, tmp_path: Path, kind: str, most: int) -> None:
    assert _chosen(encoder, tmp_path, (), kind=kind, rows=most - 1) == "linear apart"
    assert _chosen(encoder, tmp_path, (), kind=kind, rows=most) == "linear-first"
    assert _chosen(encoder, tmp_path, ("--both-orders",), kind=kind, rows=most) == "none"
    assert _chosen(write_run(tmp_path / "encoder", None), tmp_path, (), kind=kind, rows=most) == "none"
    assert _chosen(encoder, tmp_path, (), kind=kind, rows=MANY_PAIRS) == "none"


@pytest.mark.parametrize("kept", ["linear layer", "fine-tuned"])
@pytest.mark.parametrize("kind", ["classify", "regress"])
def test_the_better_of_the_layer_and_of_fine_tuning_is_kept(
    encoder: Path, tmp_path: Path, kind: str, kept: str
) -> None:
    rows = CLASSES if kind == "classify" else NUMBERS
    call: dict[str, Any] = {"model": encoder, "data": {"train": rows, "dev": rows}, **COLUMNS}
    linear = osbert.finetune(kind, out=tmp_path / "linear", few_shot="linear", **call)
    call |= {"epochs": 1, "batch": 8, "learning_rate": 0.5} | ({"keep": "last"} if kept == "fine-tuned" else {})
    run = osbert.finetune(kind, out=tmp_path / "run", few_shot="linear-first", **call)
    compared = run.facts["compared"]
    assert compared["linear layer"]["metrics"] == linear.metrics
    assert run.facts["best"]["epoch"] == compared[kept]["epoch"] == (kept == "fine-tuned")
    table = osbert.recipe.read(run.folder / "recipe.toml")
    assert table["training"]["few_shot"] == "linear-first"
    assert table[kind].get("apart", False) == (kept == "linear layer")
    if kept == "linear layer":
        assert run.predict(PAIRS[:4]) == linear.predict(PAIRS[:4])
    else:  # it is what is fine-tuned without the layer
        alone = osbert.finetune(kind, out=tmp_path / "alone", few_shot="none", **call)
        assert run.predict(PAIRS[:4]) == alone.predict(PAIRS[:4])
    again = osbert.finetune(kind, out=tmp_path / "run", few_shot="linear-first", **call)
    assert again.metrics == run.metrics and "compared" in again.facts


def _chosen(
    encoder: Path,
    folder: Path,
    settings: Sequence[str],
    *,
    kind: str = "regress",
    rows: int = len(NUMBERS),
    watch: Watch = ignore,
) -> str:
    """Return the few-shot learning of a task, and whether its pairs are read apart, for so many training rows."""
    path = folder / "pairs.csv"
    path.write_text("one,two,label\n" + "".join(f"{row['one']},{row['two']},{row['label']}\n" for row in NUMBERS))
    words = ("--text", "one", "--pair", "two", *settings)
    read = read_plan(kind, options.parse_settings(words, schema(kind)), model=encoder, data=path)
    _, records = load(read.tasks[0], ("train", "dev"))
    training = list(itertools.islice(itertools.cycle(records["train"]), rows))
    plan = fill_defaults(read, [training], folder / "none", watch)
    [task] = plan.tasks
    assert isinstance(task, Regress | Classify)
    return f"{plan.training.few_shot}{' apart' * task.apart}"
