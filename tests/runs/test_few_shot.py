"""Few-shot learning: a linear layer on sentence vectors, tuned or not; what it is equal to, stores, and refuses."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import osbert
from osbert.interop.files.weight_files import fingerprint, read_file
from osbert.runs.events import Epoch
from osbert.runs.finetune.defaults import learn_from_all
from osbert.runs.finetune.few_shot import FOLDS, PENALTY
from osbert.runs.finetune.finetune import FinetuneRun, finetune, lay_out, start
from osbert.runs.finetune.records import read_tasks
from osbert.runs.seen_texts import sketch
from osbert.tasks import Record
from osbert.training.interruption import Interruption, StopRequest
from osbert.training.run_folder import RunFolder
from refusals import refusal
from tiny_runs import write_run

WORDS = [("good", "pos"), ("bad", "neg"), ("fine", "pos"), ("poor", "neg")]
ROWS = [
    {"text": f"the {word} film {'a ' * (number % 5)}", "label": label} for number in range(8) for word, label in WORDS
]
DATA = {"train": ROWS, "dev": ROWS[:12]}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("encoder"), None)


@pytest.fixture(scope="module")
def linear(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> FinetuneRun:
    out = tmp_path_factory.mktemp("runs") / "linear"
    return osbert.finetune("classify", model=encoder, data=DATA, out=out, few_shot="linear")


def vectors(model: Any, rows: list[dict[str, Any]]) -> np.ndarray:
    """Return unit vectors of texts, shifted to mean 0 over the rows, and scaled to length 1 in the mean."""
    found = np.asarray(model.embed([row["text"] for row in rows], pooling="mean", normalize=True), np.float64)
    found -= found.mean(axis=0)
    return found / np.linalg.norm(found, axis=1).mean()


def test_linear_is_a_logistic_regression_on_the_mean_vectors_of_the_encoder(encoder: Path, linear: FinetuneRun) -> None:
    from sklearn.linear_model import LogisticRegression

    x = vectors(osbert.load(str(encoder)), ROWS)
    labels = [row["label"] for row in ROWS]
    # Two classes of a softmax share the squared norm, which is then half of that of one sigmoid.
    theirs = LogisticRegression(C=2 / PENALTY, tol=1e-8, max_iter=1000).fit(x, labels)
    wanted = theirs.predict_proba(x)[:, list(theirs.classes_).index("pos")]
    said = [one.probabilities["pos"] for one in linear.predict([row["text"] for row in ROWS])]
    assert said == pytest.approx(wanted.tolist(), abs=2e-3)


def test_the_encoder_stays_and_the_run_says_how_it_was_made(encoder: Path, linear: FinetuneRun) -> None:
    texts = [row["text"] for row in ROWS[:4]]
    before = osbert.load(str(encoder)).embed(texts, pooling="mean")
    assert np.allclose(linear.model.embed(texts, pooling="mean"), before, atol=1e-6)
    recipe = osbert.recipe.read(linear.folder / "recipe.toml")
    assert recipe["training"]["few_shot"] == "linear"
    assert linear.facts["best"]["epoch"] == linear.facts["best"]["step"] == 0
    config = json.loads((linear.folder / "config.json").read_text())
    assert config["osbert_summary"] == "mean" and config["osbert_pooling"] == "unit"
    assert (linear.folder / "report.html").is_file()
    assert linear.interval is not None and linear.interval.rows == 12


def test_numbers_and_several_labels_are_learnt_too(encoder: Path, tmp_path: Path) -> None:
    numbers = [{"text": row["text"], "label": 3.0 if row["label"] == "pos" else 1.0} for row in ROWS]
    run = osbert.finetune("regress", model=encoder, data={"train": numbers, "dev": numbers}, out=tmp_path / "r",
                          few_shot="linear")  # fmt: skip
    x, y = vectors(osbert.load(str(encoder)), numbers), np.array([row["label"] for row in numbers])
    z = (y - y.mean()) / y.std()
    weights = np.linalg.solve(x.T @ x + PENALTY / 2 * np.eye(x.shape[1]), x.T @ z)
    wanted = y.mean() + y.std() * (x @ weights)
    assert [one.value for one in run.predict([row["text"] for row in numbers])] == pytest.approx(
        wanted.tolist(), abs=2e-2
    )
    labels = [{"text": row["text"], "labels": [row["label"], "film"]} for row in ROWS]
    found = osbert.finetune("multilabel", model=encoder, data={"train": labels, "dev": labels}, out=tmp_path / "m",
                            few_shot="linear")  # fmt: skip
    assert found.metrics["micro_f1"] > 0.5


@pytest.mark.parametrize("few_shot", ["linear", "contrastive"])
def test_few_rows_are_all_learnt_from_and_a_linear_layer_is_cross_validated(
    encoder: Path, tmp_path: Path, few_shot: str
) -> None:
    rows = [
        {"text": f"the {word} film {'a ' * number}", "label": label} for number in range(2) for word, label in WORDS
    ]
    events: list[Any] = []
    call: dict[str, Any] = {"model": encoder, "few_shot": few_shot}
    run = osbert.finetune("classify", data=rows, out=tmp_path / "run", watch=events.append, **call)
    # The run knows that it has learnt from all of its rows, and no epoch has a score.
    known = RunFolder(run.folder).facts["finished"]["training_texts"]
    assert known == sketch([Record(number=0, texts=(row["text"],)) for row in rows])
    assert not any(event.metrics for event in events if isinstance(event, Epoch))
    given = {"train": rows, "dev": rows[:2]}
    whole = osbert.finetune("classify", data=given, out=tmp_path / "whole", **call, **LAST.get(few_shot, {}))
    weights = [read_file(folder / "model.safetensors") for folder in (run.folder, whole.folder)]
    assert all(np.array_equal(weights[0][name], weights[1][name]) for name in weights[1])
    assert run.interval is not None and run.interval.rows == len(rows)
    assert f"cross-validation ({len(rows)} rows)" in " ".join((run.folder / "report.html").read_text().split())


def test_a_row_is_predicted_by_a_regression_on_the_other_folds_which_have_a_row_of_each_label(encoder: Path) -> None:
    from sklearn.linear_model import LogisticRegression

    rows = [{"text": text, "label": label} for text, label in {(row["text"], row["label"]) for row in ROWS[:8]}]
    alone = {"text": "a film", "label": "neutral"}
    plan, [records] = read_tasks(["classify"], {"few_shot": "linear"}, model=encoder, data=[*rows, alone])
    splits = learn_from_all(plan, [records], encoder / "none")
    rows_of_task = lay_out(plan, splits, start(plan)).tasks[0]
    scored, score = rows_of_task.development, rows_of_task.cross_validation
    assert score is not None and len(scored) == len(rows) and "neutral" not in {row.label for row in scored}
    counts = Counter(row.label for row in scored)
    fold = scored[: len(counts)]  # of as many rows of each label as folds
    assert {row.label for row in fold} == {*counts} and counts["pos"] == counts["neg"] <= FOLDS
    others = [{"text": row.texts[0], "label": row.label} for row in scored if row not in fold] + [alone]
    every = np.asarray(osbert.load(str(encoder)).embed([row["text"] for row in others], normalize=True, pooling="mean"))
    tested = osbert.load(str(encoder)).embed([row.texts[0] for row in fold], normalize=True, pooling="mean")
    center = every.mean(axis=0)
    length = np.linalg.norm(every - center, axis=1).mean()
    theirs = LogisticRegression(C=1 / PENALTY, tol=1e-8, max_iter=1000)
    theirs.fit((every - center) / length, [row["label"] for row in others])
    wanted = theirs.predict_proba((np.asarray(tested) - center) / length)
    ours = [[one.probabilities[name] for name in theirs.classes_] for one in score.predictions[: len(fold)]]
    assert np.allclose(ours, wanted, atol=2e-3)


@pytest.mark.parametrize("rows", [ROWS[:2], [*ROWS[::2][:6], ROWS[1]]])
def test_without_two_rows_of_two_labels_there_is_a_model_and_no_score(
    encoder: Path, tmp_path: Path, rows: list[dict[str, str]]
) -> None:
    events: list[Any] = []
    run = osbert.finetune("classify", model=encoder, data=rows, out=tmp_path / "run", few_shot="linear",
                          watch=events.append)  # fmt: skip
    assert run.metrics == {} and run.interval is None
    assert any("no score" in event.text for event in events if hasattr(event, "text"))
    assert run.predict([rows[0]["text"]])[0].value == rows[0]["label"]


def test_rows_are_held_out_where_development_rows_are_needed(encoder: Path, tmp_path: Path) -> None:
    for number, settings in enumerate(({"held_out": 0.25}, {"keep": "best"}, {"few_shot": "none"})):
        call: dict[str, Any] = {"few_shot": "contrastive", "epochs": 1} | settings
        run = osbert.finetune("classify", model=encoder, data=ROWS, out=tmp_path / f"{number}", **call)
        assert len(run.development["classify"]) < len(ROWS)
    with refusal("no-data", "--held-out"):
        osbert.finetune("classify", model=encoder, data=ROWS[:2], out=tmp_path / "none", few_shot="none")


LAST: dict[str, dict[str, Any]] = {"contrastive": {"keep": "last"}}


def test_contrastive_tunes_the_vectors_and_keeps_the_best_epoch_with_that_before_it(
    encoder: Path, tmp_path: Path
) -> None:
    events: list[Any] = []
    call: dict[str, Any] = {"model": encoder, "data": DATA, "few_shot": "contrastive", "seed": 1}
    call |= {"epochs": 4, "batch": 8, "learning_rate": 1e-2}
    run = osbert.finetune("classify", out=tmp_path / "a", watch=events.append, **call)
    epochs = [event for event in events if isinstance(event, Epoch)]
    assert [epoch.epoch for epoch in epochs] == [0, 1, 2, 3, 4]
    assert epochs[-1].loss < min(epochs[0].loss, epochs[1].loss)  # of the fitted layer, before the first step, too
    assert run.metrics["accuracy"] == max(epoch.metrics["accuracy"] for epoch in epochs)
    texts = ["the good film", "the fine film", "the bad film"]
    good, fine, bad = run.model.embed(texts, pooling="mean", normalize=True)
    assert good @ fine > good @ bad
    again = osbert.finetune("classify", out=tmp_path / "b", **call)
    assert np.array_equal(again.model.embed(texts), run.model.embed(texts))


def test_all_pairs_of_a_step_are_compared_whatever_fits_into_a_pass(encoder: Path, tmp_path: Path) -> None:
    """At 8 tokens a pass most would hold one text, which has no pair."""
    call: dict[str, Any] = {"model": encoder, "data": DATA, "few_shot": "contrastive", "epochs": 1, "batch": 8}
    runs = [osbert.finetune("classify", out=tmp_path / f"{n}", micro_tokens=n, **call) for n in (8, 4096)]
    assert len({fingerprint(read_file(run.folder / "model.safetensors")) for run in runs}) == 1


@pytest.mark.parametrize("few_shot", ["linear", "contrastive"])
def test_stopped_before_the_first_step_it_begins_anew(encoder: Path, tmp_path: Path, few_shot: str) -> None:
    wish = Interruption()

    def watch(event: object) -> None:
        if isinstance(event, Epoch):
            signal.raise_signal(signal.SIGTERM)

    call: dict[str, Any] = {"model": encoder, "data": DATA, "out": tmp_path / "run", "few_shot": few_shot}
    call |= {} if few_shot == "linear" else {"epochs": 1}
    with pytest.raises(StopRequest):
        finetune("classify", watch=watch, wish=wish, **call)
    run = finetune("classify", **call)
    lines = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines if "epoch" in line] == [0, 1][: 1 + (few_shot == "contrastive")]
    # The report's interval of the criterion is the run's own.
    assert run.interval is not None
    assert f"{run.interval.low:.4f} to {run.interval.high:.4f}" in (run.folder / "report.html").read_text()


@pytest.mark.parametrize(
    ("task", "settings", "names"),
    [
        ("tag", {"few_shot": "contrastive"}, ("tag", "linear")),
        ("tag", {"few_shot": "linear", "features": "mix"}, ("tag",)),
        pytest.param("choose", {"few_shot": "contrastive"}, ("choose",), marks=pytest.mark.lab),
        ("span", {"few_shot": "linear"}, ("span",)),
        ("regress", {"few_shot": "contrastive"}, ("regress", "linear")),
        ("classify", {"few_shot": "linear", "epochs": 3}, ("epochs",)),
        ("classify", {"few_shot": "linear", "from_scratch": True}, ("from-scratch",)),
        ("classify", {"few_shot": "linear", "patience": 2, "keep": "last"}, ("--patience", "--keep")),
        ("classify", {"few_shot": "linear", "evaluate_every": "2 steps"}, ("--evaluate-every",)),
        ("classify", {"few_shot": "linear", "search": "glue"}, ("--search",)),
        ("classify", {"few_shot": "linear", "seeds": 3}, ("--seeds",)),
    ],
)
def test_what_it_is_not_for_is_refused_by_name(
    encoder: Path, tmp_path: Path, task: str, settings: dict[str, Any], names: tuple[str, ...]
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("text,label\n" + "".join(f"{row['text']},{row['label']}\n" for row in ROWS))
    with refusal("options-exclude-each-other", "--few-shot", *names):
        osbert.finetune(task, model=encoder, data=path, out=tmp_path / "out", **settings)
    assert not (tmp_path / "out").exists()


def test_settings_that_do_nothing_beside_it_are_refused(encoder: Path, tmp_path: Path) -> None:
    with refusal("invalid-setting", "few_shot", "lora"):
        osbert.finetune("classify", model=encoder, data=DATA, out=tmp_path / "o", few_shot="linear", tuning="lora")
