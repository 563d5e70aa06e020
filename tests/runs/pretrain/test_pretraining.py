"""Pretraining called from Python: quiet, in any thread, and resumable to the bit after KeyboardInterrupt."""

from __future__ import annotations

import json
import math
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import corpora
import osbert
from clock import CLOCK
from osbert.errors import UserError
from osbert.interop.folder import open_folder
from osbert.runs.contract import Notice
from osbert.runs.events import Measurement, TrainingStart
from osbert.runs.pretrain import budget
from osbert.runs.pretrain import pretraining_run as pretraining_run
from osbert.runs.pretrain.pretraining import EncoderRun, PretrainRequest, pretrain
from osbert.runs.pretrain.settings import read_plan
from osbert.training.progress import Progress
from osbert.training.tracking import read_lines
from osbert.training.trainer import Trainer
from refusals import refusal
from vocabularies import train

TINY = {
    "model.layers": 1, "width": 16, "heads": 2, "model.length": 24, "batch": 4, "data.length": 24, "held_out": 0.05,
    "steps": 6, "log_every": 2, "checkpoint_every": 4, "evaluate_every": 3, "precision": "fp32", "device": "cpu",
}  # fmt: skip


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    documents = corpora.invented()
    return corpora.build_corpus(tmp_path_factory.mktemp("texts") / "one", documents, train(documents, vocabulary=120))


@pytest.fixture
def run(tmp_path: Path, corpus: Path) -> Callable[..., EncoderRun]:
    """Pretrain in a folder of the test."""

    def run(out: str = "run", watch: Callable[[Any], None] = lambda event: None, **settings: Any) -> EncoderRun:
        request = PretrainRequest(recipe="cpu", settings={**TINY, **settings}, corpus=corpus, out=tmp_path / out)
        return pretrain(request, watch=watch)

    return run


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> Path:
    """Return the folder of a run that nothing has disturbed."""
    out = tmp_path_factory.mktemp("whole") / "run"
    return pretrain(PretrainRequest(recipe="cpu", settings=TINY, corpus=corpus, out=out)).folder


def same(folder: Path, whole: Path) -> bool:
    """Return whether weights and metrics, but for the clock, are those of an undisturbed run."""
    lines, wanted = (
        [
            {name: value for name, value in line.items() if name not in CLOCK}
            for line in read_lines(run / "metrics.jsonl")
        ]
        for run in (folder, whole)
    )
    weights = [(run / "model.safetensors").read_bytes() for run in (folder, whole)]
    return weights[0] == weights[1] and lines == wanted


def test_it_reports_by_events_and_prints_nothing(run, capfd) -> None:
    events: list[Any] = []
    done = run(watch=events.append)
    assert capfd.readouterr() == ("", "")
    (start,) = [event for event in events if isinstance(event, TrainingStart)]
    assert (start.processor, start.done, start.steps) == ("cpu fp32", 0, 6)
    assert [event.step for event in events if isinstance(event, Progress)] == [1, 2, 3, 4, 5, 6]
    measured = [(event.of, event.values["step"]) for event in events if isinstance(event, Measurement)]
    assert measured == [("training", 2), ("held_out", 3), ("training", 4), ("training", 6), ("held_out", 6)]
    assert any("parameters, mlm + nsp, on 60 documents" in event.text for event in events if isinstance(event, Notice))
    assert done.metrics["step"] == 6
    assert done.metrics["held_out.loss"] == measured_value(events, "held_out", "held_out.loss")
    assert done.metrics["mlm.loss"] == measured_value(events, "training", "mlm.loss")
    assert done.facts["parameters"] > 0


def measured_value(events: list[Any], of: str, name: str) -> float:
    return [event.values[name] for event in events if isinstance(event, Measurement) and event.of == of][-1]


def test_it_works_in_a_thread_and_catches_no_signal(run, whole) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    seen: list[Any] = []
    during = lambda event: seen.append([signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)])  # noqa: E731
    done: list[EncoderRun] = []
    thread = threading.Thread(target=lambda: done.append(run(watch=during)))
    thread.start()
    thread.join()
    assert same(done[0].folder, whole)
    assert all(found == handlers for found in seen) and seen


@pytest.mark.parametrize("step", range(1, 7))
def test_ctrl_c_between_two_steps_saves_the_last_one(run, whole, step: int) -> None:
    def interrupt(event: Any) -> None:
        if isinstance(event, Progress) and event.step == step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(watch=interrupt)
    events: list[Any] = []
    done = run(watch=events.append)
    assert any(str(event) == f"Going on from the checkpoint of step {step}." for event in events)
    assert same(done.folder, whole)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> Path:
    """Return the folder of a run with dropout that keeps no models on the way."""
    out = tmp_path_factory.mktemp("plain") / "run"
    return pretrain(PretrainRequest(recipe="cpu", settings=TINY | {"dropout": 0.1}, corpus=corpus, out=out)).folder


