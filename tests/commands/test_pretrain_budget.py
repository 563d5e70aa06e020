"""Minutes become steps once; from then on the run is as any other, and can be killed and go on bit for bit."""

from __future__ import annotations

import json
import math
import re
import signal
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import corpora
from forked import start_script
from osbert import recipe
from osbert.errors import UserError
from osbert.runs.pretrain import budget as pretrain_budget
from osbert.runs.pretrain.budget import MARGIN, Costs, spread
from osbert.runs.pretrain.settings import read_settings
from osbert.runs.pretrain.speed_test import SpeedTest
from osbert.training.probe import Speed
from refusals import refusal, refused
from terminal import told
from vocabularies import train

TINY = """
objectives = ["mlm", "nsp"]
[model]
layers = 1
width = 16
heads = 2
length = 48
[data]
batch = 4
length = 24
held_out = 0.05
[training]
precision = "fp32"
device = "cpu"
"""
COSTS = Costs(spent=1.0, start=0.5, step=0.5, look=0.01, checkpoint=0.01, end=0.5)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = corpora.invented()
    return corpora.build_corpus(tmp_path_factory.mktemp("texts"), texts, train(texts, vocabulary=90))


@pytest.fixture
def run(tmp_path, corpus, capsys):
    """Run `osbert pretrain` on a tiny recipe; return (status, output, error, folder)."""
    toml = tmp_path / "tiny.toml"
    toml.write_text(TINY)

    def run(*settings: str, out: str = "run", by: Path = toml) -> SimpleNamespace:
        words = ["pretrain", by, "--corpus", corpus, "--out", tmp_path / out, *settings]
        return told(capsys, *words, folder=tmp_path / out)

    return run


@pytest.fixture
def fixed(monkeypatch) -> None:
    """Every part of a run takes what COSTS says: 0.1 minutes are (5.82 - 2.05) / 0.5 = 7 steps."""
    monkeypatch.setattr(pretrain_budget, "measure_costs", lambda *_: COSTS)
    monkeypatch.setattr(pretrain_budget, "SLACK", math.inf)


def plan(minutes: float, *, given: Sequence[str] = (), **training) -> SimpleNamespace:
    settings = read_settings("cpu", {"minutes": minutes})
    settings = replace(settings, training=replace(settings.training, **training))
    return SimpleNamespace(settings=settings, given=frozenset(f"training.{name}" for name in given))


