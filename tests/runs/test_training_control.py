"""When a fine-tuning is scored, when it ends, and which weights it keeps; development rows of their own; folds."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import osbert
from osbert.inference.engine import load
from osbert.interop.files.weight_files import fingerprint, read_file
from osbert.runs.contract import Notice
from osbert.runs.events import Epoch, TrainingStart
from osbert.runs.finetune.finetune import FinetuneRun, all_rows, finetune
from osbert.runs.finetune.plan import read_plan
from osbert.runs.finetune.records import Splits
from osbert.tasks import load as load_task
from osbert.training.progress import Progress
from osbert.training.trainer import Trainer
from refusals import refusal
from tiny_runs import write_run

QUICK: dict[str, Any] = {
    "few_shot": "none",
    "epochs": 3,
    "batch": 16,
    "learning_rate": 1e-2,
    "precision": "fp32",
    "device": "cpu",
    "log_every": 5,
    "temperature": 1.0,
}
PREDICTIONS = "predictions.jsonl"
PER_EPOCH = 5  # 72 training rows of 80


class Killed(Exception):
    """Stands for a kill: nothing is written after it."""


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("encoder"), None)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a CSV of 80 rows of 20 authors."""
    path = tmp_path_factory.mktemp("data") / "reviews.csv"
    words = [("good", "pos"), ("bad", "neg"), ("fine", "pos"), ("poor", "neg")]
    rows = [(f"the {word} film {'a ' * (number % 3)}", label) for number in range(20) for word, label in words]
    lines = [
        f"{text},{'pos' if number % 7 == 0 else label},a{number % 20}" for number, (text, label) in enumerate(rows)
    ]
    path.write_text("text,label,author\n" + "".join(f"{line}\n" for line in lines))
    return path


@pytest.fixture(scope="module")
def tune(encoder: Path, table: Path) -> Callable[..., FinetuneRun]:
    def run(out: Path, **settings: Any) -> FinetuneRun:
        call: dict[str, Any] = {"model": encoder, "data": table, "text": "text", "label": "label", **QUICK, **settings}
        return finetune("classify", out=out, **call)

    return run


def weights(run: Path) -> str:
    return fingerprint(read_file(run / "model.safetensors"))


def epochs(events: list[Any]) -> list[Epoch]:
    return [event for event in events if isinstance(event, Epoch)]


@pytest.mark.parametrize(
    ("every", "steps"),
    [("0.5 epochs", [3, 5, 8, 10, 13, 15]), ("4 steps", [4, 8, 12, 15]), ("2 epochs", [10, 15]), ("100 steps", [15])],
)
def test_scores_come_as_often_as_they_are_wanted_and_after_the_last_step(
    tune: Callable[..., FinetuneRun], tmp_path: Path, every: str, steps: list[int]
) -> None:
    events: list[Any] = []
    run = tune(tmp_path / "run", evaluate_every=every, keep="last", watch=events.append)
    assert [one.step for one in epochs(events)] == steps
    assert [one.epoch for one in epochs(events)] == [step / PER_EPOCH for step in steps]
    assert run.facts["best"]["step"] == 15 and run.metrics == epochs(events)[-1].metrics
    page = (run.folder / "report.html").read_text()
    assert "Scores of the last epoch" in page and "was chosen" not in page
    assert not any("was chosen" in str(event) for event in events)


def test_the_last_weights_depend_on_no_score(tune: Callable[..., FinetuneRun], tmp_path: Path) -> None:
    runs = [
        tune(tmp_path / str(n), keep="last", evaluate_every=every) for n, every in enumerate(("7 steps", "2 epochs"))
    ]
    assert weights(runs[0].folder) == weights(runs[1].folder)


def test_the_best_weights_are_those_of_the_highest_score(tune: Callable[..., FinetuneRun], tmp_path: Path) -> None:
    events: list[Any] = []
    run = tune(tmp_path / "run", evaluate_every="2 steps", watch=events.append)
    highest = max(one.metrics["accuracy"] for one in epochs(events))
    assert run.metrics["accuracy"] == highest and not list(run.folder.glob("best-epoch-*"))
    assert len(run.errors) == round((1 - highest) * len(run.development["classify"]))


