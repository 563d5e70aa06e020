"""NaN and infinity in gradients: the step is left out and counted, the third in a row ends the run in good order."""

from __future__ import annotations

import json
import signal

import pytest
from harness import EVERY, STEPS, Site, compare, some, steps_taken


@pytest.mark.parametrize("value", some("nan", "inf", "-inf"))
def test_a_step_without_a_gradient_is_left_out(site: Site, value: str) -> None:
    """And a kill in between changes nothing: it is left out again."""
    fault = {"kind": "poison", "steps": [3, 6, 7], "value": value}
    whole, cut = site.fresh(), site.fresh()
    done = site.run(whole, **fault)
    assert done.status == 0, done
    assert json.loads((whole / "metrics.jsonl").read_text().splitlines()[-2])["skipped_steps"] == 3
    assert f"step {STEPS}/{STEPS}" in done.output and "3 skipped" in done.output
    child = site.start(cut, **fault)
    while steps_taken(cut) <= EVERY and child.wait(0.002) is None:
        pass
    if steps_taken(cut) < STEPS:
        child.signal(signal.SIGKILL)
        child.wait()
    assert site.run(cut, **fault).status == 0
    differences = compare(whole, cut)
    site.tally.count(f"{value} in a gradient", wrong=bool(differences))
    assert not differences
    assert (whole / "model.safetensors").read_bytes() != (site.undisturbed / "model.safetensors").read_bytes()


def test_three_in_a_row_end_the_run_and_it_can_go_on(site: Site) -> None:
    """A fault that has gone by the next time costs the steps since the last checkpoint, and nothing else."""
    out = site.fresh()
    ended = site.run(out, kind="poison", steps=[6, 7, 8], value="nan")
    assert ended.status == 1, ended
    assert "was not finite in 3 steps in a row, up to step 8" in ended.output
    assert "Traceback" not in ended.output, ended
    assert "the checkpoint of step 4." in ended.output and "--learning-rate (now 0.005)" in ended.output, ended
    (batch,) = out.glob("failed-step-*.npz")
    batch.unlink()
    done = site.complete("NaN in three gradients in a row", out)
    assert done.resumed == EVERY


def test_a_run_that_always_ends_so_goes_on_with_another_rate(site: Site) -> None:
    out = site.fresh()
    for _ in range(2):
        ended = site.run(out, kind="poison", steps=[6, 7, 8], value="nan")
        assert ended.status == 1, ended
    refused = site.run(out, "--learning-rate", "1e-3", "--data.batch", "4")
    assert refused.status == 1 and "data.batch: 6 -> 4" in refused.output, refused
    done = site.run(out, "--learning-rate", "1e-3")
    assert done.status == 0, done
    assert done.resumed == EVERY
    assert "From step 5 on other settings hold: optimizer.learning_rate: 0.005 -> 0.001." in done.output, done
    assert steps_taken(out) == STEPS
    site.tally.count("NaN in three gradients in a row, each time")
