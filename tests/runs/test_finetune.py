"""Fine-tuning from Python: settings by keyword, events, stops and their resumption, the run and its mistakes."""

from __future__ import annotations

import json
import shutil
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

import osbert
from osbert.errors import UnknownSetting
from osbert.inference.engine import Engine
from osbert.interop.files.weight_files import fingerprint, read_file
from osbert.runs.contract import Notice
from osbert.runs.events import Epoch, Measurement, TrainingStart
from osbert.runs.finetune.finetune import FinetuneRun, Mistake, finetune
from osbert.runs.finetune.plan import call_schema
from osbert.runs.pretrain.settings import schema
from osbert.tasks.kinds.classify import Classify
from osbert.training.interruption import Interruption, StopRequest
from osbert.training.progress import Progress
from osbert.training.trainer import Trainer
from refusals import refusal
from tiny_runs import write_run

QUICK: dict[str, Any] = {
    "epochs": 3,
    "batch": 16,
    "learning_rate": 1e-2,
    "precision": "fp32",
    "device": "cpu",
    "log_every": 5,
}
STEPS = 3 * 9  # 144 training rows


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("encoder"), None)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a CSV of 160 rows; a few have the other label, so that there are mistakes."""
    path = tmp_path_factory.mktemp("data") / "reviews.csv"
    words = [("good", "pos"), ("bad", "neg"), ("fine", "pos"), ("poor", "neg")]
    rows = [(f"the {word} film {'a ' * (number % 3)}", label) for number in range(40) for word, label in words]
    rows = [(text, "pos" if number % 7 == 0 else label) for number, (text, label) in enumerate(rows)]
    path.write_text("".join(f"{text},{label}\n" for text, label in [("text", "label"), *rows]))
    return path


@pytest.fixture(scope="module")
def watched(encoder: Path, table: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[FinetuneRun, list[Any]]:
    """Return a run with its events, as it went in a thread of its own."""
    events: list[Any] = []
    runs: list[FinetuneRun] = []
    out = tmp_path_factory.mktemp("runs") / "run"

    def work() -> None:
        runs.append(finetune("classify", model=encoder, data=table, out=out, watch=events.append, **QUICK))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return runs[0], events


@pytest.fixture(scope="module")
def run(watched: tuple[FinetuneRun, list[Any]]) -> FinetuneRun:
    return watched[0]


def test_the_events_are_all_that_the_command_prints(watched: tuple[FinetuneRun, list[Any]]) -> None:
    run, events = watched
    assert {type(event) for event in events} == {Notice, TrainingStart, Measurement, Progress, Epoch}
    assert [event.step for event in events if isinstance(event, Progress)] == [*range(1, STEPS + 1)]
    epochs = [event for event in events if isinstance(event, Epoch)]
    assert [one.epoch for one in epochs] == [1, 2, 3] and run.metrics == [one.metrics for one in epochs if one.best][-1]
    means = [event.values["step"] for event in events if isinstance(event, Measurement)]
    assert means == [5, 10, 15, 20, 25, 27]
    said = " ".join(str(event) for event in events if isinstance(event, Notice))
    for part in ("model: ", "train: 144 rows (", "length: 24 tokens", "last: epoch ", "try: osbert predict "):
        assert part in said


def test_calls_share_the_classes_of_their_settings() -> None:
    """A class a call would never be freed: recipes keep the names and types of every class."""
    assert call_schema("classify") is call_schema("classify")
    assert schema(["mlm", "nsp"]) is schema(["mlm", "nsp"])


def test_nothing_is_printed_and_no_signal_is_caught(
    encoder: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

    def watch(event: object) -> None:
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before

    finetune("classify", model=encoder, data=table, out=tmp_path / "run", watch=watch, **QUICK | {"epochs": 1})
    assert not any(capsys.readouterr())


def test_runs_in_several_threads_give_what_each_gives_alone(encoder: Path, table: Path, tmp_path: Path) -> None:
    def tuned(out: str, seed: int) -> str:
        run = osbert.finetune("classify", model=encoder, data=table, out=tmp_path / out, seed=seed, **QUICK)
        return fingerprint(read_file(run.folder / "model.safetensors"))

    alone = [tuned(f"alone-{seed}", seed) for seed in (1, 2)]
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(tuned, ("one", "two"), (1, 2))) == alone


def test_gradients_that_a_program_has_turned_off_stay_off_and_are_computed(
    encoder: Path, table: Path, tmp_path: Path
) -> None:
    on = finetune("classify", model=encoder, data=table, out=tmp_path / "on", **QUICK)
    before = torch.get_rng_state()
    torch.set_grad_enabled(False)
    try:
        off = finetune("classify", model=encoder, data=table, out=tmp_path / "off", **QUICK)
        assert not torch.is_grad_enabled()
    finally:
        torch.set_grad_enabled(True)
    assert torch.equal(torch.get_rng_state(), before)
    assert fingerprint(read_file(off.folder / "model.safetensors")) == fingerprint(
        read_file(on.folder / "model.safetensors")
    )


def test_the_run_has_scores_a_model_and_answers(run: FinetuneRun) -> None:
    best = json.loads((run.folder / "run.json").read_text())["finished"]["best"]
    assert run.metrics == best["metrics"] and run.facts["best"] == best
    assert isinstance(run.model, Engine) and run.model is run.model
    texts = ["the good film", "the bad film"]
    assert run.predict(texts) == run.model.predict(texts)


def test_the_mistakes_are_the_wrong_development_predictions_worst_first(run: FinetuneRun, table: Path) -> None:
    [rows] = run.development.values()
    assert len(run.errors) == round((1 - run.metrics["accuracy"]) * len(rows)) > 0
    lines = table.read_text().splitlines()
    for mistake in run.errors:
        assert mistake.prediction.value != mistake.label and Path(mistake.path) == table
        assert lines[mistake.line - 1].endswith(f",{mistake.label}") and mistake.texts[0] in lines[mistake.line - 1]
        assert mistake.error == pytest.approx(1 - mistake.prediction.probabilities[mistake.label])
    assert [one.error for one in run.errors] == sorted((one.error for one in run.errors), reverse=True)
    first = run.errors[0]
    assert str(first).startswith(f"{table}, line {first.line}: {first.label!r}, predicted ")


def test_the_mistakes_of_a_frame_have_its_index(encoder: Path, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": [f"film {number} a" for number in range(60)], "label": ["pos", "neg"] * 30})
    frame = frame.sample(frac=1, random_state=1)
    run = finetune("classify", model=encoder, data=frame, out=tmp_path / "run", **QUICK | {"epochs": 1})
    assert run.errors
    for mistake in run.errors:
        assert (frame.loc[mistake.line].text, frame.loc[mistake.line].label) == (*mistake.texts, mistake.label)
        assert str(mistake).startswith(f"index {mistake.line}: ")


def test_of_numbers_the_farthest_is_the_worst(encoder: Path, tmp_path: Path) -> None:
    rows = "".join(f"the {word} film,{score}\n" for word, score in (("good", 3), ("fine", 2), ("bad", 0))) * 20
    (tmp_path / "scores.csv").write_text("text,score\n" + rows)
    run = finetune("regress", model=encoder, data=tmp_path / "scores.csv", out=tmp_path / "run", **QUICK)
    found = [abs(mistake.prediction.value - mistake.label) for mistake in run.errors]
    assert found == [one.error for one in run.errors] == sorted(found, reverse=True) and len(found) == 6


def test_a_second_call_returns_the_finished_run(
    run: FinetuneRun, encoder: Path, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Trainer, "run", lambda self: pytest.fail("it trains again"))
    again = finetune("classify", model=encoder, data=table, out=run.folder, **QUICK)
    assert again.metrics == run.metrics and again.errors == run.errors
    with refusal("begun-with-other-settings", "training.epochs", "3", "4"):
        finetune("classify", model=encoder, data=table, out=run.folder, **QUICK | {"epochs": 4})


def stopping(step: int, error: type[BaseException]) -> Callable[[object], None]:
    def watch(event: object) -> None:
        if isinstance(event, Progress) and event.step == step:
            raise error

    return watch


@pytest.mark.parametrize(("step", "kept"), [(4, [4]), (9, []), (13, [13])])
def test_ctrl_c_leaves_a_run_that_ends_in_the_same_weights(
    run: FinetuneRun, encoder: Path, table: Path, tmp_path: Path, step: int, kept: list[int]
) -> None:
    """Step 9 ends an epoch that has not been scored: the run goes on from where it was before."""
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        watch = stopping(step, KeyboardInterrupt)
        finetune("classify", model=encoder, data=table, out=out, watch=watch, **QUICK)
    assert [path.name for path in out.glob("checkpoints/step-*")] == [f"step-{number}" for number in kept]
    begins: list[TrainingStart] = []

    def watch(event: object) -> None:
        begins.extend([event] if isinstance(event, TrainingStart) else [])

    finetune("classify", model=encoder, data=table, out=out, watch=watch, **QUICK)
    assert [begin.done for begin in begins] == (kept or [0])
    assert (out / "model.safetensors").read_bytes() == (run.folder / "model.safetensors").read_bytes()


@pytest.mark.parametrize(("place", "kept"), [("measure of gradients", [6]), ("optimizer", [])])
def test_ctrl_c_within_a_step_keeps_the_whole_ones(
    run: FinetuneRun, encoder: Path, table: Path, tmp_path: Path, place: str, kept: list[int]
) -> None:
    """Gradients change no weights; while the optimiser changes them there is nothing whole to keep."""
    begin, out = Trainer.__init__, tmp_path / "run"

    def interrupted(self: Trainer, *given: Any, **more: Any) -> None:
        begin(self, *given, **more)
        owner, name = (self.optimizer, "step") if place == "optimizer" else (self.gradients, "add")
        work = getattr(owner, name)

        def broken(*given: Any, **more: Any) -> Any:
            if self.step == 6:
                raise KeyboardInterrupt
            return work(*given, **more)

        setattr(owner, name, broken)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Trainer, "__init__", interrupted)
        finetune("classify", model=encoder, data=table, out=out, **QUICK)
    assert [path.name for path in out.glob("checkpoints/step-*")] == [f"step-{number}" for number in kept]
    finetune("classify", model=encoder, data=table, out=out, **QUICK)
    assert (out / "model.safetensors").read_bytes() == (run.folder / "model.safetensors").read_bytes()


def test_a_wish_stops_after_the_step(encoder: Path, table: Path, tmp_path: Path) -> None:
    wish = Interruption()

    def watch(event: object) -> None:
        if isinstance(event, Progress) and event.step == 5:
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(StopRequest):
        finetune("classify", model=encoder, data=table, out=tmp_path / "run", watch=watch, wish=wish, **QUICK)
    assert wish.status == 143 and (tmp_path / "run" / "checkpoints" / "step-5").is_dir()


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        ({"epoch": 3}, ("unknown-setting", "--epoch", "'epochs'")),
        ({"training.epoch": 3}, ("unknown-setting", "training.epoch", "'training.epochs'")),
        ({"decoder": "crf"}, ("unknown-setting", "--decoder", "to tag.")),
        ({"epochs": "three"}, ("invalid-value", "'training.epochs'", "integer", "'three'")),
        ({"text": "body"}, ("unknown-column", "'body'")),
        ({"trust": "yes"}, ("invalid-value", "'opening.trust'", "true", "'yes'")),
    ],
)
def test_settings_are_checked_as_those_of_the_command_line(
    encoder: Path, table: Path, tmp_path: Path, settings: dict[str, Any], refused: tuple[str, ...]
) -> None:
    with refusal(*refused):
        finetune("classify", model=encoder, data=table, out=tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()
    with pytest.raises(UnknownSetting):
        osbert.finetune("classify", model=encoder, data=table, out=tmp_path / "run", leraning_rate=1e-3)


def test_a_task_with_settings_of_its_own_and_from_scratch(encoder: Path, table: Path, tmp_path: Path) -> None:
    task = Classify(length=8, labels=("pos", "neg"))
    settings = QUICK | {"epochs": 1, "from_scratch": True, "training.seed": 3}
    run = finetune(task, model=encoder, data=table, out=tmp_path / "run", **settings)
    recipe = json.loads((run.folder / "run.json").read_text())["settings"]
    assert recipe["task"] == "classify" and recipe["classify"]["length"] == 8 and recipe["from_scratch"] is True
    assert recipe["training"]["seed"] == 3 and recipe["classify"]["labels"] == ["pos", "neg"]


def test_several_tasks_have_a_run_each(encoder: Path, table: Path, tmp_path: Path) -> None:
    (tmp_path / "scores.csv").write_text("text,score\n" + "good film,3\nbad,1\npoor,2\n" * 20)
    data = {"classify": table, "regress": tmp_path / "scores.csv"}
    few = QUICK | {"epochs": 2, "regress.length": 8}
    run = finetune(["classify", "regress"], model=encoder, data=data, out=tmp_path / "run", **few)
    assert {"mean", "classify.accuracy", "regress.r2"} <= {*run.metrics} and {*run.tasks} == {*data}
    for name, own in run.tasks.items():
        assert own.folder == run.folder / name and own.predict(["good"]) and own.tasks == {name: own}
        assert {f"{name}.{score}": value for score, value in own.metrics.items()}.items() <= run.metrics.items()
        assert all(isinstance(mistake, Mistake) for mistake in own.errors)
    with refusal("invalid-value", "run.tasks"):
        _ = run.errors
    alone = finetune(["classify"], model=encoder, data=table, out=tmp_path / "alone", **QUICK | {"epochs": 1})
    assert (alone.folder / "model.safetensors").is_file() and {*alone.tasks} == {"classify"}


def test_a_perfect_score_on_a_handful_of_rows_is_called_rough_too(encoder: Path, tmp_path: Path) -> None:
    events: list[Any] = []
    rows = [{"words": ["good", "film"], "tags": ["B-X", "O"]}] * 20
    data = {"train": rows, "dev": rows[:2]}
    run = finetune("tag", model=encoder, data=data, out=tmp_path / "run", watch=events.append, **QUICK)
    [said] = [one.text for one in events if isinstance(one, Notice) and one.warning and "under 100 rows" in one.text]
    assert run.metrics["f1"] == 1 and "2 rows" in said and "1.0000" in said


def test_a_fit_on_a_busy_machine_warns_that_threads_spin(
    encoder: Path, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("osbert.training.trainer.spin_remark", lambda: "threads spin")
    events: list[Any] = []
    finetune("classify", model=encoder, data=table, out=tmp_path / "run", watch=events.append, **QUICK)
    assert [str(event) for event in events if "threads spin" in str(event)] == ["threads spin"]


def test_parts_after_a_pooling_matter_to_vectors_alone(encoder: Path, table: Path, tmp_path: Path) -> None:
    folder = tmp_path / "sentences"
    shutil.copytree(encoder, folder)
    (folder / "run.json").unlink(missing_ok=True)
    kinds = ("Transformer", "CNN")
    parts = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in zip(("", "1_CNN"), kinds)]
    (folder / "modules.json").write_text(json.dumps(parts))
    run = finetune("classify", model=folder, data=table, out=tmp_path / "run", **QUICK | {"epochs": 1})
    assert run.metrics["accuracy"] > 0
    with refusal("unsupported-model"):
        finetune("contrastive", model=folder, data=table, out=tmp_path / "vectors", **QUICK)