@pytest.mark.parametrize("keep", ["best", "last"])
def test_without_a_higher_score_the_run_ends(tune: Callable[..., FinetuneRun], tmp_path: Path, keep: str) -> None:
    """At no learning rate to speak of every score is the same: it is not higher."""
    events: list[Any] = []
    wanted = {"learning_rate": 1e-12, "patience": 2, "evaluate_every": "2 steps", "keep": keep}
    run = tune(tmp_path / "run", watch=events.append, **wanted)
    assert [one.step for one in epochs(events)] == [2, 4, 6]
    assert run.facts["best"]["step"] == 6  # of equal scores the last one
    assert any("after step 6" in str(event) for event in events if isinstance(event, Notice))
    lines = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    assert max(line["step"] for line in lines) == 6


@pytest.mark.parametrize(("stop", "scores"), [
    (7, {"evaluate_every": "2 steps", "patience": 3}),
    (4, {"evaluate_every": "0.5 epochs", "keep": "last", "patience": 2}),
    (11, {"evaluate_every": "4 steps", "keep": "last"}),
])  # fmt: skip
def test_killed_between_scores_it_ends_in_the_same_bits(
    tune: Callable[..., FinetuneRun], tmp_path: Path, scores: dict[str, Any], stop: int
) -> None:
    calm = tune(tmp_path / "calm", checkpoint_every=2, **scores)

    def watch(event: object) -> None:
        if isinstance(event, Progress) and event.step == stop:
            raise Killed

    with pytest.raises(Killed):
        tune(tmp_path / "killed", checkpoint_every=2, watch=watch, **scores)
    begins: list[Any] = []
    killed = tune(tmp_path / "killed", checkpoint_every=2, watch=begins.append, **scores)
    assert next(event.done for event in begins if isinstance(event, TrainingStart)) == (stop - 1) // 2 * 2
    assert weights(killed.folder) == weights(calm.folder)
    best = [{**run.facts["best"], "seconds": 0} for run in (calm, killed)]
    assert best[0] == best[1]