@given(
    minutes=st.floats(0.1, 10_000),
    step=st.floats(0.001, 5),
    look=st.floats(0, 3),
    checkpoint=st.floats(0, 3),
    evaluate_every=st.sampled_from([0, 1, 1000]),
    checkpoint_every=st.sampled_from([0, 1, 1000]),
)
def test_all_of_a_run_fits_its_minutes(minutes, step, look, checkpoint, evaluate_every, checkpoint_every) -> None:
    costs = replace(COSTS, step=step, look=look, checkpoint=checkpoint)
    wanted = plan(minutes, evaluate_every=evaluate_every, checkpoint_every=checkpoint_every)
    try:
        found = spread(wanted, costs)
    except UserError as error:
        assert error.code == "too-little-time"
        return
    looks = -(-found.steps // found.evaluate_every) if found.evaluate_every else 1
    checkpoints = -(-found.steps // found.checkpoint_every) if found.checkpoint_every else 0
    rest = costs.spent + costs.start + costs.end + looks * look + checkpoints * checkpoint
    whole = 60 * minutes * (1 - MARGIN)
    assert rest + found.steps * step <= whole * (1 + 1e-9)
    assert rest + (found.steps + 1) * step > whole - 10 * (look + checkpoint) - step, "no time is given away"
    assert bool(found.evaluate_every) == bool(evaluate_every)
    assert bool(found.checkpoint_every) == bool(checkpoint_every)
    assert looks <= 10 and checkpoints <= 10


@given(
    minutes=st.floats(0.5, 100), look=st.floats(0, 1), every=st.sampled_from([3, 7, 100]), saved=st.sampled_from([3, 7])
)
def test_intervals_that_were_given_are_kept_and_paid_for(minutes, look, every, saved) -> None:
    costs = replace(COSTS, look=look, checkpoint=0.3)
    names = ("evaluate_every", "checkpoint_every", "log_every")
    found = spread(plan(minutes, given=names, evaluate_every=every, checkpoint_every=saved, log_every=900), costs)
    assert (found.evaluate_every, found.checkpoint_every, found.log_every) == (every, saved, 900)
    looks, checkpoints = -(-found.steps // every), -(-found.steps // saved)
    taken = costs.spent + costs.start + costs.end + looks * look + checkpoints * 0.3 + found.steps * costs.step
    whole = 60 * minutes * (1 - MARGIN)
    assert taken <= whole * (1 + 1e-9)
    assert taken > whole - costs.step - 2 * (look + 0.3), "no time is given away"


def test_models_on_the_way_are_paid_for() -> None:
    costs = replace(COSTS, checkpoint=1.0)
    alone, kept = (spread(plan(1, models_every=every), costs) for every in (0, 2))
    assert kept.steps == pytest.approx(alone.steps / 2, abs=2)  # a step of 0.5 s, and half of a model of 1 s


def test_too_short_a_time_says_how_much_is_needed() -> None:
    with refusal("too-little-time", "--minutes", "0.02", "2", "0.5", "0.1"):
        spread(plan(0.02), COSTS)


def test_the_run_stores_steps_and_not_minutes(run, fixed) -> None:
    done = run("--minutes", "0.1")
    assert done.status == 0, done.error
    assert "0.1 minutes allow 7 steps." in done.output
    assert re.search(r"Planned 0.1 minutes, took \d", done.output)
    stored = recipe.read(done.folder / "recipe.toml")
    assert (stored["minutes"], stored["training"]["steps"]) == (0.0, 7)
    facts = json.loads((done.folder / "run.json").read_text())
    assert (facts["budget"]["minutes"], facts["budget"]["steps"]) == (0.1, 7)
    assert facts["finished"]["wall_seconds"] > 0 and facts["finished"]["resumed"] is False
    again = run(out="again", by=done.folder / "recipe.toml")
    assert (again.folder / "model.safetensors").read_bytes() == (done.folder / "model.safetensors").read_bytes()


def test_a_run_keeps_its_steps_whatever_the_machine_does(run, fixed, monkeypatch) -> None:
    run("--minutes", "0.1")
    monkeypatch.setattr(pretrain_budget, "measure_costs", lambda *_: pytest.fail("measured again"))
    assert "is finished" in run("--minutes", "0.1").output
    other = run("--minutes", "0.2")
    refused(other, "begun-with-other-settings", "--minutes 0.1", "--minutes 0.2")


def test_a_run_with_steps_is_not_given_minutes(run, tmp_path) -> None:
    run("--steps", "2")
    other = run("--minutes", "0.1")
    refused(other, "begun-with-other-settings", "--steps 2", "--minutes 0.1")


def test_steps_beside_minutes_are_refused(run, fixed) -> None:
    done = run("--minutes", "0.1", "--steps", "5")
    refused(done, "options-exclude-each-other", "--steps 5", "--minutes 0.1")
    assert not (done.folder / "run.json").exists()


def test_given_intervals_hold_now_and_when_the_run_goes_on(run, fixed) -> None:
    given = ("--minutes", "0.1", "--checkpoint-every", "3", "--log-every", "2")
    done = run(*given)
    assert done.status == 0, done.error
    stored = recipe.read(done.folder / "recipe.toml")["training"]
    assert (stored["checkpoint_every"], stored["log_every"]) == (3, 2)
    assert "is finished" in run(*given).output


def test_what_cannot_be_is_refused_before_the_test(run, fixed, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(pretrain_budget, "measure_costs", lambda *_: pytest.fail("measured"))
    refused(run("--minutes", "-1"), "invalid-setting", "minutes", -1)
    refused(run("--minutes", "inf"), "invalid-value", "minutes")
    (tmp_path / "run").mkdir(exist_ok=True)
    (tmp_path / "run" / "config.json").write_text("{}")
    refused(run("--minutes", "0.1"), "output-holds-something-else", "config.json")


def test_two_phases_count_with_their_own_speeds(run, corpus, tmp_path, monkeypatch) -> None:
    slow = {24: 0.1, 48: 0.3}

    def speed(self, length: int, *, seconds: float) -> Speed:
        return Speed(
            step_seconds=slow[length],
            median_seconds=slow[length],
            step_tokens=80.0,
            steps=3,
            layout_seconds=0.0,
            warming_seconds=0.0,
            loader_share=0.0,
            memory=1,
        )

    monkeypatch.setattr(SpeedTest, "speed", speed)
    monkeypatch.setattr(SpeedTest, "checkpoint_seconds", lambda self: 0.2)
    seen: list[Costs] = []
    monkeypatch.setattr(pretrain_budget, "spread", lambda plan, costs: seen.append(costs) or _give_up())
    done = run("--minutes", "1", "--long-share", "0.25", "--long-length", "48")
    assert "enough seen" in done.error
    assert seen[0].step == pytest.approx(0.75 * 0.1 + 0.25 * 0.3)
    assert seen[0].checkpoint == 0.2
    assert not (done.folder / "speed-test").exists()


def _give_up() -> None:
    raise UserError("enough seen")


KILLED = """
import os, signal, sys
from osbert import cli
from osbert.runs.pretrain import budget as pretrain_budget
from osbert.training.trainer import Trainer
if sys.argv.pop(1) == "fixed":
    costs = pretrain_budget.Costs(spent=1.0, start=0.5, step=0.5, look=0.01, checkpoint=0.01, end=0.5)
    pretrain_budget.measure_costs = lambda *_: costs
    pretrain_budget.SLACK = float("inf")
pretrain_budget.MOST = 1.0
save, saved = Trainer.save, []

def killing(self, **named):
    done = save(self, **named)
    if self.folder.name != "speed-test":
        saved.append(self.step)
    if len(saved) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return done

Trainer.save = killing
cli.main(sys.argv[1:])
"""


def killed(measured: str, tmp_path: Path, corpus: Path, *settings: str) -> str:
    """Run `osbert pretrain` up to its second checkpoint, with which it kills itself; return what it said."""
    words = ["pretrain", tmp_path / "tiny.toml", "--corpus", corpus, "--out", tmp_path / "run", *settings]
    script, log = tmp_path / "killed.py", tmp_path / "killed.log"
    script.write_text(KILLED)
    process = start_script(script, [measured, *map(str, words)], {}, log)
    process.join(timeout=300)
    assert process.exitcode == -signal.SIGKILL, log.read_text()
    return log.read_text()


def test_a_killed_run_with_minutes_ends_as_one_that_was_not(run, fixed, corpus, tmp_path) -> None:
    given = ("--minutes", "0.1", "--checkpoint-every", "2")
    killed("fixed", tmp_path, corpus, *given)
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    done = run(*given)
    assert done.status == 0, done.error
    assert "Going on from the checkpoint of step 4" in done.output
    ended = json.loads((done.folder / "run.json").read_text())
    assert ended["budget"] == facts["budget"] and ended["finished"]["resumed"] is True
    whole = run(out="whole", by=done.folder / "recipe.toml")
    assert whole.status == 0, whole.error
    assert (whole.folder / "model.safetensors").read_bytes() == (done.folder / "model.safetensors").read_bytes()


def test_the_real_test_of_speed_is_made_once(run, corpus, tmp_path) -> None:
    """Of an hour, so that the slowest machine has time for the start; the run ends itself at its checkpoints."""
    given = ("--minutes", "60", "--checkpoint-every", "2", "--log-every", "1")
    assert "60 minutes allow" in killed("measured", tmp_path, corpus, *given)
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert facts["budget"]["steps"] > 4
    assert "Going on from the checkpoint of step 4" in killed("measured", tmp_path, corpus, *given)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["budget"] == facts["budget"]


def test_the_budget_names_settings_of_the_trainer() -> None:
    names = {field for field in asdict(spread(plan(1.0), COSTS)) if field not in ("minutes", "ending")}
    assert names <= set(recipe.as_table(plan(1.0).settings)["training"])
