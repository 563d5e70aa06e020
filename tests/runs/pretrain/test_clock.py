"""A run with minutes ends in time on a machine that changes its speed, and is repeated to the bit after a stop."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import corpora
from osbert.runs.pretrain import budget
from osbert.runs.pretrain.budget import RunClock
from osbert.runs.pretrain.pretraining import PretrainRequest, pretrain
from osbert.training.distributed import ALONE
from osbert.training.progress import Progress
from osbert.training.run_folder import RunFolder
from vocabularies import train

MINUTES = 10.0
ENDING = 2.0
SETTINGS = {
    "model.layers": 1, "width": 16, "heads": 2, "model.length": 48, "batch": 4, "data.length": 24, "held_out": 0.05,
    "long_share": 0.4, "long_length": 48, "mlm.later_rates": "0.3", "mlm.later_from": "0.5", "checkpoint_every": 4,
    "evaluate_every": 5, "log_every": 2, "precision": "fp32", "device": "cpu", "minutes": 0.1,
}  # fmt: skip


def simulated(*, minutes: float, planned: int, begin: float, each: Callable[[float], float], look: float) -> float:
    """Return the seconds at the end of a simulated run that begins with `begin`; a step takes `each` of the time."""
    facts: dict[str, Any] = {}
    trainer = SimpleNamespace(
        step=0, memory={}, folder=Path("nowhere"), counters=SimpleNamespace(seconds=0.0), finished=False,
        settings=SimpleNamespace(steps=planned, log_every=math.ceil(planned / 50)), pace=None,
        loader=SimpleNamespace(pace=None),
    )  # fmt: skip
    plan = SimpleNamespace(budget={"minutes": minutes, "ending": ENDING}, begun=0.0)
    now = begin
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget.time, "monotonic", lambda: now)
        patch.setattr(RunFolder, "note", lambda self, **more: facts.update(more))
        timed = RunClock(plan, trainer, ALONE)
        while trainer.step < trainer.pace.steps:
            step = each(now)
            trainer.step += 1
            trainer.counters.seconds += step
            now += step * (1 + (look if trainer.step % 10 == 0 else 0.0))
            trainer.finished = trainer.step == trainer.pace.steps
            timed.correct()
    if trainer.pace.corrections:
        assert facts["corrections"] == [list(one) for one in trainer.pace.corrections]
    return now + ENDING


@given(
    step=st.floats(0.05, 2.0),
    look=st.floats(0, 3),
    change=st.floats(0.4, 3.0),
    when=st.floats(0.0, 0.85),
)
def test_a_run_ends_in_time_whatever_the_machine_does(step: float, look: float, change: float, when: float) -> None:
    planned = int(60 * MINUTES * 0.95 / (step + look / 10))
    ended = simulated(
        minutes=MINUTES,
        planned=planned,
        begin=0.0,
        each=lambda now: step * (change if now > when * 60 * MINUTES else 1.0),
        look=look / step,
    )
    assert ended <= 60 * MINUTES * 1.05 + step * change + look * change
    assert ended >= 60 * MINUTES * 0.95 - step * change


@pytest.mark.parametrize("step", [1.5, 2.5, 4.0, 5.0])
def test_a_run_of_three_or_more_long_steps_ends_within_half_a_step(step: float) -> None:
    """It is planned with as many whole steps as fit, and so would end early by most of a step."""
    minutes, begin = 0.4, 6.0
    planned = int((60 * minutes * 0.97 - begin - ENDING) / step)
    ended = simulated(minutes=minutes, planned=planned, begin=begin, each=lambda now: step, look=0.0)
    assert abs(ended - 60 * minutes) <= max(0.05 * 60 * minutes, step * 0.6)


def test_a_small_correction_is_not_printed() -> None:
    trainer = SimpleNamespace(
        step=0, memory={}, folder=Path("nowhere"), counters=SimpleNamespace(seconds=0.0),
        settings=SimpleNamespace(steps=1000), pace=None,
        loader=SimpleNamespace(pace=None),
    )  # fmt: skip
    plan = SimpleNamespace(budget={"minutes": MINUTES, "ending": ENDING}, begun=0.0)
    timed, printed = RunClock(plan, trainer, ALONE), []
    for steps in (960, 930, 890, 850, 990):
        trainer.pace = SimpleNamespace(steps=steps)
        printed.append(timed.is_news())
    # Each is compared with the last number that was printed, so that small changes add up.
    assert printed == [False, False, True, False, True]


def test_a_run_with_corrections_goes_on_to_the_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps 8 and later follow a correction, also where the run goes back to step 4 after the correction was made."""
    texts = corpora.invented()
    corpus = corpora.build_corpus(tmp_path / "texts", texts, train(texts, vocabulary=90))
    costs = budget.Costs(spent=1.0, start=0.5, step=0.4, look=0.01, checkpoint=0.01, end=0.5)
    monkeypatch.setattr(budget, "measure_costs", lambda *_: costs)

    def steps(self: RunClock) -> int | None:
        return {6: 12, 10: 14}.get(self.trainer.step)

    def run(name: str, last: int = 0) -> dict[str, Any]:
        def interrupt(event: Any) -> None:
            if isinstance(event, Progress) and event.step == last:
                raise KeyboardInterrupt

        request = PretrainRequest(recipe="cpu", settings=SETTINGS, corpus=corpus, out=tmp_path / name)
        if not last:
            return pretrain(request, watch=interrupt).facts
        with pytest.raises(KeyboardInterrupt):
            pretrain(request, watch=interrupt)
        return {}

    monkeypatch.setattr(RunClock, "_steps", steps)
    run("whole")
    run("stopped", last=8)
    shutil.rmtree(tmp_path / "stopped" / "checkpoints" / "step-8")
    assert (tmp_path / "stopped" / "checkpoints" / "step-4").is_dir()
    run("stopped")
    folders = [tmp_path / name for name in ("whole", "stopped")]
    facts = [json.loads((folder / "run.json").read_text()) for folder in folders]
    assert [one["corrections"] for one in facts] == [[[6, 12], [10, 14]]] * 2
    lines = [(folder / "metrics.jsonl").read_text().splitlines() for folder in folders]
    assert [json.loads(one[-1])["step"] for one in lines] == [14, 14]
    assert len({(folder / "model.safetensors").read_bytes() for folder in folders}) == 1