@pytest.mark.parametrize("stop", [None, "before", "after"])
def test_models_on_the_way_open_and_change_nothing(run, plain, monkeypatch, stop) -> None:
    """A run that keeps models, undisturbed or ended while it writes the second, is the run that keeps none."""
    if stop:
        write, calls = pretraining_run.write_model, []

        def interrupted(*given: Any, **named: Any) -> None:
            calls.append(given)
            if stop == "after" or len(calls) != 2:
                write(*given, **named)
            if len(calls) == 2:
                raise KeyboardInterrupt

        monkeypatch.setattr(pretraining_run, "write_model", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(models_every=2, dropout=0.1)
        monkeypatch.undo()
    kept = run(models_every=2, dropout=0.1)
    assert same(kept.folder, plain)
    models = sorted((kept.folder / "models").iterdir())
    assert [path.name for path in models] == ["step-2", "step-4", "step-6"]
    weights = [(path / "model.safetensors").read_bytes() for path in (*models, kept.folder)]
    assert len({*weights}) == 3 and weights[-1] == weights[-2]
    assert osbert.load(models[0]).embed(["bada kefe."]).shape == (1, 16)


LLAMA = {
    "model.positions": "rotary", "model.normalization": "pre", "model.root_norm": True,
    "model.gated": True, "model.biases": False, "model.activation": "silu", "heads": 4, "model.key_heads": 2,
    "model.embedding_norm": False, "model.piece_transform": False, "model.tied": False, "model.segments": 0,
    "model.pooling": "gelu", "model.summary": "late", "model.neighbours": 0.0,
}  # fmt: skip
DISTANCES = {"model.distance_scores": 8, "model.positions": "learned", "model.neighbours": 0.0}


@pytest.mark.parametrize(
    ("settings", "kind"),
    [(LLAMA | {"method": "muon"}, "eurobert"), (LLAMA, "eurobert"), (DISTANCES, "osbert")],
    ids=["llama-muon", "llama", "distances"],
)
def test_blocks_of_other_families_train_and_go_on(run, settings: dict[str, Any], kind: str) -> None:
    """Root norms, gates, shared keys and a table of the head's own; and scores of distances."""
    settings = settings | {"objectives": ["mlm"], "mlm.unigram_start": False, "learning_rate": 1e-2}

    def interrupt(event: Any) -> None:
        if isinstance(event, Progress) and event.step == 3:
            raise KeyboardInterrupt

    undisturbed = run("undisturbed", **settings)
    with pytest.raises(KeyboardInterrupt):
        run(watch=interrupt, **settings)
    assert same(run(**settings).folder, undisturbed.folder)
    assert json.loads((undisturbed.folder / "config.json").read_text())["model_type"] == kind
    held_out = [
        line["held_out.loss"] for line in read_lines(undisturbed.folder / "metrics.jsonl") if "held_out.loss" in line
    ]
    assert held_out[-1] < held_out[0]
    assert [*open_folder(undisturbed.folder).heads] == ["mlm"]


@pytest.mark.parametrize("of", ["training", "held_out"])
def test_ctrl_c_at_a_measurement_writes_no_line_twice(run, whole, of: str) -> None:
    def interrupt(event: Any) -> None:
        if isinstance(event, Measurement) and event.of == of:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(watch=interrupt)
    assert same(run().folder, whole)


@pytest.mark.parametrize(("place", "name", "number"), [
    ("osbert.training.gradients.Gradients", "add", 2), ("osbert.training.trainer.Trainer", "evaluate", 1),
    ("osbert.training.tracking.Metrics", "step", 2), ("osbert.training.tracking.Metrics", "record_held_out", 2),
    ("osbert.training.checkpoint.Checkpoints", "save", 1), ("osbert.training.adamw.PlainAdamW", "zero_grad", 2),
])  # fmt: skip
@pytest.mark.parametrize("after", [False, True])
def test_ctrl_c_anywhere_leaves_a_run_that_goes_on(run, whole, monkeypatch, after, place, name, number) -> None:
    """Before or after a call of what a step is made of: nothing half done is kept."""
    module, _, owner = place.rpartition(".")
    cls = getattr(__import__(module, fromlist=[owner]), owner)
    work, calls = getattr(cls, name), []

    def interrupted(*words: Any, **named: Any) -> Any:
        calls.append(name)
        last = len(calls) == number
        if last and not after:
            raise KeyboardInterrupt
        result = work(*words, **named)
        if last:
            raise KeyboardInterrupt
        return result

    with monkeypatch.context() as patch:
        patch.setattr(cls, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            run()
    assert same(run().folder, whole)


STAGES = {"mlm.rate": 0.4, "mlm.later_rates": [0.2], "mlm.later_from": [0.5]}


@pytest.mark.parametrize("step", [2, 3, 4])
def test_a_mask_rate_in_stages_goes_on_after_ctrl_c_and_is_named(run, step: int) -> None:
    def interrupt(event: Any) -> None:
        if isinstance(event, Progress) and event.step == step:
            raise KeyboardInterrupt

    events: list[Any] = []
    done = run("undisturbed", watch=events.append, **STAGES)
    course = "mlm.rate: 0.4, 0.2 after 0.5 of the steps; on held-out text 0.4"
    assert course in [str(event) for event in events]
    assert course in (done.folder / "report.html").read_text("utf-8")
    with pytest.raises(KeyboardInterrupt):
        run(watch=interrupt, **STAGES)
    assert same(run(**STAGES).folder, done.folder)


def test_masks_that_change_are_not_repeated(corpus: Path) -> None:
    with refusal("invalid-setting", "mlm.later_rates", "data.duplicates", 3):
        read_plan("cpu", {**TINY, **STAGES, "duplicates": 3}, corpus=corpus)


def test_an_error_of_the_callback_passes_through_and_releases_the_folder(run, whole) -> None:
    def fail(event: Any) -> None:
        if isinstance(event, Progress) and event.step == 2:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(watch=fail)
    assert same(run().folder, whole)


def test_notices_before_an_error_are_passed_on(run, monkeypatch) -> None:
    def unreadable(self: Trainer, stream: object) -> None:
        self.notices.append("A process of the loader died.")
        raise UserError("Processes of the loader died 3 times.", code="out-of-memory")

    events: list[Any] = []
    monkeypatch.setattr(Trainer, "_next", unreadable)
    with refusal("out-of-memory"):
        run(watch=events.append)
    assert "A process of the loader died." in [event.text for event in events if isinstance(event, Notice)]


def test_settings_are_keywords_that_are_checked(run, tmp_path: Path) -> None:
    with refusal("unknown-setting", "--stepps", "'steps'"):
        run(stepps=3)
    with refusal("invalid-value", "training.log_every", "2"):
        run(log_every="2")
    with refusal("ambiguous-setting", "--data.seed", "--training.seed"):
        run(seed=1)
    assert not (tmp_path / "run").exists()
    done = run(steps=1, training_seed=3, objectives=["mlm"])
    settings = json.loads((done.folder / "run.json").read_text())["settings"]
    assert (settings["training"]["seed"], settings["objectives"]) == (3, ["mlm"])


def test_each_problem_of_a_plan_has_its_code(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "run").touch()
    with pytest.raises(UserError) as raised:
        read_plan("cpu", {**TINY, "minutes": 1, "data.length": 48}, corpus=corpus, out=tmp_path / "run")
    assert raised.value.codes == ("output-is-file", "options-exclude-each-other", "invalid-setting")
    with refusal("output-is-input", "--out"):
        read_plan("cpu", TINY, corpus=corpus, out=corpus)


def test_a_finished_run_is_returned_as_it_is(run) -> None:
    events: list[Any] = []
    first, again = run(steps=2), run(steps=2, watch=events.append)
    assert first.metrics == again.metrics
    assert [type(event) for event in events] == [Notice] and "is finished" in str(events[0])


def test_the_model_of_a_run_opens(run) -> None:
    assert run(steps=1).model.embed(["bada kefe."]).shape == (1, 16)


def test_minutes_count_from_the_call_or_from_a_given_moment(run, corpus, tmp_path: Path, monkeypatch) -> None:
    costs = budget.Costs(spent=0.0, start=0.5, step=0.5, look=0.01, checkpoint=0.01, end=0.5)
    monkeypatch.setattr(budget, "measure_costs", lambda *_: costs)
    monkeypatch.setattr(budget, "SLACK", math.inf)
    settings = {name: value for name, value in TINY.items() if name != "steps"} | {"minutes": 0.1}
    taken = []
    for begun in (time.monotonic(), time.monotonic() - 600):
        events: list[Any] = []
        request = PretrainRequest(
            recipe="cpu", settings=settings, corpus=corpus, out=tmp_path / str(begun), begun=begun
        )
        pretrain(request, watch=events.append)
        (said,) = [str(event) for event in events if str(event).startswith("Planned 0.1 minutes, took ")]
        taken.append(float(said.removesuffix(".").rpartition(" ")[2]))
    assert taken[0] < 5 < 10 <= taken[1] < 15


def test_events_are_readable_when_they_are_printed(run) -> None:
    lines: list[str] = []
    run(watch=lambda event: lines.append(str(event)), steps=2)
    assert any(line.startswith("step 1 of 2: loss ") for line in lines)
    assert any(line.startswith("step 2  training: loss ") and "mlm " in line for line in lines)
    assert any(line.startswith("step 2  held out: loss ") for line in lines)