def test_a_run_that_has_ended_early_takes_no_more_steps(
    tune: Callable[..., FinetuneRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was killed after its last score, before the model was written."""
    wanted: dict[str, Any] = {"learning_rate": 1e-12, "patience": 1, "evaluate_every": "1 step"}

    def watch(event: object) -> None:
        if isinstance(event, Notice) and "after step 2" in event.text:
            raise Killed

    with pytest.raises(Killed):
        tune(tmp_path / "run", watch=watch, **wanted)
    monkeypatch.setattr(Trainer, "run", lambda self: pytest.fail("it trains again"))
    assert tune(tmp_path / "run", **wanted).facts["best"]["step"] == 2


@pytest.mark.parametrize("wrong", [
    {"evaluate_every": "often"}, {"evaluate_every": "0 steps"}, {"evaluate_every": "0.0 epochs"},
    {"evaluate_every": "200"}, {"patience": -1}, {"folds": 1}, {"folds": 3, "seeds": 2}, {"group": "author"},
])  # fmt: skip
def test_what_makes_no_run_is_refused(tune: Callable[..., FinetuneRun], tmp_path: Path, wrong: dict[str, Any]) -> None:
    with refusal("invalid-setting", next(iter(wrong))):
        tune(tmp_path / "run", **wrong)


def test_other_scores_are_another_run(tune: Callable[..., FinetuneRun], tmp_path: Path) -> None:
    tune(tmp_path / "run", epochs=1, keep="best")
    with refusal("begun-with-other-settings", "scores.keep"):
        tune(tmp_path / "run", epochs=1, keep="last")


def test_a_run_that_keeps_the_best_epoch_does_so_when_it_goes_on(
    tune: Callable[..., FinetuneRun], tmp_path: Path
) -> None:
    """Its 8 development rows are too few for a new run to choose by."""
    first = tune(tmp_path / "run", keep="best")
    said: list[Any] = []
    assert tune(tmp_path / "run", watch=said.append).facts["best"] == first.facts["best"]
    assert not any("keep last" in str(event) for event in said)
    tune(tmp_path / "new", watch=said.append)
    assert any("keep last: 8 development rows" in str(event) for event in said)


def test_development_rows_may_have_a_file(tune: Callable[..., FinetuneRun], table: Path, tmp_path: Path) -> None:
    dev = tmp_path / "mine.csv"
    dev.write_text("text,label\nthe good film,pos\nthe bad film,neg\nthe poor film,pos\n")
    events: list[Any] = []
    run = tune(tmp_path / "run", dev=dev, epochs=1, watch=events.append)
    assert [row.texts for row in run.development["classify"]] == [
        ("the good film",),
        ("the bad film",),
        ("the poor film",),
    ]
    assert any(str(event).startswith("train: 80 rows") for event in events)
    whole = tmp_path / "folder"
    whole.mkdir()
    (whole / "train.csv").write_bytes(table.read_bytes())
    (whole / "dev.csv").write_bytes(table.read_bytes())
    same = tune(tmp_path / "again", data=whole, dev=str(dev), epochs=1)
    assert weights(same.folder) == weights(run.folder) and same.metrics == run.metrics
    rows = [{"text": row.texts[0], "label": row.label} for row in run.development["classify"]]
    memory = osbert.finetune(
        "classify", model=run.folder, data=table, dev=rows, out=tmp_path / "memory",
        **{**QUICK, "epochs": 1, "text": "text", "label": "label"},
    )  # fmt: skip
    assert len(memory.development["classify"]) == 3


def test_development_rows_that_are_not_there(tune: Callable[..., FinetuneRun], table: Path, tmp_path: Path) -> None:
    with refusal("missing-file", "none.csv", "--dev"):
        tune(tmp_path / "run", dev="none.csv")
    with refusal("invalid-value", tmp_path):
        tune(tmp_path / "run", data=tmp_path, dev=[("good", "pos")])
    with refusal("ambiguous-setting", "--classify.dev"):
        finetune(["classify", "regress"], model=tmp_path, data=tmp_path, out=tmp_path / "two", dev="x.csv")


@pytest.mark.lab
def test_each_row_without_a_group_is_dealt_by_itself_with_a_warning(tmp_path: Path) -> None:
    """As one group of 6 of the 12 rows they would be one fold."""
    from osbert_lab.study import folds

    path = tmp_path / "visits.csv"
    said: list[Notice] = []
    cells = [f"the film {n},{'pos' if n % 2 else 'neg'},{'' if n < 6 else n // 2}" for n in range(12)]
    path.write_text("\n".join(["text,label,patient", *cells]) + "\n")
    plan = read_plan("classify", {"folds": 3, "group": "patient"}, model=tmp_path, data=path)
    task, records = load_task(plan.task, ("train", "dev"))
    plan = dataclasses.replace(plan, tasks=(task,))
    dealt = folds.deal(plan, all_rows(task, records), said.append).tolist()
    assert sorted(dealt) == [0] * 4 + [1] * 4 + [2] * 4
    assert all(dealt[n] == dealt[n + 1] for n in (6, 8, 10))
    [warning] = said
    assert warning.warning and "6 rows" in warning.text and "line 2, 3, 4, 5, 6 and 1 more" in warning.text


@pytest.fixture(scope="module")
def steady() -> Iterator[None]:
    """Let no trial be run again because so small a model gives one answer."""
    from osbert_lab.study.runner import TrialResult

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrialResult, "collapsed", "")
        yield


@pytest.fixture(scope="module")
def folded(tune: Callable[..., FinetuneRun], tmp_path_factory: pytest.TempPathFactory, steady: None) -> FinetuneRun:
    return tune(tmp_path_factory.mktemp("folds") / "run", folds=3, epochs=1)


@pytest.mark.lab
def test_every_row_is_predicted_by_the_fold_that_has_not_seen_it(folded: FinetuneRun, table: Path) -> None:
    rows = [json.loads(line) for line in (folded.folder / PREDICTIONS).read_text().splitlines()]
    written = table.read_text().splitlines()[1:]
    assert [f"{row['texts'][0]},{row['label']}" for row in rows] == [line.rpartition(",")[0] for line in written]
    assert [row["line"] for row in rows] == [*range(2, 82)]
    for fold in (1, 2, 3):
        run = FinetuneRun(folded.folder / "trials" / f"fold-{fold}")
        own = [row for row in rows if row["fold"] == fold]
        assert len(own) in (26, 27, 28) and abs(sum(row["label"] == "pos" for row in own) - 15) <= 1
        right = sum(row["label"] == row["prediction"] for row in own) / len(own)
        assert right == pytest.approx(run.metrics["accuracy"])
        said = load(run.folder).predict([row["texts"][0] for row in own])
        assert [one.value for one in said] == [row["prediction"] for row in own]


@pytest.mark.lab
def test_the_scores_over_the_folds_are_kept_and_the_model_is_that_without_folds(
    folded: FinetuneRun, tune: Callable[..., FinetuneRun], tmp_path: Path
) -> None:
    found = folded.facts["folds"]["accuracy"]
    scores = [FinetuneRun(folded.folder / "trials" / f"fold-{n}").metrics["accuracy"] for n in (1, 2, 3)]
    assert found["mean"] == pytest.approx(sum(scores) / 3) and found["folds"] == 3
    assert found["interval"][0] <= found["mean"] <= found["interval"][1]
    plain = tune(tmp_path / "plain", epochs=1)
    assert weights(plain.folder) == weights(folded.folder) and plain.metrics == folded.metrics
    assert "fold 3" in (folded.folder / "report.html").read_text()


@pytest.mark.lab
def test_no_fold_learns_from_a_text_that_it_is_scored_on(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steady: None
) -> None:
    from osbert_lab.study import folds

    seen: list[Splits] = []
    laid_out_as = folds.encode_splits
    monkeypatch.setattr(folds, "encode_splits", lambda rows, own: seen.append(own) or laid_out_as(rows, own))
    rows = [(f"film {number % 9}", "pos" if number % 3 else "neg") for number in range(24)]
    finetune(
        "classify", model=encoder, data=rows, out=tmp_path / "run", folds=2, deduplicate=True, **{**QUICK, "epochs": 1}
    )
    assert len(seen) == 3
    for own in seen:
        texts = [{record.texts for record in own[split]} for split in ("train", "dev")]
        assert all(texts) and not texts[0] & texts[1]


@pytest.mark.lab
def test_stopped_it_goes_on_and_rows_of_a_group_are_in_one_fold(
    tune: Callable[..., FinetuneRun], table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steady: None
) -> None:
    def watch(event: object) -> None:
        if "fold 2" in str(event):
            raise Killed

    wanted: dict[str, Any] = {"folds": 2, "group": "author", "epochs": 1}
    with pytest.raises(Killed):
        tune(tmp_path / "run", watch=watch, **wanted)
    whole = tmp_path / "run" / "trials" / "whole" / "model.safetensors"
    before = whole.stat().st_mtime_ns
    run = tune(tmp_path / "run", **wanted)
    assert whole.stat().st_mtime_ns == before
    monkeypatch.setattr(Trainer, "run", lambda self: pytest.fail("it trains again"))
    assert tune(tmp_path / "run", **wanted).facts == run.facts
    authors = [line.rpartition(",")[2] for line in table.read_text().splitlines()[1:]]
    rows = [json.loads(line) for line in (tmp_path / "run" / PREDICTIONS).read_text().splitlines()]
    folds = {author: {row["fold"] for row, own in zip(rows, authors) if own == author} for author in authors}
    assert all(len(own) == 1 for own in folds.values())
    with refusal("unknown-column", "auhtor", "author"):
        tune(tmp_path / "none", folds=2, group="auhtor")
    with refusal("too-little-data", "30", "20"):
        tune(tmp_path / "none", folds=30, group="author")
    with refusal("options-exclude-each-other", "--dev"):
        tune(tmp_path / "none", folds=2, dev=table)
